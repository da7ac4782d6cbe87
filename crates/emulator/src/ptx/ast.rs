//! The syntax tree of PTX: names unresolved, modifiers as words (PTX ISA, "Syntax").

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
    /// Its state space.
    pub space: Space,
    /// The type of one element of a vector or array.
    pub ty: Type,
    /// Elements of a vector type: 1, 2 or 4.
    pub vector: u32,
    /// `.align`, or the natural alignment of the type.
    pub align: u32,
    /// As written, without the `<n>` of a range.
    pub name: String,
    /// `None` for a scalar, the number of elements for an array (all dimensions multiplied), 0 for `[]`.
    pub len: Option<u64>,
    /// 117 for `%r<117>`, which declares `%r0` to `%r116`; `None` if it is not a range.
    pub registers: Option<u32>,
    /// One value per vector element; omitted values are zero.
    pub initial: Vec<Initial>,
    /// `.extern`.
    pub external: bool,
    /// The line where its directive begins, from 1.
    pub line: u32,
}

/// One value of an initialiser; nested braces are flattened.
#[derive(Clone, Debug, PartialEq)]
pub enum Initial {
    /// An integer, or the bits of a float of the variable's type.
    Bits(u64),
    /// The address of a variable, plus an offset.
    Address {
        /// The variable or function.
        name: String,
        /// In bytes.
        offset: i64,
        /// Whether it is a generic address: `generic(name)`.
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
    /// The return parameter of a device function: none or one.
    pub returns: Vec<Variable>,
    /// In order.
    pub params: Vec<Variable>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// `.maxntid` or `.reqntid`: the most threads per block.
    pub max_threads: Option<[u32; 3]>,
    /// Whether `max_threads` is a `.reqntid`: a block has exactly that many threads.
    pub all_threads: bool,
    /// The line of `.entry` or `.func`, from 1.
    pub line: u32,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `$L__BB0_1:`.
    Label(String),
    /// `.reg .b32 %r<5>;`, one statement per declared name.
    Declare(Variable),
    /// `ret;`.
    Instruction(Instruction),
    /// `{ … }`: a scope for declarations and labels.
    Block(Vec<Statement>),
    /// `.loc`: the source position of the instructions that follow.
    Location {
        /// The position itself.
        frame: Frame,
        /// The position of the call, if a function that is called there was inlined.
        inlined_at: Option<Frame>,
    },
}

/// A position in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The index of a `.file`.
    pub file: u32,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

/// `@!%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+16];`
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The line where it begins, from 1.
    pub line: u32,
    /// `@%p1`.
    pub guard: Option<Guard>,
    /// The word before the first dot, such as `ld`.
    ///
    /// Three directives also count as instructions, named with their dot: `.branchtargets` and
    /// `.calltargets`, whose operands are the targets, and `.callprototype`, whose operands are the sizes of
    /// its results and of its parameters, in bytes. The label before such a directive is its name.
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

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a special register with its dot (`%tid.x`), a variable, a label, a function, `_`.
    Name(String),
    /// `!%p1`.
    Not(String),
    /// The two's complement bits of `-5`, `0x10`, `7U`.
    Integer(u64),
    /// The bits of `0f3F800000`.
    F32(u32),
    /// The bits of `0d3FF0000000000000`, `1.5`.
    F64(u64),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `[base+offset]`, `[16]`.
    Address {
        /// A register, a variable or a parameter; `None` for `[16]`.
        base: Option<String>,
        /// In bytes.
        offset: i64,
    },
    /// `[a, {x, y}]`, an element of a texture, a surface or a tensor: the contents of the brackets, in order.
    Element(Vec<Operand>),
    /// `%p1|%p2`: two destinations.
    Pair(String, String),
    /// `(a, b)`: the arguments or results of a call.
    Arguments(Vec<Operand>),
    /// `name+4`: the address of a variable plus an offset, used as a value.
    Sum(String, i64),
}
