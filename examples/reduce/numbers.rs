//! The numbers, whatever their type: what is of their type is here, for it is compiled for each.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::str::FromStr;

use bytemuck::cast_slice;
use clap::ValueEnum;
use gpu_reduce::{
    Buffer, Device, Element, Error, NanStd, NanVar, Op, Reduce, Std, Sum, Var, View, bf16, f16,
};

use super::error;
use super::input::{Dtype, Input};

/// What can be computed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Quantity {
    Sum,
    Prod,
    Min,
    Max,
    Minmax,
    Mean,
    Var,
    Std,
    Sumsq,
    NormL1,
    NormL2,
    NormMax,
    Argmin,
    Argmax,
    Any,
    All,
    CountNonzero,
    CountNan,
    Nansum,
    Nanmin,
    Nanmax,
    Nanmean,
    Nanvar,
    Nanstd,
    Nanargmin,
    Nanargmax,
    Moments,
    Skewness,
    Kurtosis,
    Logsumexp,
    CompensatedSum,
    BitAnd,
    BitOr,
    BitXor,
}

/// Numbers in host memory, and on a device if they have been copied there.
pub trait Numbers {
    /// The bytes of one.
    fn size(&self) -> usize;

    /// The bytes of all.
    fn bytes(&self) -> &[u8];

    /// Makes room for all on a device.
    fn allocate(&mut self, device: &Device) -> Result<(), Error>;

    /// Copies some there.
    fn upload(&mut self, range: Range<usize>) -> Result<(), Error>;

    /// A quantity of all, in one pass where they lie, as text: an index with its value. A mean, of which there is at least one number, is
    /// made of the sum if that has been computed, in no pass.
    fn reduce(&mut self, quantity: Quantity, ddof: u64) -> Result<String, error::Error>;
}

/// The numbers of the file.
///
/// # Errors
///
/// As [`Input::values`].
pub fn of(input: &Input) -> Result<Box<dyn Numbers + '_>, error::Error> {
    macro_rules! of_type {
        ($($T:ident)*) => {
            match input.dtype() { $(Dtype::$T => typed::<$T>(input),)* }
        };
    }
    of_type!(i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64)
}

fn typed<T: Number + FromStr>(input: &Input) -> Result<Box<dyn Numbers + '_>, error::Error> {
    let values = input.values::<T>()?;
    Ok(Box::new(Typed { values, buffer: None, sum: None }))
}

/// Numbers of type `T`.
struct Typed<'a, T: Element> {
    values: Cow<'a, [T]>,
    buffer: Option<Buffer<T>>,
    sum: Option<<Sum as Op<T>>::Output>,
}

impl<T: Number> Typed<'_, T> {
    /// The numbers where they lie.
    fn data(&self) -> View<'_, T> {
        match &self.buffer {
            None => self.values[..].data(),
            Some(buffer) => buffer.view(),
        }
    }

    /// The mean, of the sum. The numbers are read again where that may have wrapped, or is not finite.
    fn mean(&self) -> Result<String, Error> {
        let sum = match self.sum {
            Some(sum) => sum,
            None => gpu_reduce::sum(&self.data())?,
        };
        match T::mean_of(sum, &self.values) {
            Some(mean) => Ok(text(&mean)),
            None => show(gpu_reduce::mean(&self.data())),
        }
    }

    fn place(&self, index: Result<u64, Error>) -> Result<String, Error> {
        let index = index?;
        Ok(show_place(index, &self.values[index as usize]))
    }
}

impl<T: Number> Numbers for Typed<'_, T> {
    fn size(&self) -> usize {
        size_of::<T>()
    }

    fn bytes(&self) -> &[u8] {
        cast_slice(&self.values)
    }

    fn allocate(&mut self, device: &Device) -> Result<(), Error> {
        self.buffer = Some(device.zeros(self.values.len())?);
        Ok(())
    }

    fn upload(&mut self, range: Range<usize>) -> Result<(), Error> {
        let Self { values, buffer, .. } = self;
        buffer.as_mut().map_or(Ok(()), |buffer| buffer.write(range.start, &values[range]))
    }

    fn reduce(&mut self, quantity: Quantity, ddof: u64) -> Result<String, error::Error> {
        let data = &self.data();
        let shown = match quantity {
            Quantity::Sum => {
                let sum = gpu_reduce::sum(data)?;
                self.sum = Some(sum);
                Ok(text(&sum))
            }
            Quantity::Prod => show(gpu_reduce::prod(data)),
            Quantity::Min => show(gpu_reduce::min(data)),
            Quantity::Max => show(gpu_reduce::max(data)),
            Quantity::Minmax => show_all(gpu_reduce::minmax(data)),
            Quantity::Mean => self.mean(),
            Quantity::Var => show(gpu_reduce::reduce(data, Var::new(ddof))),
            Quantity::Std => show(gpu_reduce::reduce(data, Std::new(ddof))),
            Quantity::Sumsq => show(gpu_reduce::sumsq(data)),
            Quantity::NormL1 => show(gpu_reduce::norm_l1(data)),
            Quantity::NormL2 => show(gpu_reduce::norm_l2(data)),
            Quantity::NormMax => show(gpu_reduce::norm_max(data)),
            Quantity::Argmin => self.place(gpu_reduce::argmin(data)),
            Quantity::Argmax => self.place(gpu_reduce::argmax(data)),
            Quantity::Any => show(gpu_reduce::any(data)),
            Quantity::All => show(gpu_reduce::all(data)),
            Quantity::CountNonzero => show(gpu_reduce::count_nonzero(data)),
            Quantity::CountNan => show(gpu_reduce::count_nan(data)),
            Quantity::Nansum => show(gpu_reduce::nansum(data)),
            Quantity::Nanmin => show(gpu_reduce::nanmin(data)),
            Quantity::Nanmax => show(gpu_reduce::nanmax(data)),
            Quantity::Nanmean => show(gpu_reduce::nanmean(data)),
            Quantity::Nanvar => show(gpu_reduce::reduce(data, NanVar::new(ddof))),
            Quantity::Nanstd => show(gpu_reduce::reduce(data, NanStd::new(ddof))),
            Quantity::Nanargmin => self.place(gpu_reduce::nanargmin(data)),
            Quantity::Nanargmax => self.place(gpu_reduce::nanargmax(data)),
            Quantity::Moments => show_all(gpu_reduce::moments(data)),
            Quantity::Skewness => show(gpu_reduce::skewness(data)),
            Quantity::Kurtosis => show(gpu_reduce::kurtosis(data)),
            Quantity::Logsumexp => show(gpu_reduce::logsumexp(data)),
            Quantity::CompensatedSum => show(gpu_reduce::compensated_sum(data)),
            Quantity::BitAnd | Quantity::BitOr | Quantity::BitXor => return T::bits(quantity, data),
        };
        Ok(shown?)
    }
}

/// The result as text: a number with as many digits as tell it from its neighbours, a float with its point.
#[inline(never)]
fn show<V: Debug>(result: Result<V, Error>) -> Result<String, Error> {
    match result {
        Ok(value) => Ok(text(&value)),
        Err(error) => Err(error),
    }
}

fn show_all<V: Debug, const N: usize>(result: Result<[V; N], Error>) -> Result<String, Error> {
    result.map(|values| values.map(|value| text(&value)).join(" "))
}

fn show_place(index: u64, value: &dyn Debug) -> String {
    format!("{index} ({value:?})")
}

fn text(value: &dyn Debug) -> String {
    format!("{value:?}")
}

/// Numbers, by what differs between integers and floats.
pub trait Number: Element {
    /// The mean of `values`, at least one, made of their sum as the library returns it; none where that may have wrapped.
    fn mean_of(sum: <Sum as Op<Self>>::Output, values: &[Self]) -> Option<f64>;

    /// A quantity of their bits, which integers have.
    fn bits(quantity: Quantity, data: &View<Self>) -> Result<String, error::Error>;
}

macro_rules! integers {
    ($($T:ident)*) => {$(
        impl Number for $T {
            fn mean_of(sum: <Sum as Op<$T>>::Output, values: &[$T]) -> Option<f64> {
                let may_wrap = (values.len() as u128) << $T::BITS > 1 << 64;
                (!may_wrap).then(|| sum as f64 / values.len() as f64)
            }

            fn bits(quantity: Quantity, data: &View<$T>) -> Result<String, error::Error> {
                Ok(show(match quantity {
                    Quantity::BitAnd => gpu_reduce::bit_and(data),
                    Quantity::BitOr => gpu_reduce::bit_or(data),
                    _ => gpu_reduce::bit_xor(data),
                })?)
            }
        }
    )*};
}

macro_rules! floats {
    ($($T:ident)*) => {$(
        impl Number for $T {
            fn mean_of(sum: <Sum as Op<$T>>::Output, values: &[$T]) -> Option<f64> {
                // So small that as many as memory holds have a finite sum.
                const SCALE: f64 = 1.0 / (1_u128 << 64) as f64;
                let count = values.len() as f64;
                Some(if sum.is_finite() {
                    f64::from(sum) / count
                } else {
                    values.iter().map(|&value| f64::from(value) * SCALE).sum::<f64>() / count / SCALE
                })
            }

            fn bits(_: Quantity, _: &View<$T>) -> Result<String, error::Error> {
                Err(error::Error::NotIntegers { dtype: stringify!($T) })
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);
floats!(f16 bf16 f32 f64);
