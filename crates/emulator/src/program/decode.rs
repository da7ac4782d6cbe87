//! Decodes a kernel's syntax tree: names, scopes, calls, instructions.

use std::{collections::HashMap, rc::Rc};

use crate::{
    alu::{self, bank_of, bits_of},
    exec::lanes::{Bank, Counts, Operands, Register},
    fault::readable,
    ptx::ast::{self, Operand, Statement, Type},
};

use super::arrays::{Array, Arrays};
use super::call::{self, Callees};
use super::lines::{Lines, Source};
use super::{
    Kernel, LoadError, Param,
    code::{
        Address, Code, Constant, END, Guard, Instruction, Load, Operation, Order, Scope, Space, Special,
        Store,
    },
    flags,
    flow::{self, Uses},
    forms::{self, Family},
    matrix, memory, swaps, sync, system,
    undefined::{self, Rule},
    video,
};

/// The most instructions in a kernel after inlining its calls.
const MOST_INSTRUCTIONS: usize = 1 << 20;
/// The most bytes that a kernel may declare of shared memory per block, or of local memory per thread.
const MOST_BYTES: u64 = 1 << 24;
/// Local memory per thread, which also holds spilled registers. (CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability".)
const THREAD_BYTES: u64 = 512 << 10;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Symbol {
    Register {
        register: Register,
        bits: u32,
    },
    /// `%r<5>`: `count` registers of `bits` bits.
    Range {
        bits: u32,
        count: u32,
    },
    /// Memory at a known offset.
    Place {
        space: Space,
        offset: u64,
    },
    /// Dynamic shared memory.
    Dynamic,
    /// A variable of the module.
    Module,
    /// A function, whose address this is.
    Function(u64),
    Label(u32),
}

type Names = HashMap<String, Symbol>;

/// The module around a kernel.
pub(super) struct Context<'a> {
    pub functions: HashMap<&'a str, &'a ast::Function>,
    pub variables: HashMap<&'a str, &'a ast::Variable>,
    /// The functions whose address is taken.
    pub taken: Vec<&'a str>,
    pub files: &'a [(u32, String)],
}

impl Context<'_> {
    /// The address of a function, if it is taken.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.taken.iter().position(|taken| *taken == name).map(call::address)
    }
}

/// A kernel that is being decoded.
pub(super) struct Decoder<'a> {
    pub context: &'a Context<'a>,
    pub instructions: Vec<Instruction>,
    uses: Vec<Uses>,
    /// For each instruction, when its results are undefined.
    rules: Vec<Rule>,
    places: Vec<(u32, Option<Source>)>,
    counts: Counts,
    constants: HashMap<(Bank, Constant), Register>,
    /// Innermost last.
    scopes: Vec<Names>,
    /// The instruction that each label precedes.
    labels: Vec<Option<u32>>,
    /// For each function being inlined, the label that `ret` jumps to.
    returns: Vec<u32>,
    calls: Vec<&'a str>,
    shared_bytes: u64,
    arrays: Vec<Array>,
    local_bytes: u64,
    /// The offsets of the module's shared variables that the kernel uses.
    module_shared: HashMap<String, u64>,
    lines: Lines<'a>,
    pub line: u32,
    pub guard: Guard,
    rule: Rule,
    /// A register of each bank for results that nobody reads.
    sinks: [Option<Register>; 4],
    /// The carry flag of `add.cc` and similar instructions.
    carry: Option<Register>,
    branch_targets: Rc<HashMap<String, Vec<String>>>,
    pub callees: Rc<HashMap<String, Callees>>,
    /// Calls through registers that are being inlined.
    pub indirect: usize,
}

impl<'a> Decoder<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        Decoder {
            context,
            instructions: Vec::new(),
            uses: Vec::new(),
            rules: Vec::new(),
            places: Vec::new(),
            counts: Counts::default(),
            constants: HashMap::new(),
            scopes: vec![Names::new()],
            labels: Vec::new(),
            returns: Vec::new(),
            calls: Vec::new(),
            shared_bytes: 0,
            arrays: Vec::new(),
            local_bytes: 0,
            module_shared: HashMap::new(),
            lines: Lines::new(context.files),
            line: 0,
            guard: Guard::NONE,
            rule: Rule::default(),
            sinks: [None; 4],
            carry: None,
            branch_targets: Rc::default(),
            callees: Rc::default(),
            indirect: 0,
        }
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, LoadError> {
        Err(LoadError { line: self.line, message: message.into(), unknown: false })
    }

    /// An error for PTX that may be valid but that the emulator does not support.
    fn unknown_error<T>(&self, message: impl Into<String>) -> Result<T, LoadError> {
        Err(LoadError { line: self.line, message: message.into(), unknown: true })
    }

    // Registers, constants and names.

    fn declare(&mut self, name: &str, symbol: Symbol) -> Result<(), LoadError> {
        let names = self.scopes.last_mut();
        match names.map(|names| names.insert(name.to_owned(), symbol)) {
            Some(None) => Ok(()),
            _ => self.error(format!("`{name}` is declared twice")),
        }
    }

    /// The meaning of a name in the innermost scope that declares it.
    pub(super) fn find(&mut self, name: &str) -> Result<Symbol, LoadError> {
        if let Some(symbol) = self.scopes.iter().rev().find_map(|names| names.get(name)) {
            return Ok(symbol.clone());
        }
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        // `%r<117>` declares a range of a prefix; the prefix may itself end in digits.
        for length in (1..=digits).rev() {
            let (prefix, number) = name.split_at(name.len() - length);
            let Ok(number) = number.parse::<u32>() else { continue };
            if length > 1 && name.as_bytes()[name.len() - length] == b'0' {
                continue;
            }
            let key = format!("{prefix}<");
            let found = self.scopes.iter().rposition(|names| names.contains_key(&key));
            if let Some(scope) = found
                && let Some(&Symbol::Range { bits, count }) = self.scopes[scope].get(&key)
                && number < count
            {
                let Some(bank) = bank_of_bits(bits) else { continue };
                let symbol = Symbol::Register { register: self.counts.add(bank), bits };
                self.scopes[scope].insert(name.to_owned(), symbol.clone());
                return Ok(symbol);
            }
        }
        if let Some(address) = self.context.address(name) {
            return Ok(Symbol::Function(address));
        }
        let Some(variable) = self.context.variables.get(name) else {
            return self.error(format!("`{name}` is not declared"));
        };
        Ok(match variable.space {
            ast::Space::Shared if variable.external || variable.len == Some(0) => Symbol::Dynamic,
            ast::Space::Shared => {
                let (align, size) = self.size(variable)?;
                let offset = match self.module_shared.get(name) {
                    Some(&offset) => offset,
                    None => {
                        let offset = self.reserve_array(name, size, align)?;
                        self.module_shared.insert(name.to_owned(), offset);
                        offset
                    }
                };
                Symbol::Place { space: Space::Shared, offset }
            }
            _ => Symbol::Module,
        })
    }

    fn reserve(&mut self, space: Space, size: u64, align: u64) -> Result<u64, LoadError> {
        let bytes = if space == Space::Shared { &mut self.shared_bytes } else { &mut self.local_bytes };
        let offset = bytes.next_multiple_of(align.max(1));
        *bytes = offset + size;
        if *bytes > MOST_BYTES {
            return self.error(format!("more than {MOST_BYTES} bytes of {space:?} memory are declared"));
        }
        Ok(offset)
    }

    fn reserve_array(&mut self, name: &str, size: u64, align: u64) -> Result<u64, LoadError> {
        let offset = self.reserve(Space::Shared, size, align)?;
        self.arrays.push(Array { name: name.to_owned(), range: offset..offset + size });
        Ok(offset)
    }

    /// The address of the shared array at `start`, plus an offset.
    fn shared(&self, start: u64, offset: u64) -> Constant {
        let array = self.arrays.iter().rposition(|array| array.range.start == start);
        Constant::Shared {
            array: array.map_or(u32::MAX, |array| array as u32),
            bits: start.wrapping_add(offset),
        }
    }

    fn size(&self, variable: &ast::Variable) -> Result<(u64, u64), LoadError> {
        match variable_size(variable) {
            Some(size) if size <= MOST_BYTES && u64::from(variable.align) <= MOST_BYTES => {
                Ok((u64::from(variable.align.max(1)), size))
            }
            _ => self.error(format!("`{}` is too large", variable.name)),
        }
    }

    pub(super) fn fresh(&mut self, bank: Bank) -> Register {
        self.counts.add(bank)
    }

    pub(super) fn constant(&mut self, bank: Bank, constant: Constant) -> Register {
        let counts = &mut self.counts;
        *self.constants.entry((bank, constant)).or_insert_with(|| counts.add(bank))
    }

    pub(super) fn sink(&mut self, bank: Bank) -> Register {
        let counts = &mut self.counts;
        *self.sinks[bank as usize].get_or_insert_with(|| counts.add(bank))
    }

    fn carry(&mut self) -> Register {
        let counts = &mut self.counts;
        *self.carry.get_or_insert_with(|| counts.add(Bank::Predicate))
    }

    /// The register of this name and its bits. `None` if the operand is not a register.
    pub(super) fn register(&mut self, operand: &Operand) -> Result<Option<(Register, u32)>, LoadError> {
        let Operand::Name(name) = operand else { return Ok(None) };
        if special(name).is_some() || is_clock(name) || matches!(name.as_str(), "_" | "WARP_SZ") {
            return Ok(None);
        }
        Ok(match self.find(name)? {
            Symbol::Register { register, bits } => Some((register, bits)),
            _ => None,
        })
    }

    /// Resolves an operand to a register of this bank that can be written.
    pub(super) fn target(&mut self, operand: &Operand, bank: Bank) -> Result<Register, LoadError> {
        if *operand == Operand::Name("_".to_owned()) {
            return Ok(self.sink(bank));
        }
        match self.register(operand)? {
            Some((register, _)) if register.bank == bank => Ok(register),
            Some((register, _)) => self.error(format!(
                "{} is a {:?} register where {bank:?} is needed",
                shown(operand),
                register.bank
            )),
            None => self.error(format!("{} is not a register, so it cannot be written", shown(operand))),
        }
    }

    /// Resolves an operand to a register of this bank that holds its value.
    pub(super) fn source(&mut self, operand: &Operand, bank: Bank) -> Result<Register, LoadError> {
        let bits = match operand {
            Operand::Integer(bits) => *bits,
            Operand::F32(bits) if bank == Bank::Double => f64::from(f32::from_bits(*bits)).to_bits(),
            Operand::F32(bits) => u64::from(*bits),
            Operand::F64(bits) if bank == Bank::Double => *bits,
            Operand::F64(bits) => u64::from((f64::from_bits(*bits) as f32).to_bits()),
            Operand::Name(name) => return self.named(name, 0, bank),
            Operand::Sum(name, offset) => return self.named(name, *offset, bank),
            _ => return self.error(format!("{} is not a value", shown(operand))),
        };
        let bits = match bank {
            Bank::Half => bits & 0xffff,
            Bank::Word => bits & 0xffff_ffff,
            Bank::Double => bits,
            Bank::Predicate => u64::from(bits != 0),
        };
        Ok(self.constant(bank, Constant::Bits(bits)))
    }

    fn named(&mut self, name: &str, offset: i64, bank: Bank) -> Result<Register, LoadError> {
        if name == "WARP_SZ" {
            return Ok(self.constant(bank, Constant::Bits(32)));
        }
        if let Some(special) = special(name) {
            return Ok(self.constant(bank, Constant::Special(special)));
        }
        let constant = match self.find(name)? {
            Symbol::Register { register, .. } if register.bank == bank && offset == 0 => return Ok(register),
            Symbol::Register { register, .. } => {
                return self
                    .error(format!("`{name}` is a {:?} register where {bank:?} is needed", register.bank));
            }
            Symbol::Place { space: Space::Param, offset: at } => {
                Constant::Bits(at.wrapping_add(offset as u64))
            }
            Symbol::Place { space: Space::Shared, offset: at } => self.shared(at, offset as u64),
            Symbol::Place { offset: at, .. } => Constant::Bits(at.wrapping_add(offset as u64)),
            Symbol::Function(address) => Constant::Bits(address.wrapping_add(offset as u64)),
            Symbol::Dynamic => Constant::Dynamic(offset),
            Symbol::Module => Constant::Address(name.to_owned(), offset),
            Symbol::Range { .. } | Symbol::Label(_) => return self.error(format!("`{name}` is not a value")),
        };
        if matches!(bank, Bank::Half | Bank::Predicate) {
            return self.error(format!("the address of `{name}` needs a register of 32 or 64 bits"));
        }
        Ok(self.constant(bank, constant))
    }

    /// Resolves a predicate operand. Also returns whether it is negated.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Result<(Register, bool), LoadError> {
        match operand {
            Operand::Not(name) => Ok((self.source(&Operand::Name(name.clone()), Bank::Predicate)?, true)),
            operand => Ok((self.source(operand, Bank::Predicate)?, false)),
        }
    }

    /// Resolves `[base+offset]` in a memory.
    pub(super) fn address(&mut self, operand: &Operand, space: Space) -> Result<Address, LoadError> {
        let (base, offset) = match operand {
            Operand::Address { base, offset } => (base, *offset as u64),
            _ => return self.error(format!("{} is not an address", shown(operand))),
        };
        let Some(name) = base else { return Ok(Address { space, base: None, offset }) };
        if let Some(special) = special(name) {
            let base = Some(self.constant(Bank::Double, Constant::Special(special)));
            return Ok(Address { space, base, offset });
        }
        Ok(match self.find(name)? {
            Symbol::Register { register, .. } if matches!(register.bank, Bank::Word | Bank::Double) => {
                Address { space, base: Some(register), offset }
            }
            Symbol::Place { space: place, offset: at } => {
                if space != place && !(space == Space::Param && place == Space::Local) {
                    return self.error(format!("`{name}` is in {place:?} memory, not in {space:?}"));
                }
                if place == Space::Shared {
                    let base = self.shared(at, 0);
                    return Ok(Address { space, base: Some(self.constant(Bank::Double, base)), offset });
                }
                Address { space: place, base: None, offset: at.wrapping_add(offset) }
            }
            Symbol::Dynamic if space == Space::Shared => {
                let base = self.constant(Bank::Double, Constant::Dynamic(0));
                Address { space, base: Some(base), offset }
            }
            Symbol::Module if space == Space::Global || space == Space::Generic => {
                let base = self.constant(Bank::Double, Constant::Address(name.clone(), 0));
                Address { space: Space::Global, base: Some(base), offset }
            }
            _ => return self.error(format!("`{name}` is not an address in {space:?} memory")),
        })
    }

    // Instructions.

    pub(super) fn emit(&mut self, operation: Operation, uses: Uses) -> Result<(), LoadError> {
        if self.instructions.len() >= MOST_INSTRUCTIONS {
            return self
                .unknown_error(format!("more than {MOST_INSTRUCTIONS} instructions after inlining calls"));
        }
        let mut uses = uses;
        if self.guard != Guard::NONE {
            uses.read.push(Register { bank: Bank::Predicate, index: self.guard.predicate });
        }
        self.instructions.push(Instruction { guard: self.guard, operation, carry: None });
        self.rules.push(self.rule);
        self.uses.push(uses);
        self.places.push((self.line, self.lines.position.source));
        Ok(())
    }

    pub(super) fn label(&mut self) -> u32 {
        self.labels.push(None);
        self.labels.len() as u32 - 1
    }

    pub(super) fn place_label(&mut self, label: u32) {
        self.labels[label as usize] = Some(self.instructions.len() as u32);
    }

    pub(super) fn jump(&mut self, label: u32) -> Result<(), LoadError> {
        self.emit(Operation::Branch { target: label, join: END }, Uses::default())
    }

    /// Decodes the statements of a scope.
    fn block(&mut self, statements: &'a [Statement]) -> Result<(), LoadError> {
        if self.scopes.len() > 100 {
            return self.error("scopes are nested more than 100 deep");
        }
        self.scopes.push(Names::new());
        for statement in statements {
            if let Statement::Label(name) = statement {
                let label = self.label();
                self.declare(name, Symbol::Label(label))?;
            }
        }
        for statement in statements {
            match statement {
                Statement::Label(name) => {
                    if let Symbol::Label(label) = self.find(name)? {
                        self.place_label(label);
                    }
                }
                Statement::Declare(variable) => self.variable(variable)?,
                Statement::Instruction(instruction) => self.instruction(instruction)?,
                Statement::Block(statements) => self.block(statements)?,
                Statement::Location { frame, inlined_at } => self.lines.read(*frame, *inlined_at),
            }
        }
        self.scopes.pop();
        Ok(())
    }

    /// Decodes a declaration in a function's body.
    fn variable(&mut self, variable: &ast::Variable) -> Result<(), LoadError> {
        self.line = variable.line;
        let space = match variable.space {
            ast::Space::Reg => {
                let bits = bits_of(variable.ty);
                let Some(bank) = bank_of_bits(bits).filter(|_| variable.vector <= 1) else {
                    return self.unknown_error(format!(
                        "registers of the type of `{}` are not supported",
                        variable.name
                    ));
                };
                return match variable.registers {
                    Some(count) => {
                        self.declare(&format!("{}<", variable.name), Symbol::Range { bits, count })
                    }
                    None => {
                        let register = self.fresh(bank);
                        self.declare(&variable.name, Symbol::Register { register, bits })
                    }
                };
            }
            ast::Space::Shared if variable.external => return self.declare(&variable.name, Symbol::Dynamic),
            ast::Space::Shared => Space::Shared,
            // Call parameters lie next to the thread's local variables.
            ast::Space::Local | ast::Space::Param => Space::Local,
            _ => return self.error(format!("`{}` must be declared at module scope", variable.name)),
        };
        if !variable.initial.is_empty() {
            return self.error(format!("`{}` cannot have an initial value", variable.name));
        }
        let (align, size) = self.size(variable)?;
        let offset = match space {
            Space::Shared => self.reserve_array(&variable.name, size, align)?,
            _ => self.reserve(space, size, align)?,
        };
        self.declare(&variable.name, Symbol::Place { space, offset })
    }

    fn instruction(&mut self, instruction: &'a ast::Instruction) -> Result<(), LoadError> {
        self.line = instruction.line;
        self.guard = Guard::NONE;
        self.rule = Rule::of(instruction);
        if let Some(guard) = &instruction.guard {
            let register = self.source(&Operand::Name(guard.register.clone()), Bank::Predicate)?;
            self.guard =
                Guard { predicate: register.index, negated: if guard.negated { u32::MAX } else { 0 } };
        }
        match forms::find(instruction) {
            None => self.unknown(instruction),
            Some(Family::Control) => self.control(instruction),
            Some(Family::Memory) => memory::decode(self, instruction),
            Some(Family::Sync) => sync::decode(self, instruction),
            Some(Family::Matrix) => matrix::decode(self, instruction),
            Some(Family::Lanes) if instruction.name == "mov" && is_vector_move(instruction) => {
                self.vector_move(instruction)
            }
            Some(Family::Lanes) if instruction.name == "mov" && reads_clock(instruction) => {
                self.clock(instruction)
            }
            Some(Family::Lanes) if instruction.name == "vabsdiff4" => video::decode(self, instruction),
            Some(Family::Lanes) => self.lanes(instruction),
        }?;
        self.guard = Guard::NONE;
        Ok(())
    }

    /// Returns the device functions being inlined, outermost first, without the kernel. Rust's names are
    /// demangled.
    pub(super) fn callers(&self) -> Vec<String> {
        self.calls.iter().skip(1).map(|name| readable(name).unwrap_or_else(|| name.to_string())).collect()
    }

    fn control(&mut self, instruction: &'a ast::Instruction) -> Result<(), LoadError> {
        match instruction.name.as_str() {
            "bra" => self.branch(instruction),
            "brx" => self.switch(instruction),
            "call" => self.call(instruction),
            "ret" | "exit" => {
                self.expect(instruction, 0)?;
                let uniform = instruction.modifiers.iter().all(|word| word == "uni");
                match (uniform, self.returns.last()) {
                    (false, _) => self.unknown(instruction),
                    (true, Some(&label)) if instruction.name == "ret" => self.jump(label),
                    _ => self.emit(Operation::Exit, Uses::default()),
                }
            }
            "trap" => self.emit(Operation::Trap("trap"), Uses::default()),
            "brkpt" => self.emit(Operation::Trap("brkpt"), Uses::default()),
            "cvta" => self.convert_address(instruction),
            _ => self.unknown(instruction),
        }
    }

    pub(super) fn expect(&self, instruction: &ast::Instruction, operands: usize) -> Result<(), LoadError> {
        if instruction.operands.len() == operands {
            return Ok(());
        }
        let found = instruction.operands.len();
        self.error(format!("`{}` has {operands} operands, not {found}", instruction.name))
    }

    pub(super) fn unknown<T>(&self, instruction: &ast::Instruction) -> Result<T, LoadError> {
        let name =
            [std::slice::from_ref(&instruction.name), instruction.modifiers.as_slice()].concat().join(".");
        self.unknown_error(format!("`{name}` is not a supported instruction"))
    }

    /// Decodes an instruction that works lane by lane.
    fn lanes(&mut self, instruction: &ast::Instruction) -> Result<(), LoadError> {
        if instruction.operands.is_empty() {
            return self.error(format!("`{}` needs operands", instruction.name));
        }
        let mut banks = Vec::new();
        for operand in &instruction.operands {
            banks.push(self.register(operand)?.map(|(register, _)| register.bank));
        }
        let operation = match alu::find(instruction, &banks) {
            Ok(Some(operation)) => operation,
            Ok(None) => return self.unknown(instruction),
            Err(message) => return self.error(message),
        };
        let mut given: Vec<Option<Operand>> = Vec::new();
        for (index, operand) in instruction.operands.iter().enumerate() {
            match operand {
                Operand::Pair(a, b) if index == 0 => {
                    given.extend([Some(Operand::Name(a.clone())), Some(Operand::Name(b.clone()))]);
                }
                // The operation already includes the negation of a predicate.
                Operand::Not(name) => given.push(Some(Operand::Name(name.clone()))),
                operand => given.push(Some(operand.clone())),
            }
        }
        match instruction.name.as_str() {
            // `setp` writes two predicates and combines the result with a third.
            "setp" | "set" => {
                if instruction.name == "setp" && given.len() == instruction.operands.len() {
                    given.insert(1, None);
                }
                if given.len() + 1 == operation.banks.len() {
                    given.push(None);
                }
            }
            // The operation already includes the lookup table.
            "lop3" if given.len() > 4 => {
                given.remove(4);
            }
            "prmt" if given.len() == 3 => given.push(None),
            "add" | "sub" | "mad" | "addc" | "subc" | "madc" if operation.destinations == 2 => {
                given.insert(1, None);
                given.push(None);
            }
            _ => {}
        }
        if given.len() != operation.banks.len() || given.len() > 8 {
            return self.error(format!(
                "`{}` does not have {} operands",
                instruction.name,
                instruction.operands.len()
            ));
        }
        let carries = operation.destinations == 2 && instruction.name != "setp";
        // Without a carry in, the operand is there but not read.
        let takes_carry = matches!(instruction.name.as_str(), "addc" | "subc" | "madc");
        let (mut operands, mut uses) = (Operands::default(), Uses::default());
        for (index, operand) in given.iter().enumerate() {
            let bank = operation.banks[index];
            let register = match operand {
                None if carries => self.carry(),
                None => self.sink(bank),
                Some(operand) if index < operation.destinations => self.target(operand, bank)?,
                Some(operand) => self.source(operand, bank)?,
            };
            operands[index] = register.index;
            if index < operation.destinations {
                uses.written.push(register);
            } else if operand.is_some() || !carries || takes_carry {
                uses.read.push(register);
            }
        }
        self.emit(Operation::Lanes(operation, operands), uses)
    }

    /// Emits a plain move between registers of one bank.
    fn copy(&mut self, to: Register, from: Register) -> Result<(), LoadError> {
        let operation = crate::exec::lanes::convert(to.bank, [from.bank], |[value]| value);
        let operands = [to.index, from.index, 0, 0, 0, 0, 0, 0];
        self.emit(Operation::Lanes(operation, operands), Uses { read: vec![from], written: vec![to] })
    }

    /// Decodes `mov.b32 %r1, {%rs1, %rs2}` and its inverse.
    fn vector_move(&mut self, instruction: &ast::Instruction) -> Result<(), LoadError> {
        self.expect(instruction, 2)?;
        let ty = match instruction.modifiers.as_slice() {
            [word] => alu::parse_type(word),
            _ => None,
        };
        let Some((ty, whole)) =
            ty.filter(|ty| matches!(ty, Type::B32 | Type::B64)).and_then(|ty| Some((ty, bank_of(ty)?)))
        else {
            return self.unknown(instruction);
        };
        let (parts, packs) = match (&instruction.operands[0], &instruction.operands[1]) {
            (Operand::Vector(parts), _) => (parts, false),
            (_, Operand::Vector(parts)) => (parts, true),
            _ => return self.unknown(instruction),
        };
        let bits = bits_of(ty) / parts.len().max(1) as u32;
        let Some(part) = bank_of_bits(bits).filter(|_| matches!(parts.len(), 2 | 4)) else {
            return self.error(format!("{} bits cannot be split into {} parts", bits_of(ty), parts.len()));
        };
        let (operation, order): (_, Vec<&Operand>) = if packs {
            let order = std::iter::once(&instruction.operands[0]).chain(parts).collect();
            (crate::exec::lanes::pack(whole, part, parts.len(), bits), order)
        } else {
            let order = parts.iter().chain(std::iter::once(&instruction.operands[1])).collect();
            (crate::exec::lanes::unpack(whole, part, parts.len(), bits), order)
        };
        let (mut operands, mut uses) = (Operands::default(), Uses::default());
        for (index, operand) in order.into_iter().enumerate() {
            let bank = operation.banks[index];
            let register = if index < operation.destinations {
                let register = self.target(operand, bank)?;
                uses.written.push(register);
                register
            } else {
                let register = self.source(operand, bank)?;
                uses.read.push(register);
                register
            };
            operands[index] = register.index;
        }
        self.emit(Operation::Lanes(operation, operands), uses)
    }

    fn clock(&mut self, instruction: &ast::Instruction) -> Result<(), LoadError> {
        self.expect(instruction, 2)?;
        match self.register(&instruction.operands[0])? {
            Some((register, 32 | 64)) => {
                self.emit(Operation::Clock(register), Uses { read: vec![], written: vec![register] })
            }
            _ => self.error("a clock needs a register of 32 or 64 bits"),
        }
    }

    /// Decodes `cvta`: converts between a memory's own addresses and generic ones.
    fn convert_address(&mut self, instruction: &ast::Instruction) -> Result<(), LoadError> {
        use super::code::{PARAM_WINDOW, SHARED_WINDOW};
        self.expect(instruction, 2)?;
        let mut words = alu::Words::new(instruction);
        let to = words.take("to");
        let space =
            words.take_any(&["global", "const", "shared::cta", "shared", "local", "param::entry", "param"]);
        if words.ty() != Ok(Type::U64) || words.finish().is_err() {
            return self.unknown(instruction);
        }
        let window = match space {
            Some("global" | "const") => 0,
            Some("shared::cta" | "shared") => SHARED_WINDOW,
            Some("local") => return self.convert_local(instruction, to),
            Some(_) => PARAM_WINDOW,
            None => return self.unknown(instruction),
        };
        let target = self.target(&instruction.operands[0], Bank::Double)?;
        let source = self.source(&instruction.operands[1], Bank::Double)?;
        let operation = crate::exec::lanes::unary(move |a: u64| match to {
            true => a.wrapping_sub(window),
            // The parameter of a called function already has a local address.
            false if a >= super::code::WINDOW && window == PARAM_WINDOW => a,
            false => a.wrapping_add(window),
        });
        let operands = [target.index, source.index, 0, 0, 0, 0, 0, 0];
        self.emit(Operation::Lanes(operation, operands), Uses { read: vec![source], written: vec![target] })
    }

    /// Decodes `cvta.local`: each thread has its own window.
    fn convert_local(&mut self, instruction: &ast::Instruction, to: bool) -> Result<(), LoadError> {
        let target = self.target(&instruction.operands[0], Bank::Double)?;
        let source = self.source(&instruction.operands[1], Bank::Double)?;
        let window = self.constant(Bank::Double, Constant::Special(Special::LocalWindow));
        let operation = crate::exec::lanes::binary(move |a: u64, window: u64| match to {
            true => a.wrapping_sub(window),
            false => a.wrapping_add(window),
        });
        let operands = [target.index, source.index, window.index, 0, 0, 0, 0, 0];
        let uses = Uses { read: vec![source, window], written: vec![target] };
        self.emit(Operation::Lanes(operation, operands), uses)
    }

    // Control flow.

    fn target_label(&mut self, operand: Option<&Operand>) -> Result<u32, LoadError> {
        let Some(Operand::Name(name)) = operand else { return self.error("a branch needs a label") };
        match self.find(name)? {
            Symbol::Label(label) => Ok(label),
            _ => self.error(format!("`{name}` is not a label")),
        }
    }

    fn branch(&mut self, instruction: &ast::Instruction) -> Result<(), LoadError> {
        if instruction.modifiers.iter().any(|word| word != "uni") {
            return self.unknown(instruction);
        }
        self.expect(instruction, 1)?;
        let label = self.target_label(instruction.operands.first())?;
        self.jump(label)
    }

    fn switch(&mut self, instruction: &ast::Instruction) -> Result<(), LoadError> {
        self.expect(instruction, 2)?;
        if instruction.modifiers.iter().any(|word| word != "idx" && word != "uni") {
            return self.unknown(instruction);
        }
        let index = self.source(&instruction.operands[0], Bank::Word)?;
        let names = match &instruction.operands[1] {
            Operand::Name(name) => match self.branch_targets.get(name) {
                Some(names) => names.clone(),
                None => return self.error(format!("`{name}` is not a list of branch targets")),
            },
            Operand::Vector(operands) | Operand::Arguments(operands) => operands
                .iter()
                .filter_map(|operand| match operand {
                    Operand::Name(name) => Some(name.clone()),
                    _ => None,
                })
                .collect(),
            _ => return self.error("`brx.idx` needs a list of branch targets"),
        };
        let mut targets = Vec::new();
        for name in names {
            targets.push(self.target_label(Some(&Operand::Name(name)))?);
        }
        self.emit(
            Operation::Switch { index, targets, join: END },
            Uses { read: vec![index], written: vec![] },
        )
    }

    fn call(&mut self, instruction: &'a ast::Instruction) -> Result<(), LoadError> {
        if instruction.modifiers.iter().any(|word| word != "uni") {
            return self.unknown(instruction);
        }
        let place = instruction.operands.iter().position(|operand| matches!(operand, Operand::Name(_)));
        let Some((place, Operand::Name(name))) = place.map(|place| (place, &instruction.operands[place]))
        else {
            return self.error("a call needs a function's name");
        };
        let list = |operand: Option<&'a Operand>| match operand {
            Some(Operand::Arguments(list)) => list.as_slice(),
            _ => &[],
        };
        let returned = if place > 0 { list(instruction.operands.first()) } else { &[] };
        let given = list(instruction.operands.get(place + 1));
        let function = self.context.functions.get(name.as_str()).copied();
        if function.is_none() && !matches!(self.register(&instruction.operands[place]), Ok(Some(_))) {
            return self.error(format!("`{name}` is neither a function nor a register"));
        }
        // The guard applies to the whole call.
        let guard = std::mem::replace(&mut self.guard, Guard::NONE);
        let after = self.label();
        if guard != Guard::NONE {
            self.guard = Guard { predicate: guard.predicate, negated: !guard.negated };
            self.jump(after)?;
            self.guard = Guard::NONE;
        }
        match function {
            Some(function) => match self.why_not(function) {
                Some(why_not) => return self.unknown_error(why_not),
                None => self.inline(function, returned, given)?,
            },
            None => call::indirect(self, instruction, (place, returned, given))?,
        }
        self.place_label(after);
        self.emit(Operation::Nothing, Uses::default())
    }

    /// Why a function cannot be called here.
    pub(super) fn why_not(&self, function: &ast::Function) -> Option<String> {
        let name = &function.name;
        if function.body.is_none() && !system::has(function) {
            return Some(format!("the function `{name}` has no body and is not part of the device runtime"));
        }
        if function.entry {
            return Some(format!("`{name}` is a kernel; calling kernels is not supported"));
        }
        if self.calls.contains(&name.as_str()) {
            return Some(format!("`{name}` calls itself; recursion is not supported"));
        }
        (self.calls.len() >= 64).then(|| "calls are nested more than 64 deep".to_owned())
    }

    /// Inlines a call: the function's parameters become the caller's variables.
    pub(super) fn inline(
        &mut self,
        function: &'a ast::Function,
        returned: &'a [Operand],
        given: &'a [Operand],
    ) -> Result<(), LoadError> {
        let name = &function.name;
        if given.len() != function.params.len() || returned.len() != function.returns.len() {
            let found = format!("{} parameters and {} results", given.len(), returned.len());
            let (params, returns) = (function.params.len(), function.returns.len());
            return self.error(format!("a call with {found}; `{name}` has {params} and {returns}"));
        }
        let after = self.label();
        let (mut arguments, mut results) = (Vec::new(), Vec::new());
        for (formal, actual) in function.params.iter().zip(given) {
            arguments.push((formal, self.argument(formal, actual)?));
        }
        for (formal, actual) in function.returns.iter().zip(returned) {
            results.push((formal, self.result(formal, actual)?));
        }
        match &function.body {
            Some(body) => {
                let symbols = arguments.into_iter().chain(results);
                let names = symbols.map(|(formal, symbol)| (formal.name.clone(), symbol)).collect();
                let (line, position) = (self.line, self.lines.position);
                // The function sees only its own names.
                let scopes = std::mem::replace(&mut self.scopes, vec![names]);
                let lists = std::mem::replace(&mut self.branch_targets, Rc::new(branch_targets(body)));
                let callees = std::mem::replace(&mut self.callees, Rc::new(call::callees(body)));
                self.returns.push(after);
                self.calls.push(name);
                self.block(body)?;
                self.calls.pop();
                self.returns.pop();
                (self.scopes, self.branch_targets, self.callees) = (scopes, lists, callees);
                (self.line, self.lines.position) = (line, position);
            }
            None => system::call(self, name, &arguments, &results)?,
        }
        self.place_label(after);
        Ok(())
    }

    /// The symbol that a parameter's name stands for in the called function.
    fn argument(&mut self, formal: &ast::Variable, actual: &Operand) -> Result<Symbol, LoadError> {
        let place = match actual {
            Operand::Name(name) if special(name).is_none() => match self.find(name)? {
                Symbol::Place { space: Space::Local, offset } => Some(offset),
                _ => None,
            },
            _ => None,
        };
        let bits = bits_of(formal.ty);
        let Some(bank) = bank_of_bits(bits) else {
            return self.error(format!("the type of parameter `{}` is not supported", formal.name));
        };
        match (formal.space, place) {
            (ast::Space::Reg, None) => {
                let register = self.fresh(bank);
                let source = self.source(actual, bank)?;
                self.copy(register, source)?;
                Ok(Symbol::Register { register, bits })
            }
            (ast::Space::Reg, Some(offset)) => {
                let register = self.fresh(bank);
                self.load_local(register, offset, bits / 8)?;
                Ok(Symbol::Register { register, bits })
            }
            (_, Some(offset)) => Ok(Symbol::Place { space: Space::Local, offset }),
            (_, None) => {
                let source = self.source(actual, bank)?;
                let (align, size) = self.size(formal)?;
                let offset = self.reserve(Space::Local, size, align)?;
                self.store_local(source, offset, bits / 8)?;
                Ok(Symbol::Place { space: Space::Local, offset })
            }
        }
    }

    /// Loads a call's parameter of `size` bytes.
    pub(super) fn load_local(&mut self, target: Register, offset: u64, size: u32) -> Result<(), LoadError> {
        let load = Load {
            address: Address { space: Space::Local, base: None, offset },
            order: Order::Weak,
            scope: Scope::Device,
            size,
            signed: false,
            constant: false,
            reads_flag: false,
            starts_swap: false,
            targets: vec![target],
        };
        self.emit(Operation::Load(Box::new(load)), Uses { read: vec![], written: vec![target] })
    }

    /// Stores a call's parameter of `size` bytes.
    pub(super) fn store_local(&mut self, source: Register, offset: u64, size: u32) -> Result<(), LoadError> {
        let store = Store {
            address: Address { space: Space::Local, base: None, offset },
            order: Order::Weak,
            scope: Scope::Device,
            size,
            sources: vec![source],
        };
        self.emit(Operation::Store(Box::new(store)), Uses { read: vec![source], written: vec![] })
    }

    /// The symbol that a result's name stands for in the called function.
    fn result(&mut self, formal: &ast::Variable, actual: &Operand) -> Result<Symbol, LoadError> {
        let bits = bits_of(formal.ty);
        if formal.space == ast::Space::Reg {
            let Some(bank) = bank_of_bits(bits) else {
                return self.error(format!("the type of result `{}` is not supported", formal.name));
            };
            return Ok(Symbol::Register { register: self.target(actual, bank)?, bits });
        }
        match actual {
            Operand::Name(name) => match self.find(name)? {
                symbol @ Symbol::Place { space: Space::Local, .. } => Ok(symbol),
                _ => self.error(format!("`{name}` takes a result but is not a `.param` variable")),
            },
            _ => self.error("a result must go to a variable"),
        }
    }

    /// Replaces labels by instruction indices.
    fn resolve(&mut self) -> Result<(), LoadError> {
        let labels = &self.labels;
        let mut missing = None;
        let mut place = |label: &mut u32, at: usize| match labels.get(*label as usize) {
            Some(Some(target)) => *label = *target,
            _ => missing = Some(at),
        };
        for (at, instruction) in self.instructions.iter_mut().enumerate() {
            match &mut instruction.operation {
                Operation::Branch { target, .. } => place(target, at),
                Operation::Switch { targets, .. } => targets.iter_mut().for_each(|target| place(target, at)),
                _ => {}
            }
        }
        match missing {
            Some(at) => Err(LoadError {
                line: self.places[at].0,
                message: "a branch to an undefined label".to_owned(),
                unknown: false,
            }),
            None => Ok(()),
        }
    }
}

/// Decodes a kernel as far as it is supported. Also decodes functions that nothing calls, to find their
/// errors.
pub(super) fn kernel<'a>(context: &'a Context<'a>, function: &'a ast::Function) -> Result<Kernel, LoadError> {
    let mut decoder = Decoder::new(context);
    decoder.line = function.line;
    decoder.lines.begin(function);
    let mut params = Vec::new();
    let mut param_bytes = 0u64;
    for param in function.params.iter().chain(&function.returns) {
        decoder.line = param.line;
        if param.space == ast::Space::Reg {
            let Some(bank) = bank_of_bits(bits_of(param.ty)) else {
                let name = &param.name;
                return decoder.error(format!("the type of parameter `{name}` is not supported"));
            };
            let symbol = Symbol::Register { register: decoder.fresh(bank), bits: bits_of(param.ty) };
            decoder.declare(&param.name, symbol)?;
            continue;
        }
        let (align, size) = decoder.size(param)?;
        let offset = param_bytes.next_multiple_of(align);
        param_bytes = offset + size;
        params.push(Param { offset: offset as usize, size: size as usize, align: align as usize });
        let space = if function.entry { Space::Param } else { Space::Local };
        if !function.entry {
            decoder.local_bytes = param_bytes;
        }
        decoder.declare(&param.name, Symbol::Place { space, offset })?;
    }
    if param_bytes > 32764 {
        return decoder.error(format!("{param_bytes} bytes of parameters; a kernel has at most 32764"));
    }
    let max_threads = function.max_threads.map_or(1024, |[x, y, z]| {
        let threads = u64::from(x.max(1)) * u64::from(y.max(1)) * u64::from(z.max(1));
        threads.min(1024) as u32
    });
    let mut kernel = Kernel {
        name: function.name.clone(),
        params,
        param_bytes: param_bytes as usize,
        shared_bytes: 0,
        local_bytes: 0,
        registers: 0,
        max_threads,
        required_threads: function.max_threads.filter(|_| function.all_threads),
        unknown: None,
        code: Code::default(),
    };
    match body(decoder, function, &mut kernel) {
        Err(error) if error.unknown => kernel.unknown = Some(error),
        other => other?,
    }
    Ok(kernel)
}

/// Decodes a kernel's body.
fn body<'a>(
    mut decoder: Decoder<'a>,
    function: &'a ast::Function,
    kernel: &mut Kernel,
) -> Result<(), LoadError> {
    let body = function.body.as_deref().unwrap_or(&[]);
    decoder.branch_targets = Rc::new(branch_targets(body));
    decoder.callees = Rc::new(call::callees(body));
    decoder.calls.push(&function.name);
    decoder.block(body)?;
    // A kernel may end without `ret`, and a label may stand at its end.
    decoder.emit(Operation::Exit, Uses::default())?;
    decoder.resolve()?;
    flow::set_joins(&mut decoder.instructions);
    flags::mark(&mut decoder.instructions, &decoder.uses);
    swaps::mark(&mut decoder.instructions, &decoder.uses);

    let constants: Vec<(Register, Constant)> =
        decoder.constants.drain().map(|((_, constant), register)| (register, constant)).collect();
    let fixed: std::collections::HashSet<Register> =
        constants.iter().map(|(register, _)| *register).chain(decoder.sinks.into_iter().flatten()).collect();
    let liveness = flow::liveness(&decoder.instructions, &decoder.uses, |register| fixed.contains(&register));
    let Some(liveness) = liveness else {
        return decoder.error(format!("`{}` has too many registers and branches", function.name));
    };
    let Counts { half, word, double, .. } = decoder.counts;
    let bytes = decoder.local_bytes + 2 * u64::from(half) + 4 * u64::from(word) + 8 * u64::from(double);
    if bytes > THREAD_BYTES {
        let name = &function.name;
        let text = format!(
            "`{name}` needs {bytes} bytes of registers and local memory; a thread has {THREAD_BYTES}"
        );
        return decoder.error(text);
    }
    let has_local = decoder.local_bytes > 0;
    let (uses, rules, early) = (decoder.uses, decoder.rules, liveness.early.clone());
    let sources = undefined::Sources { uses, rules, early, fixed, has_local };
    let (tracked, carries) = undefined::find(&decoder.instructions, &sources, false);
    for (instruction, carry) in decoder.instructions.iter_mut().zip(carries) {
        instruction.carry = carry;
    }
    let arrays = Arrays::find(decoder.arrays, &constants, &decoder.instructions, &sources.uses);
    let wide = undefined::Wide::new(&decoder.instructions, sources);
    kernel.shared_bytes = decoder.shared_bytes as usize;
    kernel.local_bytes = decoder.local_bytes as usize;
    kernel.registers = liveness.pressure;
    kernel.code = Code {
        instructions: decoder.instructions,
        places: decoder.places,
        registers: decoder.counts,
        constants,
        cleared: liveness.early,
        tracked,
        wide,
        arrays,
    };
    Ok(())
}

/// The lists `name: .branchtargets a, b;` of a body, by name.
fn branch_targets(statements: &[Statement]) -> HashMap<String, Vec<String>> {
    let mut lists = HashMap::new();
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Block(inner) => lists.extend(branch_targets(inner)),
            Statement::Instruction(instruction) if instruction.name.ends_with("branchtargets") => {
                if let Some(Statement::Label(name)) = index.checked_sub(1).map(|before| &statements[before]) {
                    let names = instruction.operands.iter().filter_map(|operand| match operand {
                        Operand::Name(name) => Some(name.clone()),
                        _ => None,
                    });
                    lists.insert(name.clone(), names.collect());
                }
            }
            _ => {}
        }
    }
    lists
}

/// A variable's bytes, or `None` if they overflow a `u64`.
pub(super) fn variable_size(variable: &ast::Variable) -> Option<u64> {
    let element = u64::from(bits_of(variable.ty).div_ceil(8)) * u64::from(variable.vector.max(1));
    element.checked_mul(variable.len.unwrap_or(1))
}

pub(super) fn bank_of_bits(bits: u32) -> Option<Bank> {
    match bits {
        1 => Some(Bank::Predicate),
        8 | 16 => Some(Bank::Half),
        32 => Some(Bank::Word),
        64 => Some(Bank::Double),
        _ => None,
    }
}

fn is_vector_move(instruction: &ast::Instruction) -> bool {
    instruction.operands.iter().any(|operand| matches!(operand, Operand::Vector(_)))
}

fn reads_clock(instruction: &ast::Instruction) -> bool {
    matches!(instruction.operands.get(1), Some(Operand::Name(name)) if is_clock(name))
}

fn is_clock(name: &str) -> bool {
    matches!(
        name,
        "%clock" | "%clock64" | "%clock_hi" | "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi"
    )
}

/// `%envreg0` to `%envreg31`.
fn is_environment(name: &str) -> bool {
    let number = name.strip_prefix("%envreg").and_then(|number| number.parse::<u8>().ok());
    number.is_some_and(|number| number < 32)
}

/// The special register of this name.
fn special(name: &str) -> Option<Special> {
    use Special::*;
    let axis = |axis: &str| match axis {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((name, part)) = name.split_once('.') {
        let axis = axis(part)?;
        return Some(match name {
            "%tid" => Tid(axis),
            "%ntid" => Ntid(axis),
            "%ctaid" => Ctaid(axis),
            "%nctaid" => Nctaid(axis),
            // Each cluster is one block.
            "%clusterid" => Ctaid(axis),
            "%nclusterid" => Nctaid(axis),
            "%cluster_ctaid" => Zero,
            "%cluster_nctaid" => One,
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Lane,
        "%warpid" => Warp,
        "%nwarpid" => Warps,
        "%lanemask_eq" => LanemaskEq,
        "%lanemask_le" => LanemaskLe,
        "%lanemask_lt" => LanemaskLt,
        "%lanemask_ge" => LanemaskGe,
        "%lanemask_gt" => LanemaskGt,
        "%dynamic_smem_size" => DynamicShared,
        "%total_smem_size" => TotalShared,
        "%smid" => Smid,
        "%nsmid" => Nsmid,
        "%gridid" => Gridid,
        "%cluster_nctarank" => One,
        "%cluster_ctarank"
        | "%reserved_smem_offset_begin"
        | "%reserved_smem_offset_end"
        | "%reserved_smem_offset_cap"
        | "%reserved_smem_offset_0" => Zero,
        "%reserved_smem_offset_1" => ReservedShared,
        // Where cooperative groups look for the grid's workspace.
        "%envreg1" => WorkspaceHigh,
        "%envreg2" => Workspace,
        name if is_environment(name) => Zero,
        _ => return None,
    })
}

/// Formats an operand for a message.
fn shown(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => format!("`{name}`"),
        Operand::Integer(bits) => format!("`{}`", *bits as i64),
        operand => format!("{operand:?}"),
    }
}
