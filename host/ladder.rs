//! Calls of the classic kernels, in the manner of the production kernel's.

use crate::cuda::ladder;
use crate::place::Place::{Cpu, Gpu};
use crate::{Block, Buffer, Error, LadderElement, LadderOp, Min, Op, Reduce, Threads, View};
use bytemuck::Zeroable;
use gpu_reduce_kernels::ladder::{ArgMin, Kernel};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// The kernels that [`Buffer::reduce_with`] takes, as types.
///
/// The docs of each say what it improves over the kernel before it and what is still slow. Their sources, the
/// documents 000 to 004, are listed in [`gpu_reduce_kernels::ladder`].
pub mod variant {
    pub use gpu_reduce_kernels::ladder::{
        Atomic, BlockAtomic, Cascaded, FirstAdd, InterleavedModulo, InterleavedStrided, PairsInterleaved,
        PairsReversed, Sequential, Shuffle, Unrolled, UnrolledLastWarp,
    };

    /// The production kernel of [`Reduce::reduce`](crate::Reduce::reduce): 16-byte loads, several in flight,
    /// one launch.
    #[derive(Clone, Copy, Debug)]
    pub enum Production {}
}

/// A kernel to reduce with: one of the types in [`variant`].
pub trait Variant {
    /// The variant's name in options and tables, for example `sequential`.
    const NAME: &'static str;

    /// Reduces a view that is not empty `repeats` times. Returns the last result and the time of one
    /// reduction.
    ///
    /// # Errors
    ///
    /// As for [`Buffer::reduce_with`].
    fn reduce<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        view: View<'_, T>,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error>
    where
        Threads<BLOCK>: Block;
}

impl<K: Kernel> Variant for K {
    const NAME: &'static str = K::NAME;

    fn reduce<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        view: View<'_, T>,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error>
    where
        Threads<BLOCK>: Block,
    {
        match view.0 {
            Cpu(_) => Err(Error::NoVariant { variant: K::NAME }),
            Gpu(part) => ladder::reduce_with::<K, O, T>(part, BLOCK, repeats),
        }
    }
}

impl Variant for variant::Production {
    const NAME: &'static str = "production";

    fn reduce<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        view: View<'_, T>,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error>
    where
        Threads<BLOCK>: Block,
    {
        match view.0 {
            Cpu(_) => {
                let start = Instant::now();
                let mut result = Reduce::reduce::<O, BLOCK>(&view)?;
                for _ in 1..repeats.get() {
                    result = Reduce::reduce::<O, BLOCK>(&view)?;
                }
                Ok((result, start.elapsed() / repeats.get()))
            }
            Gpu(part) => {
                let device = view.device();
                let (stream, mut result) = (device.stream()?, device.upload(&[O::Output::zeroed()])?);
                let queue = stream.on(Some(part.gpu))?;
                let mut enqueue = || {
                    // SAFETY: input and result live until the stream has been waited for.
                    unsafe { view.reduce_into::<O, BLOCK>(&stream, &mut result) }
                };
                let time = queue.map_or(Ok(Duration::ZERO), |queue| queue.time(repeats, &mut enqueue))?;
                Ok((result.to_vec()?[0], time))
            }
        }
    }
}

impl<T: LadderElement> View<'_, T> {
    /// As [`Buffer::reduce_with`], for a view.
    ///
    /// # Errors
    ///
    /// As for [`Buffer::reduce_with`].
    pub fn reduce_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(self) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        if self.is_empty() {
            let op = O::default();
            return op.finish(op.identity(), 0).ok_or_else(|| Error::empty(&op));
        }
        Ok(V::reduce::<O, T, BLOCK>(self, NonZeroU32::MIN)?.0)
    }

    /// As [`Buffer::time_with`], for a view.
    ///
    /// # Errors
    ///
    /// As for [`Buffer::time_with`].
    pub fn time_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(
        self,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error>
    where
        Threads<BLOCK>: Block,
    {
        let warm_up = self.reduce_with::<V, O, BLOCK>()?;
        if self.is_empty() { Ok((warm_up, Duration::ZERO)) } else { V::reduce::<O, T, BLOCK>(self, repeats) }
    }

    /// As [`Buffer::argmin_by_halving`], for a view.
    ///
    /// # Errors
    ///
    /// As for [`Buffer::argmin_by_halving`].
    pub fn argmin_by_halving<const BLOCK: u32>(self) -> Result<(usize, T), Error>
    where
        Threads<BLOCK>: Block,
    {
        if self.is_empty() {
            return Err(Error::EmptyInput { op: <Min as Op<T>>::NAME });
        }
        match self.0 {
            Cpu(_) => Err(Error::NoVariant { variant: ArgMin::<T>::NAME }),
            Gpu(part) => ladder::argmin_by_halving(part, BLOCK),
        }
    }
}

impl<T: LadderElement> Buffer<T> {
    /// Reduces the elements by a classic kernel or the production kernel, with blocks of `BLOCK` threads.
    ///
    /// The result's bits depend only on the elements, their number, the variant, the operator and `BLOCK`. An
    /// exception are float sums and products by [`Atomic`](variant::Atomic) and
    /// [`BlockAtomic`](variant::BlockAtomic), whose order changes from run to run.
    ///
    /// ```
    /// use gpu_reduce::{Device, Sum, variant};
    ///
    /// let x = Device::emulator()?.upload(&[1i32, 2, 3])?;
    /// assert_eq!(x.reduce_with::<variant::Sequential, Sum, 256>()?, 6);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoVariant`] on the CPU, except for [`Production`](variant::Production); otherwise as for
    /// [`Reduce::reduce`].
    pub fn reduce_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(&self) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.view().reduce_with::<V, O, BLOCK>()
    }

    /// Reduces as [`reduce_with`](Self::reduce_with) `repeats` times. Returns the last result and the time of
    /// one.
    ///
    /// On a GPU, one reduction loads the kernel and warms up. Then the repeats are enqueued back to back
    /// between two events. The time includes the gaps between launches if the GPU finishes before the next
    /// one is enqueued (a few microseconds per launch). It includes no copies and no waiting of the host.
    /// Inputs that fit in the GPU's L2 cache are read from there. On the emulator it is the interpreter's
    /// time, which says nothing about a GPU.
    ///
    /// ```
    /// use gpu_reduce::{Device, Sum, variant};
    /// use std::num::NonZeroU32;
    ///
    /// let x = Device::emulator()?.upload(&[1i32, 2, 3])?;
    /// let (sum, time) = x.time_with::<variant::Sequential, Sum, 256>(NonZeroU32::new(10).unwrap())?;
    /// println!("{sum} in {time:?}");
    /// # assert_eq!(sum, 6);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`reduce_with`](Self::reduce_with).
    pub fn time_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(
        &self,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error>
    where
        Threads<BLOCK>: Block,
    {
        self.view().time_with::<V, O, BLOCK>(repeats)
    }

    /// Returns the index of the least element and the element, by halving with blocks of `BLOCK` threads.
    ///
    /// It is the first of equal elements, or the first NaN if there is one. −0.0 is less than +0.0.
    ///
    /// ```
    /// use gpu_reduce::Device;
    ///
    /// let x = Device::emulator()?.upload(&[3.5f32, -1.0, 2.0, -1.0])?;
    /// assert_eq!(x.argmin_by_halving::<256>()?, (1, -1.0));
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`]; [`Error::NoVariant`] on the CPU; on a GPU as for [`Reduce::reduce`].
    pub fn argmin_by_halving<const BLOCK: u32>(&self) -> Result<(usize, T), Error>
    where
        Threads<BLOCK>: Block,
    {
        self.view().argmin_by_halving::<BLOCK>()
    }
}
