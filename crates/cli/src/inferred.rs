//! The numbers of a CSV column whose type nobody names: i64 as long as all are integers that fit it, else f64.

use std::mem::take;

use bytemuck::cast_slice;

use super::input::Dtype;

/// Numbers of one of two types.
#[derive(Default)]
pub struct Inferred {
    /// All numbers, while all fields are integers that fit i64; else empty.
    integers: Vec<i64>,
    /// The places of `-0` among them, which as a float has its sign.
    negative_zeros: Vec<usize>,
    /// All numbers, from the first field on that is none of those.
    floats: Option<Vec<f64>>,
    /// The first integer that does not fit i64, while all fields are integers.
    too_large: Option<String>,
}

impl Inferred {
    /// Takes the next field; says whether it is a number.
    pub fn push(&mut self, text: &str) -> bool {
        if self.floats.is_none()
            && let Ok(integer) = text.parse()
        {
            if integer == 0 && text.starts_with('-') {
                self.negative_zeros.push(self.integers.len());
            }
            self.integers.push(integer);
            return true;
        }
        let Ok(float) = text.parse::<f64>() else { return false };
        let is_first = self.floats.is_none();
        if !is_integer(text) {
            self.too_large = None;
        } else if is_first {
            self.too_large = Some(text.to_owned());
        }
        self.make_floats().push(float);
        true
    }

    /// The type of the fields; none if there are none.
    pub fn dtype(&self) -> Option<Dtype> {
        match &self.floats {
            Some(_) => Some(Dtype::f64),
            None => (!self.integers.is_empty()).then_some(Dtype::i64),
        }
    }

    /// Makes the numbers `dtype`, which is i64 only if they fit it. Returns the integer that does not fit i64, if a column
    /// of integers is f64 for it.
    pub fn become_of(&mut self, dtype: Dtype) -> Option<&str> {
        if dtype == Dtype::f64 {
            self.make_floats();
        }
        self.too_large.as_deref()
    }

    /// The bytes of the numbers.
    pub fn bytes(&self) -> &[u8] {
        match &self.floats {
            Some(floats) => cast_slice(floats),
            None => cast_slice(&self.integers),
        }
    }

    /// The numbers as floats, with the bits of parsing them as such: each is rounded once.
    fn make_floats(&mut self) -> &mut Vec<f64> {
        let Inferred { integers, negative_zeros, floats, .. } = self;
        floats.get_or_insert_with(|| {
            let mut floats: Vec<f64> = take(integers).into_iter().map(|integer| integer as f64).collect();
            negative_zeros.drain(..).for_each(|index| floats[index] = -0.0);
            floats
        })
    }
}

/// Whether a number is written with digits alone, but for its sign.
fn is_integer(text: &str) -> bool {
    text.strip_prefix(['+', '-']).unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
