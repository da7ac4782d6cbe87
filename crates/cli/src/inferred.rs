//! The numbers of a CSV column of unknown type: i64 if all are integers that fit, or dates or times; else
//! f64.

use std::mem::take;

use bytes::Bytes;
use gpu_reduce_dynamic::Dtype;
use rayon::prelude::*;

use super::fields::{plain, short_decimal, short_integer};
use super::memory;
use super::records::Parsed;
use super::units::{self, Unit};

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
    /// What all fields are, and the integers that stand for them, if they are dates or times.
    moments: Option<(Unit, Vec<i64>)>,
}

impl Parsed for Inferred {
    fn push_text(&mut self, text: &[u8]) -> bool {
        if self.moments.is_some() {
            return self.push_moment(text);
        }
        if let (Some(floats), None) = (&mut self.floats, &self.too_large)
            && let Some(float) = short_decimal(text)
        {
            floats.push(float);
            return true;
        }
        if let (None, Some(integer)) = (&self.floats, short_integer(text)) {
            self.integers.push(integer);
            return true;
        }
        let Ok(text) = str::from_utf8(text) else { return false };
        if self.floats.is_none()
            && let Ok(integer) = text.parse()
        {
            if integer == 0 && text.starts_with('-') {
                self.negative_zeros.push(self.integers.len());
            }
            self.integers.push(integer);
            return true;
        }
        let Ok(float) = text.parse::<f64>() else {
            return match plain(text) {
                Some(text) => text.parse::<f64>().is_ok() && self.push_text(text.as_bytes()),
                None => self.push_moment(text.as_bytes()),
            };
        };
        let is_first = self.floats.is_none();
        if !is_integer(text) {
            self.too_large = None;
        } else if is_first {
            self.too_large = Some(text.to_owned());
        }
        self.make_floats().push(float);
        true
    }

    fn reserve(&mut self, count: usize) {
        match (&mut self.floats, &mut self.moments) {
            (Some(floats), _) => memory::reserve(floats, count),
            (_, Some((_, moments))) => memory::reserve(moments, count),
            _ => memory::reserve(&mut self.integers, count),
        }
    }

    fn push_all(&mut self, mut next: Inferred) -> bool {
        if self.dtype().is_none() || next.dtype().is_none() {
            if self.dtype().is_none() {
                *self = next;
            }
            return true;
        }
        match (&mut self.moments, next.moments.take()) {
            (Some((unit, moments)), Some((of_next, next))) if *unit == of_next => {
                return moments.push_all(next);
            }
            (None, None) => {}
            _ => return false,
        }
        let are_integers = self.are_integers() && next.are_integers();
        if self.floats.is_none() && next.floats.is_none() {
            let count = self.integers.len();
            self.negative_zeros.extend(next.negative_zeros.iter().map(|index| count + index));
            return self.integers.push_all(next.integers);
        }
        self.make_floats();
        next.make_floats();
        if let (Some(floats), Some(next)) = (&mut self.floats, next.floats) {
            floats.push_all(next);
        }
        self.too_large = self.too_large.take().or(next.too_large).filter(|_| are_integers);
        true
    }
}

impl Inferred {
    /// Whether every field is an integer.
    fn are_integers(&self) -> bool {
        self.floats.is_none() || self.too_large.is_some()
    }

    /// The type of the numbers; `None` without any.
    pub fn dtype(&self) -> Option<Dtype> {
        match (&self.floats, &self.moments) {
            (Some(_), _) => Some(Dtype::f64),
            (_, Some(_)) => Some(Dtype::i64),
            _ => (!self.integers.is_empty()).then_some(Dtype::i64),
        }
    }

    /// What the numbers stand for, if the fields are dates or times.
    pub fn unit(&self) -> Option<Unit> {
        self.moments.as_ref().map(|(unit, _)| unit.clone())
    }

    /// Adds the date or time of the next field; returns false if it is none, or another than the fields
    /// before.
    fn push_moment(&mut self, text: &[u8]) -> bool {
        let parsed = str::from_utf8(text).ok().and_then(units::parse);
        let is_first = self.dtype().is_none();
        match (parsed, &mut self.moments) {
            (Some((unit, moment)), None) if is_first => {
                self.moments = Some((unit, vec![moment]));
                true
            }
            (Some((unit, moment)), Some((of_all, moments))) if *of_all == unit => {
                moments.push(moment);
                true
            }
            _ => false,
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
    pub fn into_bytes(self) -> Bytes {
        match (self.floats, self.moments) {
            (Some(floats), _) => memory::into_bytes(floats),
            (_, Some((_, moments))) => memory::into_bytes(moments),
            _ => memory::into_bytes(self.integers),
        }
    }

    /// Converts the numbers to floats, with the bits of parsing the fields as floats: each is rounded once.
    fn make_floats(&mut self) -> &mut Vec<f64> {
        let Inferred { integers, negative_zeros, floats, .. } = self;
        floats.get_or_insert_with(|| {
            let mut floats: Vec<f64> = take(integers).into_par_iter().map(|integer| integer as f64).collect();
            negative_zeros.drain(..).for_each(|index| floats[index] = -0.0);
            floats
        })
    }
}

/// Whether a number is written only with digits and perhaps a sign.
fn is_integer(text: &str) -> bool {
    text.strip_prefix(['+', '-']).unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}
