//! The typed call, and the one-line functions.

use crate::buffer::Elements;
use crate::device::Kind;
use crate::{Buffer, Device, Element, Error, Max, Min, Op, Prod, Sum, View, cpu, default_block};

/// Data that reduces: buffers and views on the device where they lie, slices in host memory on the CPU. (A GPU would not help:
/// a CPU thread sums data in the time that it takes to copy them for the GPU. `docs/speed.md` has the figures.)
///
/// The result's bits depend on the elements, their number, the operator and `BLOCK` alone: not on the device, its size,
/// the data's alignment, nor the number of threads. `BLOCK`, the threads of a block on a GPU, is a power of two from 32 to
/// 1024; another is an error when the program compiles.
///
/// ```
/// use gpu_reduce::{Min, Reduce, Sum};
///
/// let samples = vec![0.5f32; 1000];
/// assert_eq!(samples.reduce::<Sum, 256>()?, 500.0);
/// assert_eq!(samples.reduce::<Min, 64>()?, 0.5);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// ```compile_fail
/// use gpu_reduce::{Reduce, Sum};
///
/// [1, 2, 3].reduce::<Sum, 48>();
/// ```
pub trait Reduce {
    /// The type of the elements.
    type Element: Element;

    /// Elements.
    fn len(&self) -> usize;

    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reduces the elements where they lie.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`] where the operator has no value for no elements; on a GPU also [`Error::NoKernel`],
    /// [`Error::Launch`], [`Error::OutOfMemory`] and [`Error::Driver`].
    fn reduce<O: Op<Self::Element>, const BLOCK: u32>(&self) -> Result<O::Output, Error>;

    /// Reduces the elements on `device`: host data is copied there first.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce), and [`Error::OtherDevice`] for a buffer that lies elsewhere.
    fn reduce_on<O: Op<Self::Element>, const BLOCK: u32>(&self, device: &Device) -> Result<O::Output, Error>;
}

impl<T: Element> Reduce for [T] {
    type Element = T;

    fn len(&self) -> usize {
        self.len()
    }

    fn reduce<O: Op<T>, const BLOCK: u32>(&self) -> Result<O::Output, Error> {
        View(Elements::Host(self)).reduce::<O, BLOCK>()
    }

    fn reduce_on<O: Op<T>, const BLOCK: u32>(&self, device: &Device) -> Result<O::Output, Error> {
        match &device.0 {
            Kind::Cpu => self.reduce::<O, BLOCK>(),
            #[cfg(gpu)]
            Kind::Gpu(_) => device.upload(self)?.reduce::<O, BLOCK>(),
        }
    }
}

impl<T: Element> Reduce for View<'_, T> {
    type Element = T;

    fn len(&self) -> usize {
        (*self).len()
    }

    fn reduce<O: Op<T>, const BLOCK: u32>(&self) -> Result<O::Output, Error> {
        if self.is_empty() {
            return O::EMPTY.ok_or(Error::EmptyInput { op: O::NAME });
        }
        match self.0 {
            Elements::Host(data) => Ok(cpu::reduce::<O, T, BLOCK>(data)),
            #[cfg(gpu)]
            Elements::Gpu(memory, start, ..) => memory.reduce::<O, T, BLOCK>(start, self.len()),
        }
    }

    fn reduce_on<O: Op<T>, const BLOCK: u32>(&self, device: &Device) -> Result<O::Output, Error> {
        let buffer = self.device();
        if buffer != *device {
            return Err(Error::OtherDevice { buffer: buffer.to_string(), device: device.to_string() });
        }
        self.reduce::<O, BLOCK>()
    }
}

/// Forwards to what a container dereferences to.
macro_rules! forward {
    ($([$($generics:tt)*] $container:ty: $this:ident => $data:expr;)*) => {$(
        impl<T: Element, $($generics)*> Reduce for $container {
            type Element = T;

            fn len(&self) -> usize {
                let $this = self;
                $data.len()
            }

            fn reduce<O: Op<T>, const BLOCK: u32>(&self) -> Result<O::Output, Error> {
                let $this = self;
                $data.reduce::<O, BLOCK>()
            }

            fn reduce_on<O: Op<T>, const BLOCK: u32>(&self, device: &Device) -> Result<O::Output, Error> {
                let $this = self;
                $data.reduce_on::<O, BLOCK>(device)
            }
        }
    )*};
}

forward! {
    [] Buffer<T>: buffer => buffer.view();
    [] Vec<T>: data => data.as_slice();
    [const N: usize] [T; N]: data => data.as_slice();
}

macro_rules! one_line {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<D: Reduce + ?Sized>(data: &D) -> Result<<$op as Op<D::Element>>::Output, Error> {
            match default_block(data.len() as u64 * size_of::<D::Element>() as u64) {
                32 => data.reduce::<$op, 32>(),
                128 => data.reduce::<$op, 128>(),
                256 => data.reduce::<$op, 256>(),
                512 => data.reduce::<$op, 512>(),
                _ => data.reduce::<$op, 1024>(),
            }
        }
    )*};
}

one_line! {
    /// The sum of a slice or a buffer; see [`Sum`] for its type.
    ///
    /// ```
    /// assert_eq!(gpu_reduce::sum(&[1u8, 2, 255])?, 258);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reduce::reduce`]; an empty sum is 0.
    sum = Sum;
    /// The product of a slice or a buffer; see [`Prod`] for its type.
    ///
    /// ```
    /// assert_eq!(gpu_reduce::prod(&[1.5f64, 2.0])?, 3.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reduce::reduce`]; an empty product is 1.
    prod = Prod;
    /// The smallest element of a slice or a buffer; NaN if there is one.
    ///
    /// ```
    /// assert_eq!(gpu_reduce::min(&[3i16, -1, 4])?, -1);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reduce::reduce`]; [`Error::EmptyInput`] where there are none.
    min = Min;
    /// The largest element of a slice or a buffer; NaN if there is one.
    ///
    /// ```
    /// assert!(gpu_reduce::max(&[1.0f32, f32::NAN])?.is_nan());
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Reduce::reduce`]; [`Error::EmptyInput`] where there are none.
    max = Max;
}
