//! A row of the table: one instruction, its operand types and its expected results.

use crate::instructions::value::{Operand, Results, Value};

/// One instruction, in a kernel of its own.
pub struct Row {
    /// PTX that reads the registers `%a`, `%b`, `%c` and `%d` and writes `%x` and `%y`.
    ///
    /// It uses as many of them as there are `sources` and `results`. It may also use `%global`, `%shared` and
    /// `%local`: 64-bit addresses of 32 bytes per thread in each memory.
    pub text: String,
    pub sources: Vec<Operand>,
    pub results: Vec<Operand>,
    pub expected: Expected,
}

/// A thread's results.
type OfThread = dyn Fn(&Thread) -> Vec<u64> + Sync;
/// The exact result and the allowed error for some numbers; `None` if PTX guarantees nothing.
pub type OfNumbers = dyn Fn(&[f64]) -> Option<Near> + Sync;

/// The expected results of an instruction.
pub enum Expected {
    /// These bits.
    Bits(Box<OfThread>),
    /// A number near this one: PTX allows an error.
    Near(Box<OfNumbers>),
    /// Any result: it depends on the machine.
    Any,
}

/// A real number, and the greatest error of a result.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    exact: f64,
    error: f64,
}

impl Near {
    /// Allows a relative and an absolute error.
    pub fn new(exact: f64, relative: f64, absolute: f64) -> Near {
        let error = if exact.is_finite() { relative * exact.abs() } else { 0.0 };
        Near { exact, error: error + absolute }
    }

    /// Whether a result is within the error. It may be infinite if the exact number can exceed the type's
    /// `greatest`.
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
    /// Its index in the launch: x fastest, then y, then z, then the block.
    pub index: usize,
    /// The number of threads of the launch.
    pub threads: usize,
    /// The sources of the block's threads.
    pub block: &'a [[u64; 4]],
}

impl<'a> Thread<'a> {
    /// Returns its lane.
    pub fn lane(&self) -> usize {
        self.index % 32
    }

    /// Returns its own sources.
    pub fn sources(&self) -> &'a [u64; 4] {
        &self.block[self.index % self.block.len()]
    }

    /// Returns the sources of the warp's threads.
    pub fn warp(&self) -> &'a [[u64; 4]] {
        let first = self.index % self.block.len() / 32 * 32;
        &self.block[first..first + 32]
    }
}

/// Makes a row of one instruction, such as `add.u32`, with the operands of its reference function.
pub fn row<S>(instruction: impl AsRef<str>, f: impl Reference<S>) -> Row {
    let results = ["%x", "%y"][..f.results().len()].join("|");
    let operands = [results.as_str()].into_iter().chain(["%a", "%b", "%c", "%d"]).take(1 + f.sources().len());
    script(format!("{} {};", instruction.as_ref(), operands.collect::<Vec<_>>().join(", ")), f)
}

/// Makes a row of a text that names its operands itself and may have several instructions.
pub fn script<S>(text: impl Into<String>, f: impl Reference<S>) -> Row {
    Row {
        text: text.into(),
        sources: f.sources(),
        results: f.results(),
        expected: Expected::Bits(Box::new(move |thread| f.run(thread.sources()))),
    }
}

/// Makes a row like [`script`] whose results depend on other threads or on the launch.
///
/// `types` only gives the operand types; `f` computes a thread's results.
pub fn of_thread<S>(
    text: impl Into<String>,
    types: impl Reference<S>,
    f: impl Fn(&Thread) -> Vec<u64> + Sync + 'static,
) -> Row {
    Row { expected: Expected::Bits(Box::new(f)), ..script(text, types) }
}

/// Makes a row like [`script`] whose results depend on the machine.
pub fn of_machine<S>(text: impl Into<String>, types: impl Reference<S>) -> Row {
    Row { expected: Expected::Any, ..script(text, types) }
}

/// Makes a row of an approximate instruction on numbers of one type.
///
/// `f` takes the exact values of the sources, separately for each half of a register with two values. It
/// returns `None` if PTX guarantees nothing.
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

/// A function on register values that an instruction must equal.
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
