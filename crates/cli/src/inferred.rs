//! The numbers of a CSV column of unknown type: i64 if all are integers that fit, else f64.

use std::mem::take;

use bytemuck::cast_slice;

use super::input::Dtype;

/// The numbers parsed so far, as i64 or f64.
#[derive(Default)]
pub struct Inferred {
    /// All numbers, as long as every field is an integer that fits i64; then empty.
    integers: Vec<i64>,
    /// The indices of `-0`, whose sign matters if the column becomes f64.
    negative_zeros: Vec<usize>,
    /// All numbers, once a field was not an integer that fits i64.
    floats: Option<Vec<f64>>,
    /// The first integer that does not fit i64, as long as every field is an integer.
    too_large: Option<String>,
}

impl Inferred {
    /// Adds the next field; returns whether it is a number.
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

    /// The type of the numbers; `None` without any.
    pub fn dtype(&self) -> Option<Dtype> {
        match &self.floats {
            Some(_) => Some(Dtype::f64),
            None => (!self.integers.is_empty()).then_some(Dtype::i64),
        }
    }

    /// Converts the numbers to `dtype`: f64, or i64 if they are that already. Returns the integer that forced
    /// a column of integers to f64, if there is one.
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

    /// Converts the numbers to floats, with the bits of parsing the fields as floats: each is rounded once.
    fn make_floats(&mut self) -> &mut Vec<f64> {
        let Inferred { integers, negative_zeros, floats, .. } = self;
        floats.get_or_insert_with(|| {
            let mut floats: Vec<f64> = take(integers).into_iter().map(|integer| integer as f64).collect();
            negative_zeros.drain(..).for_each(|index| floats[index] = -0.0);
            floats
        })
    }
}

/// Whether a number is written only with digits and perhaps a sign.
fn is_integer(text: &str) -> bool {
    text.strip_prefix(['+', '-']).unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
