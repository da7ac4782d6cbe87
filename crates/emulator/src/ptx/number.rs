//! Constants (PTX ISA, "Constants").

/// A constant as written, before its use rounds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// The two's complement bits.
    Integer(u64),
    /// The bits of `0f3F800000`.
    F32(u32),
    /// The bits of `0d3FF0000000000000`, or of a decimal such as `1.5`.
    F64(u64),
}

impl Number {
    pub(super) fn parse(text: &str, negative: bool) -> Result<Number, String> {
        let sign = u64::from(negative);
        if let Some(digits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
            let bits = bits(digits, 8).ok_or_else(|| wrong(text, "a float of 8 hexadecimal digits"))?;
            return Ok(Number::F32((bits ^ sign << 31) as u32));
        }
        if let Some(digits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
            let bits = bits(digits, 16).ok_or_else(|| wrong(text, "a float of 16 hexadecimal digits"))?;
            return Ok(Number::F64(bits ^ sign << 63));
        }
        let decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
        if decimal && text.contains(['.', 'e', 'E']) {
            let value: f64 = text.parse().map_err(|_| wrong(text, "a float"))?;
            return Ok(Number::F64(value.to_bits() ^ sign << 63));
        }
        integer(text, negative).map(Number::Integer)
    }
}

fn wrong(text: &str, kind: &str) -> String {
    format!("`{text:.40}` is not {kind}")
}

fn bits(digits: &str, length: usize) -> Option<u64> {
    // `from_str_radix` would also accept a sign.
    let fits = digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    fits.then(|| u64::from_str_radix(digits, 16).ok())?
}

fn integer(text: &str, negative: bool) -> Result<u64, String> {
    let digits = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(wrong(text, "an integer"));
    }
    match u64::from_str_radix(digits, radix) {
        Ok(value) if !negative => Ok(value),
        Ok(value) if value <= 1 << 63 => Ok(value.wrapping_neg()),
        _ => Err(format!("`{}{text:.40}` does not fit 64 bits", if negative { "-" } else { "" })),
    }
}
