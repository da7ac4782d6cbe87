//! The numbers, whatever their type: what is of their type is here, for it is compiled for each.

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

use bytemuck::cast_slice;
use clap::ValueEnum;
use gpu_reduce::{
    All, Any, ArgMax, ArgMin, BitAnd, BitOr, BitXor, Buffer, CompensatedSum, CountNan, CountNonzero, Device,
    Element, Error, ExactElement, ExactMean, ExactSum, ExactSumTwofold, Kurtosis, LogSumExp, Max, Mean, Min,
    MinMax, Moments, NanArgMax, NanArgMin, NanMax, NanMean, NanMin, NanStd, NanSum, NanVar, NormL1, NormL2,
    NormMax, Op, Prod, Reduce, Segments, Skewness, Std, Sum, SumSq, Var, View, bf16, f16,
};

use super::error;
use super::histogram::Histogram;
use super::input::{Dtype, Input, Rows};
use super::report::say;
use super::results::{self, Output, Results, Value};
use super::slices::Slices;

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
    ExactSum,
    ExactSumTwofold,
    ExactMean,
    BitAnd,
    BitOr,
    BitXor,
}

impl Quantity {
    /// As the user names it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }
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

    /// Takes only those of these indices, in this order.
    fn permute(&mut self, order: &[usize]);

    /// A quantity of all, where they lie. It has the bits of [`reduce_each`](Self::reduce_each) with one slice.
    fn reduce(&self, quantity: Quantity, ddof: u64) -> Result<Results, error::Error>;

    /// The number of this index, as text.
    fn text(&self, index: usize) -> String;

    /// How they are distributed.
    fn histogram(&self) -> Histogram;

    /// A quantity of each slice of them, where they lie.
    fn reduce_each(&self, slices: &Slices, quantity: Quantity, ddof: u64) -> Result<Results, error::Error>;
}

/// The numbers of the input, and what stands beside them.
///
/// # Errors
///
/// As [`Input::values`].
pub fn of(input: &Input) -> Result<(Box<dyn Numbers + '_>, Rows), error::Error> {
    macro_rules! of_type {
        ($($T:ident)*) => {
            match input.dtype() { $(Dtype::$T => typed::<$T>(input),)* }
        };
    }
    of_type!(i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64)
}

fn typed<T: Number + FromStr>(input: &Input) -> Result<(Box<dyn Numbers + '_>, Rows), error::Error> {
    let (values, rows) = input.values::<T>()?;
    Ok((Box::new(Typed { values, buffer: None, may_not_wrap: input.is_inferred() }), rows))
}

/// Numbers of type `T`.
struct Typed<'a, T: Element> {
    values: Cow<'a, [T]>,
    buffer: Option<Buffer<T>>,
    /// Whether sums and products that wrap are computed in a wider type: nobody asked for integers.
    may_not_wrap: bool,
}

impl<T: Number> Typed<'_, T> {
    /// The numbers where they lie.
    fn data(&self) -> View<'_, T> {
        match &self.buffer {
            None => self.values[..].data(),
            Some(buffer) => buffer.view(),
        }
    }

    /// A quantity of all, or of each slice.
    fn quantity(
        &self,
        slices: Option<&Slices>,
        quantity: Quantity,
        ddof: u64,
    ) -> Result<Results, error::Error> {
        let data = self.data();
        let target = match slices {
            None => Target::All(data),
            Some(slices) => Target::Each(slices.of(&data)?),
        };
        let results = target.quantity(quantity, ddof)?;
        match quantity {
            _ if !(T::IS_INTEGER && self.may_not_wrap) => Ok(results),
            Quantity::Sum | Quantity::Nansum | Quantity::CompensatedSum if self.may_wrap(1) => {
                let exact = target.reduce(ExactSum)?;
                let is_same = (0..results.len()).all(|index| results.texts(index).eq(exact.texts(index)));
                Ok(if is_same { results } else { exact })
            }
            Quantity::Prod => self.unless_too_large(results, slices, Prod, quantity),
            Quantity::Sumsq if self.may_wrap(2) => self.unless_too_large(results, slices, SumSq, quantity),
            _ => Ok(results),
        }
    }

    /// Whether the sum of their powers may not fit i64.
    fn may_wrap(&self, power: i32) -> bool {
        let largest = self.values.iter().map(|value| value.to_f64().abs()).fold(0.0, f64::max);
        largest.powi(power) * self.values.len() as f64 > i64::MAX as f64 / 2.0
    }

    /// The results of `op`; if one does not fit i64, those of `op` of the numbers as f64, and a note.
    fn unless_too_large(
        &self,
        results: Results,
        slices: Option<&Slices>,
        op: impl Op<f64, Output = f64>,
        quantity: Quantity,
    ) -> Result<Results, error::Error> {
        let floats: Vec<f64> = self.values.iter().map(|value| value.to_f64()).collect();
        let device = self.buffer.as_ref().map_or_else(Device::cpu, Buffer::device);
        let floats = device.upload(&floats)?;
        let data = floats.view();
        let target = match slices {
            None => Target::All(data),
            Some(slices) => Target::Each(slices.of(&data)?),
        };
        let mut floats = target.outputs(op)?;
        // A zero among factors whose product overflows.
        floats.iter_mut().filter(|float| float.is_nan()).for_each(|float| *float = 0.0);
        // One that wraps is 2^64 away, or more.
        let is_near = |(index, float): (usize, &f64)| {
            let mut integers = results.texts(index).filter_map(|text| text.parse::<f64>().ok());
            integers.all(|integer| (integer - float).abs() <= 1e-6 * float.abs())
        };
        if floats.iter().enumerate().all(is_near) {
            return Ok(results);
        }
        say(&format!("note: {} does not fit i64, and is computed in f64", quantity.name()));
        Ok(f64::results(floats))
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

    fn permute(&mut self, order: &[usize]) {
        self.values = order.iter().map(|&index| self.values[index]).collect();
    }

    fn reduce(&self, quantity: Quantity, ddof: u64) -> Result<Results, error::Error> {
        self.quantity(None, quantity, ddof)
    }

    fn text(&self, index: usize) -> String {
        format!("{:?}", self.values[index])
    }

    fn histogram(&self) -> Histogram {
        Histogram::of(&self.values)
    }

    fn reduce_each(&self, slices: &Slices, quantity: Quantity, ddof: u64) -> Result<Results, error::Error> {
        self.quantity(Some(slices), quantity, ddof)
    }
}

/// What is reduced. Every reduction has BLOCK 256, so that all numbers have the bits that they have as one slice.
pub enum Target<'a, T: Element> {
    /// Numbers to one result.
    All(View<'a, T>),
    /// Slices of them to a result each.
    Each(Segments<'a, View<'a, T>>),
}

impl<T: Number> Target<'_, T> {
    fn quantity(&self, quantity: Quantity, ddof: u64) -> Result<Results, error::Error> {
        let results = match quantity {
            Quantity::Sum => self.reduce(Sum),
            Quantity::Prod => self.reduce(Prod),
            Quantity::Min => self.reduce(Min),
            Quantity::Max => self.reduce(Max),
            Quantity::Minmax => self.reduce(MinMax),
            Quantity::Mean => self.mean(),
            Quantity::Var => self.reduce(Var::new(ddof)),
            Quantity::Std => self.reduce(Std::new(ddof)),
            Quantity::Sumsq => self.reduce(SumSq),
            Quantity::NormL1 => self.reduce(NormL1),
            Quantity::NormL2 => self.reduce(NormL2),
            Quantity::NormMax => self.reduce(NormMax),
            Quantity::Argmin => self.reduce(ArgMin),
            Quantity::Argmax => self.reduce(ArgMax),
            Quantity::Any => self.reduce(Any),
            Quantity::All => self.reduce(All),
            Quantity::CountNonzero => self.reduce(CountNonzero),
            Quantity::CountNan => self.reduce(CountNan),
            Quantity::Nansum => self.reduce(NanSum),
            Quantity::Nanmin => self.reduce(NanMin),
            Quantity::Nanmax => self.reduce(NanMax),
            Quantity::Nanmean => self.reduce(NanMean),
            Quantity::Nanvar => self.reduce(NanVar::new(ddof)),
            Quantity::Nanstd => self.reduce(NanStd::new(ddof)),
            Quantity::Nanargmin => self.reduce(NanArgMin),
            Quantity::Nanargmax => self.reduce(NanArgMax),
            Quantity::Moments => self.reduce(Moments::default()),
            Quantity::Skewness => self.reduce(Skewness::default()),
            Quantity::Kurtosis => self.reduce(Kurtosis::default()),
            Quantity::Logsumexp => self.reduce(LogSumExp::default()),
            Quantity::CompensatedSum => self.reduce(CompensatedSum),
            Quantity::ExactSum => self.reduce(ExactSum),
            Quantity::ExactSumTwofold => self.reduce(ExactSumTwofold),
            Quantity::ExactMean => self.reduce(ExactMean),
            Quantity::BitAnd | Quantity::BitOr | Quantity::BitXor => return T::bits(self, quantity),
        };
        Ok(results?)
    }

    /// The mean. If its sum overflows, the exact mean.
    fn mean(&self) -> Result<Results, Error> {
        let mut means = self.outputs(Mean)?;
        let is_finite = |mean: T::Real| mean.into().is_finite();
        if !means.iter().all(|&mean| is_finite(mean)) {
            for (mean, exact) in means.iter_mut().zip(self.outputs(ExactMean)?) {
                *mean = if is_finite(*mean) { *mean } else { exact };
            }
        }
        Ok(T::Real::results(means))
    }

    fn reduce<O: Op<T, Output: Output>>(&self, op: O) -> Result<Results, Error> {
        results::of(self.outputs(op))
    }

    /// It is compiled for each operator and type, and does nothing but what is of these.
    fn outputs<O: Op<T, Output: Output>>(&self, op: O) -> Result<Vec<O::Output>, Error> {
        match self {
            Target::All(data) => Ok(vec![data.reduce_by::<O, 256>(op)?]),
            Target::Each(segments) => segments.reduce_by::<O, 256>(op)?.to_vec(),
        }
    }
}

/// Numbers, by what differs between integers and floats.
pub trait Number: ExactElement<Wide: Output, Real: Value + Into<f64>, Rounded: Value> + Value {
    /// Whether they are integers.
    const IS_INTEGER: bool;

    /// A quantity of their bits, which integers have.
    fn bits(target: &Target<Self>, quantity: Quantity) -> Result<Results, error::Error>;
}

macro_rules! integers {
    ($($T:ident)*) => {$(
        impl Number for $T {
            const IS_INTEGER: bool = true;

            fn bits(target: &Target<$T>, quantity: Quantity) -> Result<Results, error::Error> {
                Ok(match quantity {
                    Quantity::BitAnd => target.reduce(BitAnd)?,
                    Quantity::BitOr => target.reduce(BitOr)?,
                    _ => target.reduce(BitXor)?,
                })
            }
        }
    )*};
}

macro_rules! floats {
    ($($T:ident)*) => {$(
        impl Number for $T {
            const IS_INTEGER: bool = false;

            fn bits(_: &Target<$T>, _: Quantity) -> Result<Results, error::Error> {
                Err(error::Error::NotIntegers { dtype: stringify!($T) })
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);
floats!(f16 bf16 f32 f64);
