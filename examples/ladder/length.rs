//! Parses lengths, such as `1000`, `2^26` or `1024*65535`, and ranges of them, such as `2^1..2^30`.

use std::str::FromStr;

/// More than fits in the memory of most GPUs, but few enough that no kernel's grid overflows.
const MOST: u64 = 1 << 32;

/// A number of elements, at least one.
#[derive(Clone, Copy)]
pub struct Length(pub usize);

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let power = |text: &str| match text.split_once('^') {
            Some((base, exponent)) => {
                base.trim().parse::<u64>().ok()?.checked_pow(exponent.trim().parse().ok()?)
            }
            None => text.trim().parse().ok(),
        };
        let product = text.split('*').try_fold(1, |product: u64, factor| product.checked_mul(power(factor)?));
        match product {
            Some(length @ 1..=MOST) => Ok(Self(length as usize)),
            _ => Err("a length is a number from 1 to 2^32, such as 1000000, 2^26 or 1024*65535".to_owned()),
        }
    }
}

/// All powers of two in a range.
#[derive(Clone)]
pub struct Sweep(pub Vec<usize>);

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "a sweep is FROM..TO, two powers of two, the lesser first, such as 2^1..2^30".to_owned();
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let [from, to] = [from, to].map(|end| end.parse().map(|Length(end)| end));
        let (from, to) = (from?, to?);
        if !from.is_power_of_two() || !to.is_power_of_two() || from > to {
            return Err(wrong());
        }
        Ok(Self((from.ilog2()..=to.ilog2()).map(|exponent| 1 << exponent).collect()))
    }
}
