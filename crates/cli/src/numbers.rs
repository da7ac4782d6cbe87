//! The numbers, of any type, behind a trait object. This file is compiled for each type; most others are not.

use std::borrow::Cow;
use std::ops::Range;

use bytemuck::cast_slice;
use clap::ValueEnum;
use gpu_reduce::{Buffer, Device, Element, Error, ExactMean, Mean, Reduce, View};
use gpu_reduce_dynamic::{Number, Operator, Target, with_type};

use super::division::Division;
use super::error;
use super::histogram::Histogram;
use super::input::Series;
use super::quantile::{self, Level};
use super::report::say;
use super::results::Results;
use super::units::Measured;

/// The operators of `--op`, and of `--quantile`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Quantity {
    Count,
    Sum,
    Prod,
    Min,
    Max,
    Minmax,
    Mean,
    Var,
    Std,
    Median,
    #[value(skip)]
    Quantile(Level),
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
    /// The name on the command line; of a quantile, `quantile_` and its level.
    pub fn name(self) -> String {
        match self {
            Quantity::Quantile(level) => format!("quantile_{}", level.0),
            _ => self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned()),
        }
    }

    /// The library's operator; none of a count, a median or a quantile.
    fn operator(self) -> Option<Operator> {
        self.name().parse().ok()
    }
}

/// Numbers of any type in host memory, and on a device after an upload.
pub trait Numbers {
    /// The size of a number in bytes.
    fn size(&self) -> usize;

    /// The bytes of all numbers.
    fn bytes(&self) -> &[u8];

    /// Allocates device memory for all numbers.
    fn allocate(&mut self, device: &Device) -> Result<(), Error>;

    /// Copies the numbers of `range` to the device.
    fn upload(&mut self, range: Range<usize>) -> Result<(), Error>;

    /// Reduces all numbers. The result has the bits of [`reduce_each`](Self::reduce_each) with one slice.
    fn reduce(&self, quantity: Quantity, ddof: u64) -> Result<Results, error::Error>;

    /// The number at `index` as text.
    fn text(&self, index: usize) -> String;

    /// The distribution of the numbers.
    fn histogram(&self) -> Result<Histogram, error::Error>;

    /// Reduces each slice.
    fn reduce_each(&self, slices: &Division, quantity: Quantity, ddof: u64) -> Result<Results, error::Error>;
}

/// The numbers of a column.
pub fn of(series: &Series) -> Box<dyn Numbers + '_> {
    let numbers: Box<dyn Numbers> = with_type!(series.dtype, T => {
        Box::new(Typed::<T> { values: series.values(), buffer: None, may_not_wrap: series.is_inferred })
    });
    match &series.unit {
        None => numbers,
        Some(unit) => Box::new(Measured { numbers, unit }),
    }
}

/// Numbers of type `T`.
struct Typed<'a, T: Element> {
    values: Cow<'a, [T]>,
    buffer: Option<Buffer<T>>,
    /// Whether sums and products that would wrap are computed in a wider type, because the user did not ask
    /// for integers.
    may_not_wrap: bool,
}

impl<T: Number> Typed<'_, T> {
    /// The numbers on the device if they were uploaded, else in host memory.
    fn data(&self) -> View<'_, T> {
        match &self.buffer {
            None => self.values[..].data(),
            Some(buffer) => buffer.view(),
        }
    }

    /// Reduces all numbers, or each slice.
    fn quantity(
        &self,
        slices: Option<&Division>,
        quantity: Quantity,
        ddof: u64,
    ) -> Result<Results, error::Error> {
        let operator = match (quantity, quantity.operator()) {
            (_, Some(operator)) => operator,
            (Quantity::Quantile(Level(level)), _) => return self.quantiles(slices, level, "quantile"),
            (Quantity::Median, _) => return self.quantiles(slices, 0.5, "median"),
            _ => return Ok(self.counts(slices).into()),
        };
        let data = self.data();
        let target = match slices {
            None => Target::All(data),
            Some(slices) => slices.divide(&data)?,
        };
        let results = match quantity {
            Quantity::Mean => means(&target)?,
            _ => target.reduce(operator, ddof)?.into(),
        };
        match quantity {
            _ if !(T::IS_INTEGER && self.may_not_wrap) => Ok(results),
            Quantity::Sum | Quantity::Nansum | Quantity::CompensatedSum if self.may_wrap(1) => {
                let exact: Results = target.reduce(Operator::ExactSum, 0)?.into();
                let is_same = (0..results.len()).all(|index| results.texts(index).eq(exact.texts(index)));
                Ok(if is_same { results } else { exact })
            }
            Quantity::Prod => self.unless_too_large(results, slices, gpu_reduce::Prod, quantity),
            Quantity::Sumsq if self.may_wrap(2) => {
                self.unless_too_large(results, slices, gpu_reduce::SumSq, quantity)
            }
            _ => Ok(results),
        }
    }

    /// The number of numbers, or of each slice's.
    fn counts(&self, slices: Option<&Division>) -> Vec<u64> {
        match slices {
            None => vec![self.values.len() as u64],
            Some(slices) => slices.counts().into_iter().map(|count| count as u64).collect(),
        }
    }

    /// The quantiles of all numbers, or of each slice, computed on the CPU for the operator `op`.
    fn quantiles(
        &self,
        slices: Option<&Division>,
        level: f64,
        op: &'static str,
    ) -> Result<Results, error::Error> {
        let (mut values, counts) = match slices {
            None => (self.values.to_vec(), vec![self.values.len()]),
            Some(slices) => (slices.arranged(&self.values), slices.counts()),
        };
        if let Some(segment) = counts.iter().position(|&count| count == 0) {
            return Err(match slices {
                None => Error::EmptyInput { op },
                Some(_) => Error::EmptySegment { op, segment: segment as u64 },
            }
            .into());
        }
        let quantiles = quantile::of_each(&mut values, &counts, level);
        Ok(quantiles.into_iter().map(T::real).collect::<Vec<_>>().into())
    }

    /// Whether the sum of the numbers' powers may overflow i64.
    fn may_wrap(&self, power: i32) -> bool {
        let largest = self.values.iter().map(|value| value.as_f64().abs()).fold(0.0, f64::max);
        largest.powi(power) * self.values.len() as f64 > i64::MAX as f64 / 2.0
    }

    /// Returns `results` if they fit i64; else reduces the numbers as f64 by `op` and prints a note.
    fn unless_too_large(
        &self,
        results: Results,
        slices: Option<&Division>,
        op: impl gpu_reduce::Op<f64, Output = f64>,
        quantity: Quantity,
    ) -> Result<Results, error::Error> {
        let floats: Vec<f64> = self.values.iter().map(|value| value.as_f64()).collect();
        let device = self.buffer.as_ref().map_or_else(Device::cpu, Buffer::device);
        let floats = device.upload(&floats)?;
        let data = floats.view();
        let target = match slices {
            None => Target::All(data),
            Some(slices) => slices.divide(&data)?,
        };
        let mut floats = target.outputs(op)?;
        // The product of an overflow to infinity and a zero is NaN; the true product is 0.
        floats.iter_mut().filter(|float| float.is_nan()).for_each(|float| *float = 0.0);
        // A result that wrapped differs by 2^64 or more.
        let is_near = |(index, float): (usize, &f64)| {
            let mut integers = results.texts(index).filter_map(|text| text.parse::<f64>().ok());
            integers.all(|integer| (integer - float).abs() <= 1e-6 * float.abs())
        };
        if floats.iter().enumerate().all(is_near) {
            return Ok(results);
        }
        say(&format!("note: {} does not fit i64, so it is computed in f64", quantity.name()));
        Ok(floats.into())
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

    fn reduce(&self, quantity: Quantity, ddof: u64) -> Result<Results, error::Error> {
        self.quantity(None, quantity, ddof)
    }

    fn text(&self, index: usize) -> String {
        format!("{:?}", self.values[index])
    }

    fn histogram(&self) -> Result<Histogram, error::Error> {
        Ok(Histogram::of(&self.values))
    }

    fn reduce_each(&self, slices: &Division, quantity: Quantity, ddof: u64) -> Result<Results, error::Error> {
        self.quantity(Some(slices), quantity, ddof)
    }
}

/// The means; the exact ones where a sum overflows.
fn means<T: Number>(target: &Target<T>) -> Result<Results, Error> {
    let mut means = target.outputs(Mean)?;
    let is_finite = |mean: T::Real| mean.into().is_finite();
    if !means.iter().all(|&mean| is_finite(mean)) {
        for (mean, exact) in means.iter_mut().zip(target.outputs(ExactMean)?) {
            *mean = if is_finite(*mean) { *mean } else { exact };
        }
    }
    Ok(means.into())
}
