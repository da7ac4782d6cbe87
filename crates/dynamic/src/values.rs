//! The results of operators, of any type, behind a trait object.

use std::fmt::{self, Debug};

use bytemuck::cast_slice;
use gpu_reduce::{Item, bf16, f16};

/// The results of an operator. Each is one number or several.
pub struct Values {
    numbers: Box<dyn Numbers>,
    width: usize,
}

impl Values {
    /// The results of an operator, one after the other.
    pub fn of<V: Value>(values: Vec<V>) -> Self {
        V::values(values)
    }

    /// Adds the results of the same operator for other parts, which follow.
    ///
    /// # Panics
    ///
    /// If the results have another type.
    pub fn append(&mut self, others: Self) {
        assert_eq!((self.type_name(), self.width), (others.type_name(), others.width));
        self.numbers.append(others.numbers);
    }

    /// The number of results.
    pub fn len(&self) -> usize {
        self.numbers.len() / self.width
    }

    /// Whether there are no results.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers in each result: 2 for minmax, 4 for moments, 1 for most operators.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A number as text, with enough digits to identify it; floats have a decimal point. Result `i` has the
    /// numbers `i * width` to `(i + 1) * width`.
    ///
    /// # Panics
    ///
    /// If there is no such number.
    pub fn text(&self, number: usize) -> String {
        self.numbers.text(number)
    }

    /// The bytes of all numbers.
    pub fn bytes(&self) -> &[u8] {
        self.numbers.bytes()
    }

    /// The name in Rust of the numbers' type, such as `f64`.
    pub fn type_name(&self) -> &'static str {
        self.numbers.type_name()
    }

    /// NumPy's name of the numbers' type, such as `<f8`. NumPy has none for `bf16` and `i128`.
    pub fn descr(&self) -> Option<&'static str> {
        self.numbers.descr()
    }
}

impl Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_list().entries((0..self.numbers.len()).map(|number| self.text(number))).finish()
    }
}

/// What an operator returns: a number, a boolean, or an array of them.
pub trait Value: Item + Debug {
    /// The name of a number's type in Rust.
    #[doc(hidden)]
    const NAME: &'static str;

    /// NumPy's name of it, if NumPy has it.
    #[doc(hidden)]
    const DESCR: Option<&'static str>;

    #[doc(hidden)]
    fn values(values: Vec<Self>) -> Values;
}

impl<V: Value, const N: usize> Value for [V; N]
where
    Self: Item,
{
    const NAME: &'static str = V::NAME;
    const DESCR: Option<&'static str> = V::DESCR;

    fn values(values: Vec<[V; N]>) -> Values {
        Values { numbers: Box::new(values.into_flattened()), width: N }
    }
}

/// Numbers of any one type.
trait Numbers: Send + Sync {
    /// Adds numbers of the same type.
    fn append(&mut self, others: Box<dyn Numbers>);

    fn len(&self) -> usize;

    fn text(&self, index: usize) -> String;

    fn bytes(&self) -> &[u8];

    fn descr(&self) -> Option<&'static str>;

    fn type_name(&self) -> &'static str;
}

impl<V: Value> Numbers for Vec<V> {
    fn append(&mut self, others: Box<dyn Numbers>) {
        self.extend_from_slice(bytemuck::checked::cast_slice(others.bytes()));
    }

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

    fn type_name(&self) -> &'static str {
        V::NAME
    }
}

macro_rules! values {
    ($($V:ident $descr:expr;)*) => {$(
        impl Value for $V {
            const NAME: &'static str = stringify!($V);
            const DESCR: Option<&'static str> = $descr;

            fn values(values: Vec<$V>) -> Values {
                Values { numbers: Box::new(values), width: 1 }
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
