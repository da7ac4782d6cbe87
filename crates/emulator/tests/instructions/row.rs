//! A row of the table: one instruction, what it works on, and what it must give.

use crate::instructions::value::{Operand, Results, Value};

/// One instruction, in a kernel of its own.
pub struct Row {
    /// PTX that reads the registers `%a`, `%b`, `%c` and `%d` and writes `%x` and `%y`, as many as there are `sources`
    /// and `results`. It may use `%global`, `%shared` and `%local` too: 64-bit addresses of 32 bytes of each memory that
    /// are the thread's own.
    pub text: String,
    pub sources: Vec<Operand>,
    pub results: Vec<Operand>,
    pub expected: Expected,
}

/// A thread's results.
type OfThread = dyn Fn(&Thread) -> Vec<u64> + Sync;
/// A number's result and its error, `None` where PTX promises nothing.
pub type OfNumbers = dyn Fn(&[f64]) -> Option<Near> + Sync;

/// What an instruction must give.
pub enum Expected {
    /// These bits.
    Bits(Box<OfThread>),
    /// A number near this one: PTX leaves the rest to the machine.
    Near(Box<OfNumbers>),
    /// What the machine has; two machines need not agree.
    Any,
}

/// A real number, and the greatest error that a result may have.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    exact: f64,
    error: f64,
}

impl Near {
    /// With an error in proportion to the number, and another that is not.
    pub fn new(exact: f64, relative: f64, absolute: f64) -> Near {
        let error = if exact.is_finite() { relative * exact.abs() } else { 0.0 };
        Near { exact, error: error + absolute }
    }

    /// Whether this result of a type is within the error. A number that the type does not reach is an infinity.
    pub fn allows(&self, result: f64, greatest: f64) -> bool {
        match () {
            () if self.exact.is_nan() => result.is_nan(),
            () if result.is_infinite() => {
                result * self.exact > 0.0 && self.exact.abs() + self.error >= greatest
            }
            () => (result - self.exact).abs() <= self.error,
        }
    }
}

/// One thread of a launch.
pub struct Thread<'a> {
    /// Its place in the launch: x fastest, then y, then z, then the block.
    pub index: usize,
    /// All threads of the launch.
    pub threads: usize,
    /// The sources of the block's threads.
    pub block: &'a [[u64; 4]],
}

impl<'a> Thread<'a> {
    /// Its lane of the warp.
    pub fn lane(&self) -> usize {
        self.index % 32
    }

    /// Its own sources.
    pub fn sources(&self) -> &'a [u64; 4] {
        &self.block[self.index % self.block.len()]
    }

    /// The sources of the warp's threads.
    pub fn warp(&self) -> &'a [[u64; 4]] {
        let first = self.index % self.block.len() / 32 * 32;
        &self.block[first..first + 32]
    }
}

/// An instruction alone, such as `add.u32`: its operands are those of the function that gives its results.
pub fn row<S>(instruction: impl AsRef<str>, f: impl Reference<S>) -> Row {
    let results = ["%x", "%y"][..f.results().len()].join("|");
    let operands = [results.as_str()].into_iter().chain(["%a", "%b", "%c", "%d"]).take(1 + f.sources().len());
    script(format!("{} {};", instruction.as_ref(), operands.collect::<Vec<_>>().join(", ")), f)
}

/// As [`row`], of a text that names its operands itself and may have several instructions.
pub fn script<S>(text: impl Into<String>, f: impl Reference<S>) -> Row {
    Row {
        text: text.into(),
        sources: f.sources(),
        results: f.results(),
        expected: Expected::Bits(Box::new(move |thread| f.run(thread.sources()))),
    }
}

/// As [`script`], of what threads do together or know of the launch; the closure computes a thread's results.
pub fn of_thread<S>(
    text: impl Into<String>,
    types: impl Reference<S>,
    f: impl Fn(&Thread) -> Vec<u64> + Sync + 'static,
) -> Row {
    Row { expected: Expected::Bits(Box::new(f)), ..script(text, types) }
}

/// As [`script`], where two machines need not agree.
pub fn of_machine<S>(text: impl Into<String>, types: impl Reference<S>) -> Row {
    Row { expected: Expected::Any, ..script(text, types) }
}

/// An instruction of numbers of one type whose result has an error; the function takes the numbers' exact values, of each
/// of two to a register. `None` where PTX promises nothing.
pub fn near<V: Value>(
    instruction: impl AsRef<str>,
    sources: usize,
    f: impl Fn(&[f64]) -> Option<Near> + Sync + 'static,
) -> Row {
    let operands = ["%x", "%a", "%b"][..=sources].join(", ");
    Row {
        text: format!("{} {operands};", instruction.as_ref()),
        sources: vec![V::OPERAND; sources],
        results: vec![V::OPERAND],
        expected: Expected::Near(Box::new(f)),
    }
}

/// A function of registers' values that an instruction must equal.
pub trait Reference<S>: Sync + 'static {
    fn sources(&self) -> Vec<Operand>;
    fn results(&self) -> Vec<Operand>;
    fn run(&self, sources: &[u64]) -> Vec<u64>;
}

macro_rules! references {
    ($(($($source:ident $place:literal),*),)*) => {$(
        impl<F, R, $($source),*> Reference<($($source,)*)> for F
        where
            F: Fn($($source),*) -> R + Sync + 'static,
            R: Results,
            $($source: Value,)*
        {
            fn sources(&self) -> Vec<Operand> {
                vec![$($source::OPERAND),*]
            }
            fn results(&self) -> Vec<Operand> {
                R::operands()
            }
            fn run(&self, _sources: &[u64]) -> Vec<u64> {
                self($($source::from_register(_sources[$place])),*).bits()
            }
        }
    )*};
}

references! { (), (A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3), }
