//! Results, whatever their type: what is of their type is here, for it is compiled for each.

use std::fmt::Debug;
use std::io::Write;

use bytemuck::cast_slice;
use gpu_reduce::{Buffer, Error, Item, bf16, f16};

use super::slices::Slices;

/// The results of an operator, each of which is a number, or has several.
pub struct Results {
    numbers: Box<dyn Numbers>,
    /// Numbers in a result.
    width: usize,
}

impl Results {
    /// Result `index` as text: numbers with as many digits as tell them from their neighbours, a float with its point.
    pub fn text(&self, index: usize) -> String {
        let numbers = index * self.width..(index + 1) * self.width;
        numbers.map(|number| self.numbers.text(number)).collect::<Vec<_>>().join(" ")
    }

    /// Numbers in a result.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The bytes of all numbers.
    pub fn bytes(&self) -> &[u8] {
        self.numbers.bytes()
    }

    /// NumPy's name of their type, if it has the type.
    pub fn descr(&self) -> Option<&'static str> {
        self.numbers.descr()
    }
}

/// What an operator returned for all of some numbers.
///
/// # Errors
///
/// Its own.
#[inline(never)]
pub fn of_one<O: Output>(result: Result<O, Error>) -> Result<Results, Error> {
    result.map(|output| O::results(vec![output]))
}

/// What it returned for each of some slices.
///
/// # Errors
///
/// Its own, and as [`Buffer::to_vec`].
#[inline(never)]
pub fn of_each<O: Output>(results: Result<Buffer<O>, Error>) -> Result<Results, Error> {
    Ok(O::results(results?.to_vec()?))
}

/// What an operator returns.
pub trait Output: Item {
    fn results(outputs: Vec<Self>) -> Results;
}

impl<V: Value, const N: usize> Output for [V; N]
where
    Self: Item,
{
    fn results(outputs: Vec<[V; N]>) -> Results {
        Results { numbers: Box::new(outputs.into_flattened()), width: N }
    }
}

/// A number, or whether something is so.
pub trait Value: Output + Debug {
    /// NumPy's name of the type, if it has it.
    const DESCR: Option<&'static str>;
}

/// Some of one type.
trait Numbers {
    fn text(&self, index: usize) -> String;

    fn bytes(&self) -> &[u8];

    fn descr(&self) -> Option<&'static str>;
}

impl<V: Value> Numbers for Vec<V> {
    fn text(&self, index: usize) -> String {
        format!("{:?}", self[index])
    }

    fn bytes(&self) -> &[u8] {
        cast_slice(self)
    }

    fn descr(&self) -> Option<&'static str> {
        V::DESCR
    }
}

macro_rules! values {
    ($($V:ident $descr:expr;)*) => {$(
        impl Value for $V {
            const DESCR: Option<&'static str> = $descr;
        }

        impl Output for $V {
            fn results(outputs: Vec<$V>) -> Results {
                Results { numbers: Box::new(outputs), width: 1 }
            }
        }
    )*};
}

values! {
    bool Some("|b1");
    i8 Some("|i1");
    i16 Some("<i2");
    i32 Some("<i4");
    i64 Some("<i8");
    u8 Some("|u1");
    u16 Some("<u2");
    u32 Some("<u4");
    u64 Some("<u8");
    f16 Some("<f2");
    bf16 None;
    f32 Some("<f4");
    f64 Some("<f8");
    i128 None;
}

/// Writes the results for each slice as a line of CSV; `columns` have names.
///
/// # Errors
///
/// As `to`.
pub fn write_csv(to: impl Write, slices: &Slices, columns: &[(String, Results)]) -> Result<(), csv::Error> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_field(&slices.name)?;
    for (name, results) in columns {
        match results.width {
            1 => csv.write_field(name)?,
            width => (1..=width).try_for_each(|number| csv.write_field(format!("{name}_{number}")))?,
        }
    }
    csv.write_record(None::<&str>)?;
    for index in 0..slices.len() {
        csv.write_field(slices.label(index))?;
        for (_, Results { numbers, width }) in columns {
            (index * width..(index + 1) * width)
                .try_for_each(|number| csv.write_field(numbers.text(number)))?;
        }
        csv.write_record(None::<&str>)?;
    }
    Ok(csv.flush()?)
}
