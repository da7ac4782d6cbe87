//! PTX as it is written: names unresolved, modifiers as words. (PTX ISA, "Syntax".)

/// One module.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// `.version 6.0` is `(6, 0)`.
    pub version: (u32, u32),
    /// `.target sm_70, debug` is `["sm_70", "debug"]`.
    pub target: Vec<String>,
    /// Variables at module scope: `.global`, `.const`, `.shared`.
    pub variables: Vec<Variable>,
    /// Kernels and device functions, declarations included.
    pub functions: Vec<Function>,
    /// `.file` directives: index and path.
    pub files: Vec<(u32, String)>,
}

/// A variable, a parameter, or a range of registers.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Where it lies.
    pub space: Space,
    /// The type of one element of a vector or array.
    pub ty: Type,
    /// Elements of a vector type: 1, 2 or 4.
    pub vector: u32,
    /// `.align`, or the type's own.
    pub align: u32,
    /// As written, without the `<n>` of a range.
    pub name: String,
    /// `None` for a scalar, the number of elements for an array (all dimensions multiplied), 0 for `[]`.
    pub len: Option<u64>,
    /// `%r<117>` declares `%r0` to `%r116`: 117. `None` for all else.
    pub registers: Option<u32>,
    /// One value an element of a vector; those left out are zero.
    pub initial: Vec<Initial>,
    /// `.extern`.
    pub external: bool,
    /// Where its directive begins, from 1.
    pub line: u32,
}

/// One value of an initialiser; nested braces are flattened.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial {
    /// An integer, or the bits of a float of the variable's type.
    Bits(u64),
    /// The address of a variable, plus an offset; `generic(name)` has `generic` set.
    Address {
        /// The variable or function.
        name: String,
        /// In bytes.
        offset: i64,
        /// Whether it is an address in generic space.
        generic: bool,
    },
}

/// A state space (PTX ISA, "State Spaces").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // PTX's own names
pub enum Space {
    Reg,
    Generic,
    Global,
    Shared,
    Local,
    Const,
    Param,
}

/// A type (PTX ISA, "Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // PTX's own names
pub enum Type {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    U16x2,
    S16x2,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

/// A kernel (`.entry`) or a device function (`.func`).
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// As written, mangled.
    pub name: String,
    /// `.entry`, not `.func`.
    pub entry: bool,
    /// What a device function returns: none or one.
    pub returns: Vec<Variable>,
    /// In order.
    pub params: Vec<Variable>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// `.maxntid` and `.reqntid`: the most threads a block.
    pub max_threads: Option<[u32; 3]>,
    /// Whether it was `.reqntid`: a block has just so many.
    pub all_threads: bool,
    /// Where `.entry` or `.func` stands, from 1.
    pub line: u32,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `$L__BB0_1:`.
    Label(String),
    /// `.reg .b32 %r<5>;`; a list is as many statements.
    Declare(Variable),
    /// `ret;`.
    Instruction(Instruction),
    /// `{ … }`: a scope for declarations and labels.
    Block(Vec<Statement>),
    /// `.loc`: the source of the instructions that follow.
    Location {
        /// The index of a `.file`.
        file: u32,
        /// From 1.
        line: u32,
        /// From 1.
        column: u32,
    },
}

/// `@!%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+16];`
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Where it begins, from 1.
    pub line: u32,
    /// `@%p1`.
    pub guard: Option<Guard>,
    /// The word before the first dot: `ld`. With their dot: `.branchtargets` and `.calltargets`, whose
    /// operands are the targets, and `.callprototype`, which has none here. The label before it is its name.
    pub name: String,
    /// The words after it: `global`, `v4`, `b32`. `::` stays inside a word: `shared::cta`.
    pub modifiers: Vec<String>,
    /// In order.
    pub operands: Vec<Operand>,
}

/// The predicate of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// `%p1`.
    pub register: String,
    /// `@!%p1`.
    pub negated: bool,
}

/// What an instruction works on.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a special register with its dot (`%tid.x`), a variable, a label, a function, `_`.
    Name(String),
    /// `!%p1`.
    Not(String),
    /// `-5`, `0x10`, `7U`: the two's complement bits.
    Integer(u64),
    /// `0f3F800000`: the bits.
    F32(u32),
    /// `0d3FF0000000000000`, `1.5`: the bits.
    F64(u64),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `[base+offset]`; no base for `[16]`.
    Address {
        /// A register, a variable or a parameter.
        base: Option<String>,
        /// In bytes.
        offset: i64,
    },
    /// `[a, {x, y}]`: an element of a texture, a surface or a tensor; what is in the brackets, in order.
    Element(Vec<Operand>),
    /// `%p1|%p2`: two destinations.
    Pair(String, String),
    /// `(a, b)`, of a call.
    Arguments(Vec<Operand>),
    /// `name+4`: the address of a variable plus an offset, as a value.
    Sum(String, i64),
}
