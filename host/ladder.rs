//! The classic kernels, called as the production kernel is.

use crate::cuda::ladder;
use crate::place::Place::{Cpu, Gpu};
use crate::{Buffer, Error, LadderElement, LadderOp, Min, Op, Reduce, View};
use bytemuck::Zeroable;
use gpu_reduce_kernels::ladder::{ArgMin, Kernel};
use gpu_reduce_kernels::plan::assert_block;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// The kernels that [`Buffer::reduce_with`] takes, as types: each says what it fixes over the one before and what is still wrong
/// with it. The documents that they come from, 000 to 004, are those of [`gpu_reduce_kernels::ladder`].
pub mod variant {
    pub use gpu_reduce_kernels::ladder::{
        Atomic, BlockAtomic, Cascaded, FirstAdd, InterleavedModulo, InterleavedStrided, PairsInterleaved,
        PairsReversed, Sequential, Shuffle, Unrolled, UnrolledLastWarp,
    };

    /// The production kernel, which [`Reduce::reduce`](crate::Reduce::reduce) runs: 16-byte loads, several in flight, and one
    /// launch.
    #[derive(Clone, Copy, Debug)]
    pub enum Production {}
}

/// A way to reduce: one of the types in [`variant`].
pub trait Variant {
    /// The variant's name in options and tables, as `sequential`.
    const NAME: &'static str;

    /// Reduces the elements of `view`, of which there are some, `repeats` times, one after another: the result, and the time of
    /// one.
    ///
    /// # Errors
    ///
    /// As [`Buffer::reduce_with`].
    fn reduce<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        view: View<'_, T>,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error>;
}

impl<K: Kernel> Variant for K {
    const NAME: &'static str = K::NAME;

    fn reduce<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        view: View<'_, T>,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error> {
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
    ) -> Result<(O::Output, Duration), Error> {
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
                    // SAFETY: both stay until the stream has been waited for.
                    unsafe { view.reduce_into::<O, BLOCK>(&stream, &mut result) }
                };
                let time = queue.map_or(Ok(Duration::ZERO), |queue| queue.time(repeats, &mut enqueue))?;
                Ok((result.to_vec()?[0], time))
            }
        }
    }
}

impl<T: LadderElement> View<'_, T> {
    /// As [`Buffer::reduce_with`], for a part of a buffer.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reduce_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(self) -> Result<O::Output, Error> {
        const { assert_block(BLOCK) };
        if self.is_empty() {
            let op = O::default();
            return op.finish(op.identity(), 0).ok_or_else(|| Error::empty(&op));
        }
        Ok(V::reduce::<O, T, BLOCK>(self, NonZeroU32::MIN)?.0)
    }

    /// As [`Buffer::time_with`], for a part of a buffer.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn time_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(
        self,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error> {
        let warm_up = self.reduce_with::<V, O, BLOCK>()?;
        if self.is_empty() { Ok((warm_up, Duration::ZERO)) } else { V::reduce::<O, T, BLOCK>(self, repeats) }
    }

    /// As [`Buffer::argmin_by_halving`], for a part of a buffer.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn argmin_by_halving<const BLOCK: u32>(self) -> Result<(usize, T), Error> {
        const { assert_block(BLOCK) };
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
    /// Reduces the elements by one of the classic kernels, or by the production kernel, with blocks of `BLOCK` threads.
    ///
    /// The result's bits depend on the elements, their number, the variant, the operator and `BLOCK` alone, but for sums and
    /// products of floats by [`Atomic`](variant::Atomic) and [`BlockAtomic`](variant::BlockAtomic): those combine in an order
    /// that changes from run to run.
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
    /// [`Error::NoVariant`] on the CPU, but for [`Production`](variant::Production); otherwise as [`Reduce::reduce`].
    pub fn reduce_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(&self) -> Result<O::Output, Error> {
        self.view().reduce_with::<V, O, BLOCK>()
    }

    /// Reduces the elements as [`reduce_with`](Self::reduce_with) does, `repeats` times: the result of the last, and the time of
    /// one.
    ///
    /// On a GPU, the reductions are enqueued back to back between two events of the driver, after one that loads the kernel and
    /// warms up. So the time is that of the launches, with what the GPU waits between them where it is done before the next
    /// is enqueued (a few microseconds a launch); it has no copies, and no waiting of the host. Inputs that fit in the GPU's
    /// L2 cache are read from there. On the emulator it is the interpreter's time, which says nothing of a GPU.
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
    /// As [`reduce_with`](Self::reduce_with).
    pub fn time_with<V: Variant, O: LadderOp<T>, const BLOCK: u32>(
        &self,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error> {
        self.view().time_with::<V, O, BLOCK>(repeats)
    }

    /// The index of the least element and the element, by halving with blocks of `BLOCK` threads: the first of equal ones, or
    /// the first NaN if there is one. −0.0 is below +0.0.
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
    /// [`Error::EmptyInput`], [`Error::NoVariant`] on the CPU, and those of a GPU as [`Reduce::reduce`].
    pub fn argmin_by_halving<const BLOCK: u32>(&self) -> Result<(usize, T), Error> {
        self.view().argmin_by_halving::<BLOCK>()
    }
}
