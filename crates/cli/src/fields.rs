//! Numbers in the fields of CSV files, of which most are short.

use std::str::FromStr;

use gpu_reduce::{Element, bf16, f16};

/// Parses a field as [`FromStr`] does, or as [`plain`] writes it.
pub trait Field: Element {
    fn parse(field: &[u8]) -> Option<Self>;
}

macro_rules! fields {
    ($parse:ident: $($T:ident)*) => {$(
        impl Field for $T {
            fn parse(field: &[u8]) -> Option<$T> {
                $parse(field)
            }
        }
    )*};
}

fields!(integer: i8 i16 i32 i64 u8 u16 u32 u64);
fields!(float: f64);
fields!(other: f16 bf16 f32);

/// Parses an integer.
pub fn integer<I: FromStr + TryFrom<i64>>(field: &[u8]) -> Option<I> {
    match short_integer(field) {
        Some(integer) => I::try_from(integer).ok(),
        None => other(field),
    }
}

fn float(field: &[u8]) -> Option<f64> {
    short_decimal(field).or_else(|| other(field))
}

fn other<N: FromStr>(field: &[u8]) -> Option<N> {
    let text = str::from_utf8(field).ok()?;
    text.parse().ok().or_else(|| plain(text)?.parse().ok())
}

/// A hexadecimal integer, such as `0x1f`, as a decimal one, or a percentage, such as `12.5 %`, with an
/// exponent.
pub fn plain(text: &str) -> Option<String> {
    if let Some(number) = text.strip_suffix('%') {
        let is_part = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-');
        let number = number.trim_end();
        return number.bytes().all(is_part).then(|| format!("{number}e-2"));
    }
    let (sign, number) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    let digits = number.strip_prefix("0x").or_else(|| number.strip_prefix("0X"))?;
    // The parser would accept a second sign.
    let integer = u128::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
    Some(format!("{sign}{integer}"))
}

/// Parses an integer of at most 18 digits, which cannot overflow, if this is how its value is written:
/// without `+`, leading zeros or `-0`.
pub fn short_integer(field: &[u8]) -> Option<i64> {
    const MOST: usize = 18;
    let (is_negative, number) = signed(field);
    match number {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if number.len() <= MOST => {}
        _ => return None,
    }
    let (magnitude, rest) = digits(0, number);
    let magnitude = magnitude as i64;
    rest.is_empty().then_some(if is_negative { -magnitude } else { magnitude })
}

/// Parses a decimal number without an exponent whose digits form an integer of at most 2^53; other numbers
/// are `None`. As in `str::parse`, the result is the nearest float: the quotient of two integers that floats
/// represent is rounded once.
pub fn short_decimal(field: &[u8]) -> Option<f64> {
    /// As many digits cannot overflow.
    const POWERS: [f64; 19] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18,
    ];
    let (is_negative, number) = signed(field);
    if number.len() > POWERS.len() {
        return None;
    }
    let (mut integer, mut rest) = digits(0, number);
    let mut decimals = 0;
    if let [b'.', fraction @ ..] = rest {
        decimals = fraction.len();
        (integer, rest) = digits(integer, fraction);
    }
    // A lone point is no number.
    if !rest.is_empty() || matches!(number, [] | b".") || integer > 1 << f64::MANTISSA_DIGITS {
        return None;
    }
    let float = integer as f64 / POWERS[decimals];
    Some(if is_negative { -float } else { float })
}

/// Whether the field starts with a minus sign, and what follows it.
fn signed(field: &[u8]) -> (bool, &[u8]) {
    match field {
        [b'-', number @ ..] => (true, number),
        number => (false, number),
    }
}

/// Appends the digits at the start of the text to a number that cannot overflow by them; also returns what
/// follows them.
fn digits(mut number: u64, mut text: &[u8]) -> (u64, &[u8]) {
    while let Some((word, rest)) = text.split_first_chunk()
        && let Some(digits) = eight_digits(u64::from_le_bytes(*word))
    {
        (number, text) = (100_000_000 * number + digits, rest);
    }
    for (index, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (number, &text[index..]);
        }
        number = 10 * number + u64::from(digit);
    }
    (number, &[])
}

/// The number whose eight digits are the bytes of a word, the lowest first.
fn eight_digits(word: u64) -> Option<u64> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const SIXES: u64 = 0x0606_0606_0606_0606;
    if (word & HIGH) != ZEROS || (word.wrapping_add(SIXES) & HIGH) != ZEROS {
        return None;
    }
    let digits = word - ZEROS;
    // Each step joins two neighbours: digits to pairs, pairs to fours, fours to the number.
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours & 0xffff) * 10_000 + (fours >> 32))
}
