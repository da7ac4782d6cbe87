//! Bounds of typed calls, which the compiler checks: a block can have that many threads, and the operator
//! needs no parameters.

/// A number of threads in a block on a GPU: the BLOCK of a call.
///
/// Generic code over BLOCK has the bound `Threads<BLOCK>: Block`.
///
/// ```
/// use gpu_reduce::{Block, Error, Reduce, Sum, Threads};
///
/// fn sum<const BLOCK: u32>(samples: &[f32]) -> Result<f32, Error>
/// where
///     Threads<BLOCK>: Block,
/// {
///     samples.reduce::<Sum, BLOCK>()
/// }
/// assert_eq!(sum::<64>(&[1.0, 2.0])?, 3.0);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Threads<const BLOCK: u32>(());

/// The numbers of threads that a block can have: 32, 64, 128, 256, 512 and 1024.
#[diagnostic::on_unimplemented(
    message = "a block cannot have `{Self}`: BLOCK is 32, 64, 128, 256, 512 or 1024",
    label = "not a BLOCK",
    note = "in generic code, add the bound `Threads<BLOCK>: gpu_reduce::Block`"
)]
pub trait Block: sealed::Sealed {}

/// An operator that a call makes by itself, because it needs no parameters: [`Default`] says how.
///
/// Implemented for every type that is [`Default`]. It is a trait of its own for the compiler's sentence about
/// others.
#[diagnostic::on_unimplemented(
    message = "the operator `{Self}` needs parameters: call `.by(operator).block::<BLOCK>().run()` in place of `reduce`",
    label = "has no default parameters",
    note = "if its parameters have a default, derive `Default` for it"
)]
pub trait Parameterless: Default {}

#[diagnostic::do_not_recommend]
impl<O: Default> Parameterless for O {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! blocks {
    ({} $($block:literal)+) => {$(
        impl sealed::Sealed for Threads<$block> {}
        #[diagnostic::do_not_recommend]
        impl Block for Threads<$block> {}
    )+};
}

gpu_reduce_kernels::for_each_block! { blocks! {} }
