//! Columns whose integers stand for decimals, dates or times.

use std::fmt::{self, Display};
use std::ops::Range;

use arrow_array::types::{Decimal128Type, DecimalType as _};
use arrow_schema::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _};
use gpu_reduce::Device;
use gpu_reduce_dynamic::{Dtype, cast};

use super::arrays::moment;
use super::division::Division;
use super::error::Error;
use super::histogram::Histogram;
use super::numbers::{Numbers, Quantity};
use super::results::Results;

/// What the integers of a column stand for: the type of Arrow with these values, the same for all decimals
/// with as many digits after the point, and for all times with a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit(DataType);

impl Unit {
    /// The unit of an Arrow type, if its values are not plain numbers. Durations are decimals, in seconds.
    pub fn of(data_type: &DataType) -> Option<Unit> {
        let decimal = |scale| DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
        Some(Unit(match *data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => decimal(scale),
            DataType::Duration(TimeUnit::Second) => decimal(0),
            DataType::Duration(TimeUnit::Millisecond) => decimal(3),
            DataType::Duration(TimeUnit::Microsecond) => decimal(6),
            DataType::Duration(TimeUnit::Nanosecond) => decimal(9),
            DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(unit, Some("UTC".into())),
            DataType::Interval(_) => return None,
            ref moment if moment.is_temporal() => moment.clone(),
            _ => return None,
        }))
    }

    /// The type of the integers.
    pub fn dtype(&self) -> Dtype {
        match self.0 {
            DataType::Date32 | DataType::Time32(_) => Dtype::i32,
            _ => Dtype::i64,
        }
    }

    /// The number of digits after the point, if this is a decimal.
    pub fn scale(&self) -> Option<i8> {
        match self.0 {
            DataType::Decimal128(_, scale) => Some(scale),
            _ => None,
        }
    }

    /// What an integer, given as text, stands for.
    fn text(&self, integer: &str) -> String {
        let Ok(value) = integer.parse::<i128>() else { return integer.to_owned() };
        match self.scale() {
            Some(scale) => Decimal128Type::format_decimal(value, DECIMAL128_MAX_PRECISION, scale),
            None => i64::try_from(value).map_or(integer.to_owned(), |value| moment(&self.0, value)),
        }
    }

    /// What is nearest to a number that is an integer or lies between two. An f64 does not hold each
    /// nanosecond since 1970: of these, it is rounded to microseconds.
    fn nearest(&self, number: &str) -> String {
        let Ok(value) = number.parse::<f64>() else { return number.to_owned() };
        match (self.scale(), &self.0) {
            (Some(scale), _) => format!("{:?}", value / 10_f64.powi(scale.into())),
            (_, DataType::Timestamp(TimeUnit::Nanosecond, _)) => {
                self.text(&(1000 * (value / 1000.0).round_ties_even() as i128).to_string())
            }
            _ => self.text(&(value.round_ties_even() as i128).to_string()),
        }
    }
}

/// Arrow's name of the type.
impl Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Unit {
    /// What the values are called.
    pub fn name(&self) -> &'static str {
        match self.0 {
            DataType::Decimal128(..) => "decimals",
            DataType::Date32 | DataType::Date64 => "dates",
            _ => "times",
        }
    }
}

const SECONDS_OF_A_DAY: i64 = 86_400;

/// Parses a date, a time, or a date with a time and perhaps a zone, written as in ISO 8601. Times have up to
/// six digits after the second's point; the time after a date may follow a space.
pub fn parse(text: &str) -> Option<(Unit, i64)> {
    if text.get(4..5) != Some("-") {
        let time: NaiveTime = text.parse().ok()?;
        let nanoseconds =
            i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond());
        let is_plain = text.as_bytes().get(2) == Some(&b':') && nanoseconds % 1000 == 0;
        return is_plain.then_some((Unit(DataType::Time64(TimeUnit::Microsecond)), nanoseconds / 1000));
    }
    if text.len() == "2026-11-26".len() {
        let instant = text.parse::<NaiveDate>().ok()?.and_time(NaiveTime::MIN);
        return Some((Unit(DataType::Date32), instant.and_utc().timestamp().div_euclid(SECONDS_OF_A_DAY)));
    }
    let form = |zone| Unit(DataType::Timestamp(TimeUnit::Microsecond, zone));
    let (unit, instant) = match DateTime::parse_from_rfc3339(text) {
        Ok(instant) => (form(Some("UTC".into())), instant.to_utc()),
        Err(_) => {
            let form_of = |form| NaiveDateTime::parse_from_str(text, form).ok();
            let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"];
            (form(None), forms.into_iter().find_map(form_of)?.and_utc())
        }
    };
    (instant.timestamp_subsec_nanos() % 1000 == 0).then(|| (unit, instant.timestamp_micros()))
}

/// The float nearest to a decimal, which is `integer` with `scale` digits after its point.
pub fn float(integer: i128, scale: i8) -> f64 {
    /// The largest power of ten that is an f64 has this many zeros.
    const MOST: i8 = 22;
    let is_exact = integer.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS && (0..=MOST).contains(&scale);
    match is_exact {
        true => integer as f64 / 10_f64.powi(scale.into()),
        false => format!("{integer}e{}", -i16::from(scale)).parse().unwrap_or(f64::NAN),
    }
}

/// Numbers that stand for decimals, dates or times.
pub struct Measured<'a> {
    pub numbers: Box<dyn Numbers + 'a>,
    pub unit: &'a Unit,
}

impl Measured<'_> {
    /// Reduces by `reduce` what gives the quantity, and converts the results.
    fn measured(
        &self,
        quantity: Quantity,
        reduce: impl Fn(Quantity) -> Result<Results, Error>,
    ) -> Result<Results, Error> {
        use Quantity::*;
        let unit = self.unit.clone();
        let is_decimal = unit.scale().is_some();
        match quantity {
            Count | Argmin | Argmax | Nanargmin | Nanargmax | CountNan => reduce(quantity),
            Any | All | CountNonzero if is_decimal => reduce(quantity),
            Sum | Nansum | CompensatedSum | ExactSum if is_decimal => {
                Ok(reduce(ExactSum)?.converted(move |sum| unit.text(sum)))
            }
            Min | Max | Minmax | Nanmin | Nanmax => {
                Ok(reduce(quantity)?.converted(move |value| unit.text(value)))
            }
            Median | Quantile(_) => Ok(reduce(quantity)?.converted(move |value| unit.nearest(value))),
            Mean | Nanmean | ExactMean => self.means(&reduce(ExactSum)?, &reduce(Count)?),
            _ => Err(Error::NotOfUnit { quantity: quantity.name(), unit }),
        }
    }

    /// The means: of decimals, floats; of dates and times, the nearest ones.
    fn means(&self, sums: &Results, counts: &Results) -> Result<Results, Error> {
        let integer = |results: &Results, index| {
            results.texts(index).next().and_then(|text| text.parse::<i128>().ok()).unwrap_or(0)
        };
        let all = (0..sums.len()).map(|index| (integer(sums, index), integer(counts, index)));
        if all.clone().any(|(_, count)| count == 0) {
            return Err(gpu_reduce::Error::EmptyInput { op: "mean" }.into());
        }
        Ok(match self.unit.scale() {
            Some(scale) => {
                let power = 10_f64.powi(scale.into());
                all.map(|(sum, count)| sum as f64 / (count as f64 * power)).collect::<Vec<_>>().into()
            }
            None => {
                let unit = self.unit.clone();
                let nearest = |(sum, count): (i128, i128)| (2 * sum + count).div_euclid(2 * count);
                Results::from(all.map(nearest).collect::<Vec<_>>()).converted(move |mean| unit.text(mean))
            }
        })
    }
}

impl Numbers for Measured<'_> {
    fn size(&self) -> usize {
        self.numbers.size()
    }

    fn bytes(&self) -> &[u8] {
        self.numbers.bytes()
    }

    fn allocate(&mut self, device: &Device) -> Result<(), gpu_reduce::Error> {
        self.numbers.allocate(device)
    }

    fn upload(&mut self, range: Range<usize>) -> Result<(), gpu_reduce::Error> {
        self.numbers.upload(range)
    }

    fn reduce(&self, quantity: Quantity, ddof: u64) -> Result<Results, Error> {
        self.measured(quantity, |quantity| self.numbers.reduce(quantity, ddof))
    }

    fn text(&self, index: usize) -> String {
        self.unit.text(&self.numbers.text(index))
    }

    fn histogram(&self) -> Result<Histogram, Error> {
        let Some(scale) = self.unit.scale() else {
            return Err(Error::Plot {
                reason: format!("the column holds {}, not numbers", self.unit.name()),
            });
        };
        let integers = cast::<i64>(self.numbers.bytes());
        Ok(Histogram::of(&integers.iter().map(|&integer| float(integer.into(), scale)).collect::<Vec<_>>()))
    }

    fn reduce_each(&self, slices: &Division, quantity: Quantity, ddof: u64) -> Result<Results, Error> {
        self.measured(quantity, |quantity| self.numbers.reduce_each(slices, quantity, ddof))
    }
}
