//! The ladder: the classic reduction kernels, from the slowest up, each in a file that says what it fixes
//! over the one before and what is still wrong with it. The top rung is the production kernel,
//! [`reduce`](crate::reduce).
//!
//! They come from five documents, and are named after what they do, with the place in their document beside
//! it:
//!
//! - 000: a lab report on reduction (M. Orlewski); three loops, and how many barriers each takes.
//! - 001: a lecture, "Optimising Reduction Kernels" (S. Dey, IIT Kharagpur); `reduce1` to `reduce7` on 2^26
//!   `int`.
//! - 002: a lab report (K. Gwiżdż, B. Mucha); the same steps on 1024 · 65535 `float`, 128 threads a block.
//! - 003: a lab report (P. Lipiór, M. Żoczek); one atomic an element against one a block, on `double`.
//! - 004: a section of a book; the least element with its index by halving, and sorted lists merged by it.
//!
//! ```text
//! repeat:   each block folds its part of the input into one accumulator and stores it
//!           the accumulators are the next launch's input
//! until one accumulator is left
//! ```
//!
//! A later launch needs no kernel of its own: an operator of the ladder reduces its accumulators as it
//! reduces elements ([`LadderOp`]), so the launch after that of `sum` over `i32` is that of `sum` over `i64`.
//!
//! Loops up to [`UnrolledLastWarp`] end at `block_dim_x()`, which the compiler does not know, as in the
//! documents: a loop that ends at `BLOCK` it unrolls, which is the step of [`Unrolled`].

mod argmin;
mod atomic;
mod block_atomic;
mod cascaded;
mod first_add;
mod interleaved_modulo;
mod interleaved_strided;
mod merge;
mod op;
mod pairs_interleaved;
mod pairs_reversed;
mod sequential;
mod shuffle;
#[cfg(any(target_arch = "nvptx64", all(feature = "ptx", target_os = "linux")))]
pub mod table;
mod unrolled;
mod unrolled_last_warp;

pub use argmin::ArgMin;
pub use atomic::Atomic;
pub use block_atomic::BlockAtomic;
pub use cascaded::Cascaded;
pub use first_add::FirstAdd;
pub use interleaved_modulo::InterleavedModulo;
pub use interleaved_strided::InterleavedStrided;
pub use merge::{MERGE_BLOCK, Merge};
pub use op::{LadderElement, LadderOp};
pub use pairs_interleaved::PairsInterleaved;
pub use pairs_reversed::PairsReversed;
pub use sequential::Sequential;
pub use shuffle::Shuffle;
pub use unrolled::Unrolled;
pub use unrolled_last_warp::UnrolledLastWarp;

use crate::Element;
use crate::kernels::{Named, arguments};
use cuda_std::shared::Shared;
use cuda_std::thread;

/// A kernel of the ladder.
pub trait Kernel: 'static {
    /// Its name in kernels, options and tables, such as `sequential`.
    const NAME: &'static str;

    /// Elements that a thread loads, if a block covers consecutive elements.
    const LOADS: u64 = 1;

    /// Whether all blocks combine their partial results into one accumulator by atomics, which holds the
    /// identity before the launch. Otherwise each block stores its own, and the launch is repeated.
    const ATOMIC: bool = false;

    /// Returns the blocks, of `block` threads each, of a launch over `len` elements.
    fn blocks(len: u64, block: u32) -> u32 {
        len.div_ceil(Self::LOADS * u64::from(block)) as u32
    }

    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The launch has BLOCK threads a block and [`blocks`](Self::blocks) blocks. The pointers are valid as
    /// [`Pass`] says, and nothing else accesses what they point to meanwhile.
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>);
}

/// A kernel of the ladder as a type: for an operator on elements of type `T`, whose accumulators are `A`.
pub type Rung<K, O, T, A> = Named<(K, O), Pass<T, A>>;

arguments! { [T: Copy, A: Copy] Pass<T, A>: input len output }

/// The arguments of a launch; the kernel's parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Pass<T, A> {
    /// `len` elements, aligned to their size.
    pub input: *const T,
    /// Elements in the input.
    pub len: u64,
    /// An accumulator for each block, or the one that they share.
    pub output: *mut A,
}

impl<T: LadderElement, A: Element> Pass<T, A> {
    /// Returns the accumulator of element `index`, or the identity if the input has no such element. 001's
    /// `reduce4` to `reduce7` and 002's third reduction do not check this bound.
    ///
    /// # Safety
    ///
    /// The input is valid as [`Pass`] says.
    #[inline(always)]
    unsafe fn load<O: LadderOp<T, Accumulator = A>>(self, index: u64) -> A {
        if index < self.len {
            // SAFETY: in bounds.
            O::default().lift(unsafe { self.input.add(index as usize).read() }, index)
        } else {
            O::default().identity()
        }
    }

    /// Returns the accumulator of elements `index` and `index + apart`; elements past the input's end are the
    /// identity.
    ///
    /// # Safety
    ///
    /// The input is valid as [`Pass`] says.
    #[inline(always)]
    unsafe fn load_two<O: LadderOp<T, Accumulator = A>>(self, index: u64, apart: u32) -> A {
        // SAFETY: as the caller promises.
        unsafe { O::default().combine(self.load::<O>(index), self.load::<O>(index + u64::from(apart))) }
    }

    /// Stores the block's partial result.
    ///
    /// # Safety
    ///
    /// The output has an accumulator for each block; one thread of the block calls it.
    #[inline(always)]
    unsafe fn store(self, partial: A) {
        // SAFETY: as the caller promises.
        unsafe { self.output.add(thread::block_idx_x() as usize).write(partial) }
    }
}

/// Returns the index of the thread's first element, for blocks of `threads` threads that cover `LOADS`
/// elements a thread.
#[inline(always)]
fn first_element<K: Kernel>(threads: u32) -> u64 {
    u64::from(thread::block_idx_x()) * K::LOADS * u64::from(threads) + u64::from(thread::thread_idx_x())
}

/// Returns `a % b` by an instruction of its own. If `b` is a stride, the compiler sees that it is a power of
/// two and makes an `and` of `%`. The documents' kernels, and their times, have the division.
#[inline(always)]
fn remainder(a: u32, b: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let remainder;
        // SAFETY: computes in registers only.
        unsafe {
            core::arch::asm!(
                "rem.u32 {}, {}, {};", out(reg32) remainder, in(reg32) a, in(reg32) b, options(pure, nomem, nostack)
            )
        };
        remainder
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        a % b
    }
}

/// Combines `partials[from]` into `partials[into]`.
///
/// # Safety
///
/// Both are in bounds and written. No other thread writes either, or reads `into`, without a barrier between.
#[inline(always)]
unsafe fn fold<O: LadderOp<T>, T: LadderElement>(partials: Shared<O::Accumulator>, into: u32, from: u32) {
    // SAFETY: as the caller promises.
    unsafe { partials.write(into, O::default().combine(partials.read(into), partials.read(from))) }
}

/// Calls `$callback! { { ARGUMENTS } ROW ROW … }` with a row `TYPE: MODULE;` for each kernel of the ladder:
/// first the lecture's, then what came after it, then the reports'.
#[macro_export]
macro_rules! for_each_rung {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            InterleavedModulo: interleaved_modulo;
            InterleavedStrided: interleaved_strided;
            Sequential: sequential;
            FirstAdd: first_add;
            UnrolledLastWarp: unrolled_last_warp;
            Unrolled: unrolled;
            Cascaded: cascaded;
            Shuffle: shuffle;
            PairsInterleaved: pairs_interleaved;
            PairsReversed: pairs_reversed;
            Atomic: atomic;
            BlockAtomic: block_atomic;
        }
    };
}
