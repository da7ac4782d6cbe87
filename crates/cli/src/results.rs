//! Results, of any type, behind a trait object. This file is compiled for each type; most others are not.

use std::fmt::Debug;

use bytemuck::cast_slice;
use gpu_reduce::{Error, Item, bf16, f16};

/// The results of an operator. Each is one number or several.
pub struct Results {
    numbers: Box<dyn Numbers>,
    /// The numbers per result.
    width: usize,
    /// For each slice the index of its result, if not all slices have one.
    places: Option<Vec<Option<u32>>>,
}

impl Results {
    fn new(numbers: Box<dyn Numbers>, width: usize) -> Results {
        Results { numbers, width, places: None }
    }

    /// Assigns the results to slices: `places` has the index of each slice's result, or `None` for a slice
    /// without a result.
    pub fn at(self, places: Option<Vec<Option<u32>>>) -> Results {
        Results { places, ..self }
    }

    /// The number of results.
    pub fn len(&self) -> usize {
        self.numbers.len() / self.width
    }

    /// The numbers of the result of slice `index` as text, with enough digits to identify each; floats have a
    /// decimal point. Empty texts if the slice has no result.
    pub fn texts(&self, index: usize) -> impl Iterator<Item = String> {
        let place =
            self.places.as_ref().map_or(Some(index), |places| places[index].map(|place| place as usize));
        (0..self.width).map(move |number| match place {
            Some(place) => self.numbers.text(place * self.width + number),
            None => String::new(),
        })
    }

    /// The numbers per result.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The bytes of all numbers.
    pub fn bytes(&self) -> &[u8] {
        self.numbers.bytes()
    }

    /// NumPy's name of the numbers' type, if NumPy has it.
    pub fn descr(&self) -> Option<&'static str> {
        self.numbers.descr()
    }
}

/// Converts what an operator returned.
///
/// # Errors
///
/// The operator's own.
#[inline(never)]
pub fn of<O: Output>(outputs: Result<Vec<O>, Error>) -> Result<Results, Error> {
    outputs.map(O::results)
}

/// A type that an operator returns.
pub trait Output: Item {
    fn results(outputs: Vec<Self>) -> Results;
}

impl<V: Value, const N: usize> Output for [V; N]
where
    Self: Item,
{
    fn results(outputs: Vec<[V; N]>) -> Results {
        Results::new(Box::new(outputs.into_flattened()), N)
    }
}

/// A number or a boolean.
pub trait Value: Output + Debug {
    /// NumPy's name of the type, if NumPy has it.
    const DESCR: Option<&'static str>;
}

/// Numbers of any one type.
trait Numbers: Sync {
    fn len(&self) -> usize;

    fn text(&self, index: usize) -> String;

    fn bytes(&self) -> &[u8];

    fn descr(&self) -> Option<&'static str>;
}

impl<V: Value> Numbers for Vec<V> {
    fn len(&self) -> usize {
        self[..].len()
    }

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
                Results::new(Box::new(outputs), 1)
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
