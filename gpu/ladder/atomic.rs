use super::{Kernel, LadderElement, LadderOp, Pass, first_element};

/// One atomic an element: no reduction at all.
///
/// ```text
/// if the block has an element t: result += it, atomically
/// ```
///
/// - From 003 (naive).
/// - For it: the least code, one launch, no shared memory and no barrier.
/// - Wrong with it: all atomics go to one address, and the memory system serves them one after another.
/// - The order of the additions changes from run to run, and with it the low bits of a float's sum. 003
///   blames rounding, and uses `double`. `atom.add.f32` also flushes subnormals in global memory to zero (PTX
///   ISA, "atom").
#[derive(Clone, Copy, Debug)]
pub enum Atomic {}

impl Kernel for Atomic {
    const NAME: &'static str = "atomic";
    const ATOMIC: bool = true;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        let index = first_element::<Self>(BLOCK);
        if index < pass.len {
            // SAFETY: in bounds, and every access to the output is atomic.
            unsafe { O::combine_atomically(pass.output, pass.load::<O>(index)) }
        }
    }
}
