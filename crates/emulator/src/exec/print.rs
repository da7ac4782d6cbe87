//! `printf` and `assert` in kernels. (CUDA C++ Programming Guide, "Formatted Output", "Assertion".)

use std::io::Write;

use crate::{
    fault::{Fault, FaultKind},
    program::code::{Assert, Print},
};

use super::{
    block::State,
    lanes::{LANES, lanes},
    warp::Warp,
};

/// The most arguments per call. Conversions beyond them are printed literally.
const MOST_ARGUMENTS: usize = 32;
/// The largest width and precision, within the limits of `format!`.
const MOST_WIDTH: usize = 60_000;
/// The result of a call without a format.
const NO_FORMAT: u64 = -1i32 as u32 as u64;

impl State<'_> {
    /// Runs `vprintf` for each lane in order. The output of one call is never interleaved with others.
    #[cold]
    pub fn print(&mut self, warp: &mut Warp, print: &Print, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let [formats, buffers] =
            [print.format, print.arguments].map(|register| warp.registers.wide(register));
        let mut output = Vec::new();
        let mut results = [NO_FORMAT; LANES];
        let mut before = None;
        for lane in lanes(active).filter(|&lane| formats[lane] != 0) {
            let address = formats[lane];
            let format = match before.take().filter(|(known, _)| *known == address) {
                Some((_, format)) => format,
                None => Reader { state: self, warp, lane, at, next: 0 }.text(address, usize::MAX)?,
            };
            let mut arguments = Reader { state: self, warp, lane, at, next: buffers[lane] };
            results[lane] = write(&format, &mut arguments, &mut output)? as u64;
            before = Some((address, format));
        }
        // A closed standard output is not the kernel's fault.
        let mut stdout = std::io::stdout().lock();
        _ = stdout.write_all(&output).and_then(|()| stdout.flush());
        warp.registers.set_wide(print.result, &results, active);
        Ok(())
    }

    /// Prints a line on standard error for each lane whose assertion failed, and returns the fault.
    #[cold]
    pub fn assert(&mut self, warp: &mut Warp, assert: &Assert, active: u32, at: u32) -> Box<Fault> {
        let [messages, files, lines, functions] = [assert.message, assert.file, assert.line, assert.function]
            .map(|register| warp.registers.wide(register));
        let mut first = None;
        for lane in lanes(active) {
            let mut reader = Reader { state: self, warp, lane, at, next: 0 };
            let mut text = |address| {
                let bytes = if address == 0 { Vec::new() } else { reader.text(address, usize::MAX)? };
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            };
            let texts = [files[lane], functions[lane], messages[lane]].map(&mut text);
            let [file, function, message] = match texts {
                [Ok(file), Ok(function), Ok(message)] => [file, function, message],
                [Err(fault), ..] | [_, Err(fault), _] | [.., Err(fault)] => return fault,
            };
            let [bx, by, bz] = self.site.index;
            let [x, y, z] = self.site.grid.thread(warp.index, lane as u32);
            let place = format!("{file}:{}: {function}", lines[lane]);
            eprintln!(
                "{place}: block: [{bx},{by},{bz}], thread: [{x},{y},{z}] Assertion `{message}` failed."
            );
            let within = match &assert.callers[..] {
                [] => String::new(),
                callers => format!(", in {}", callers.join(" > ")),
            };
            first.get_or_insert(format!("{place}: Assertion `{message}` failed{within}"));
        }
        self.site.fault(warp.index, at, active, FaultKind::Assert(first.unwrap_or_default()))
    }
}

/// The source of a call's arguments.
trait Arguments {
    type Error;

    /// The next argument, of 4 or 8 bytes, aligned to its size.
    fn next(&mut self, bytes: u32) -> Result<u64, Self::Error>;

    /// The string at an address, up to its zero byte or `most` bytes.
    fn text(&mut self, address: u64, most: usize) -> Result<Vec<u8>, Self::Error>;
}

/// Reads arguments as a lane of a kernel.
struct Reader<'a, 'g> {
    state: &'a mut State<'g>,
    warp: &'a mut Warp,
    lane: usize,
    at: u32,
    /// The address after the last argument.
    next: u64,
}

impl Arguments for Reader<'_, '_> {
    type Error = Box<Fault>;

    fn next(&mut self, bytes: u32) -> Result<u64, Box<Fault>> {
        let address = self.next.wrapping_add(u64::from(bytes) - 1) & !(u64::from(bytes) - 1);
        self.next = address.wrapping_add(bytes.into());
        self.state.peek(self.warp, self.lane, (address, bytes), self.at)
    }

    fn text(&mut self, address: u64, most: usize) -> Result<Vec<u8>, Box<Fault>> {
        let mut text = Vec::new();
        while text.len() < most {
            let address = address.wrapping_add(text.len() as u64);
            match self.state.peek(self.warp, self.lane, (address, 1), self.at)? {
                0 => break,
                byte => text.push(byte as u8),
            }
        }
        Ok(text)
    }
}

/// Writes a call's output. Returns the number of arguments used.
fn write<A: Arguments>(format: &[u8], arguments: &mut A, output: &mut Vec<u8>) -> Result<usize, A::Error> {
    let (mut rest, mut count) = (format, 0);
    while let Some(place) = rest.iter().position(|&byte| byte == b'%') {
        output.extend(&rest[..place]);
        rest = &rest[place + 1..];
        if let [b'%', after @ ..] = rest {
            output.push(b'%');
            rest = after;
            continue;
        }
        let known = Conversion::parse(rest)
            .filter(|(conversion, _)| count + conversion.arguments() <= MOST_ARGUMENTS);
        match known {
            Some((conversion, after)) => {
                count += conversion.arguments();
                conversion.write(arguments, output)?;
                rest = after;
            }
            None => output.push(b'%'),
        }
    }
    output.extend(rest);
    Ok(count)
}

/// A width or a precision: a number, or an argument.
#[derive(Clone, Copy)]
enum Size {
    Number(usize),
    Argument,
}

/// A conversion such as `%-8.3lld`, without the `%`.
#[derive(Clone, Copy)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zero: bool,
    width: Option<Size>,
    precision: Option<Size>,
    /// The size of an integer argument in bytes.
    bytes: u32,
    kind: u8,
}

impl Conversion {
    /// Parses the conversion at the start of a text. Returns it with the rest of the text.
    fn parse(text: &[u8]) -> Option<(Conversion, &[u8])> {
        let flags = text.iter().take_while(|byte| b"-+ #0".contains(byte)).count();
        let has = |flag: u8| text[..flags].contains(&flag);
        let (width, rest) = size(&text[flags..]);
        let (precision, rest) = match rest {
            [b'.', rest @ ..] => {
                let (precision, rest) = size(rest);
                (precision.or(Some(Size::Number(0))), rest)
            }
            _ => (None, rest),
        };
        let (bytes, rest) = match rest {
            [b'h', b'h', rest @ ..] => (1, rest),
            [b'h', rest @ ..] => (2, rest),
            [b'l', b'l', rest @ ..] | [b'l' | b'j' | b'z' | b't', rest @ ..] => (8, rest),
            _ => (4, rest),
        };
        let (&kind, rest) = rest.split_first().filter(|(kind, _)| b"diouxXcspfFeEgGaA".contains(kind))?;
        let [left, plus, space, alternative, zero] = [b'-', b'+', b' ', b'#', b'0'].map(has);
        Some((Conversion { left, plus, space, alternative, zero, width, precision, bytes, kind }, rest))
    }

    fn arguments(&self) -> usize {
        let given = |size: Option<Size>| usize::from(matches!(size, Some(Size::Argument)));
        1 + given(self.width) + given(self.precision)
    }

    fn write<A: Arguments>(mut self, arguments: &mut A, output: &mut Vec<u8>) -> Result<(), A::Error> {
        let mut number = |size: Option<Size>| {
            Ok(match size {
                None => None,
                Some(Size::Number(number)) => Some(number as i64),
                Some(Size::Argument) => Some(i64::from(arguments.next(4)? as i32)),
            })
        };
        let width = number(self.width)?.unwrap_or(0);
        // A negative width means the `-` flag, a negative precision none.
        self.left |= width < 0;
        let width = (width.unsigned_abs() as usize).min(MOST_WIDTH);
        let precision = number(self.precision)?.and_then(|number| usize::try_from(number).ok());
        let precision = precision.map(|digits| digits.min(MOST_WIDTH));
        let mut zeros = self.zero && !self.left;
        let (sign, body) = match self.kind {
            b'c' => (String::new(), vec![arguments.next(4)? as u8]),
            b's' => {
                let address = arguments.next(8)?;
                let most = precision.unwrap_or(usize::MAX);
                let text = match address {
                    0 if most < 6 => Vec::new(),
                    0 => b"(null)".to_vec(),
                    address => arguments.text(address, most)?,
                };
                (String::new(), text)
            }
            b'p' => match arguments.next(8)? {
                0 => (String::new(), b"(nil)".to_vec()),
                address => ("0x".to_owned(), format!("{address:x}").into_bytes()),
            },
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let value = f64::from_bits(arguments.next(8)?);
                zeros &= value.is_finite();
                self.float(value, precision)
            }
            _ => {
                zeros &= precision.is_none();
                let value = arguments.next(self.bytes.max(4))?;
                self.integer(value, precision)
            }
        };
        zeros &= !matches!(self.kind, b'c' | b's');
        let blank = width.saturating_sub(sign.len() + body.len());
        let fill = |output: &mut Vec<u8>, wanted: bool, byte: u8| {
            output.resize(output.len() + if wanted { blank } else { 0 }, byte);
        };
        fill(output, !self.left && !zeros, b' ');
        output.extend(sign.bytes());
        fill(output, zeros, b'0');
        output.extend(body);
        fill(output, self.left, b' ');
        Ok(())
    }

    /// The sign character of a number.
    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn integer(&self, bits: u64, precision: Option<usize>) -> (String, Vec<u8>) {
        let unused = 64 - 8 * self.bytes;
        let signed = matches!(self.kind, b'd' | b'i');
        let extended = (bits << unused) as i64 >> unused;
        let value = if signed { extended.unsigned_abs() } else { bits << unused >> unused };
        let mut digits = match self.kind {
            b'o' => format!("{value:o}"),
            b'x' => format!("{value:x}"),
            b'X' => format!("{value:X}"),
            _ => value.to_string(),
        };
        if value == 0 && precision == Some(0) {
            digits.clear();
        }
        let mut least = precision.unwrap_or(0);
        if self.alternative && self.kind == b'o' && !digits.starts_with('0') {
            least = least.max(digits.len() + 1);
        }
        let zeros = "0".repeat(least.saturating_sub(digits.len()));
        let sign = match self.kind {
            b'x' if self.alternative && value != 0 => "0x",
            b'X' if self.alternative && value != 0 => "0X",
            _ if signed => self.sign(extended < 0),
            _ => "",
        };
        (sign.to_owned(), (zeros + &digits).into_bytes())
    }

    fn float(&self, value: f64, precision: Option<usize>) -> (String, Vec<u8>) {
        let magnitude = value.abs();
        let mut sign = self.sign(value.is_sign_negative()).to_owned();
        let mut text = match self.kind.to_ascii_lowercase() {
            _ if value.is_nan() => "nan".to_owned(),
            _ if value.is_infinite() => "inf".to_owned(),
            b'f' => self.pointed(format!("{magnitude:.*}", precision.unwrap_or(6))),
            b'e' => self.scientific(magnitude, precision.unwrap_or(6)),
            b'g' => self.shorter(magnitude, precision.unwrap_or(6).max(1)),
            _ => {
                sign.push_str("0x");
                self.hexadecimal(magnitude, precision)
            }
        };
        if self.kind.is_ascii_uppercase() {
            sign.make_ascii_uppercase();
            text.make_ascii_uppercase();
        }
        (sign, text.into_bytes())
    }

    /// Adds a point to a number without one if the flag `#` is set.
    fn pointed(&self, digits: String) -> String {
        if self.alternative && !digits.contains('.') { digits + "." } else { digits }
    }

    /// `%e`: `1.5e+00`.
    fn scientific(&self, value: f64, precision: usize) -> String {
        let (digits, exponent) = exponential(value, precision);
        format!("{}e{exponent:+03}", self.pointed(digits))
    }

    /// `%g`: with an exponent only if it is small or large, and without trailing zeros.
    fn shorter(&self, value: f64, precision: usize) -> String {
        let (digits, exponent) = exponential(value, precision - 1);
        let strip = |digits: String| match digits.contains('.') && !self.alternative {
            true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => self.pointed(digits),
        };
        if (-4..precision as i64).contains(&exponent) {
            strip(format!("{value:.*}", (precision as i64 - 1 - exponent) as usize))
        } else {
            format!("{}e{exponent:+03}", strip(digits))
        }
    }

    /// `%a` after the `0x`: `1.8p+0`.
    fn hexadecimal(&self, value: f64, precision: Option<usize>) -> String {
        const FRACTION: usize = 13;
        let bits = value.to_bits();
        let exponent = (bits >> 52) as i64;
        let (lead, power) = match exponent {
            0 if value == 0.0 => (0, 0),
            0 => (0, -1022),
            exponent => (1, exponent - 1023),
        };
        let mut significand = lead << 52 | bits & ((1 << 52) - 1);
        // Round to even.
        if let Some(left_out) = precision.and_then(|digits| FRACTION.checked_sub(digits)).filter(|&n| n > 0) {
            let unit = 1u64 << (4 * left_out);
            let (rest, odd) = (significand % unit, significand / unit % 2);
            significand -= rest;
            if rest > unit / 2 || rest == unit / 2 && odd == 1 {
                significand += unit;
            }
        }
        let fraction = format!("{:013x}", significand & ((1 << 52) - 1));
        let fraction = match precision {
            Some(digits) if digits <= FRACTION => fraction[..digits].to_owned(),
            Some(digits) => fraction + &"0".repeat(digits - FRACTION),
            None => fraction.trim_end_matches('0').to_owned(),
        };
        let point = if fraction.is_empty() && !self.alternative { "" } else { "." };
        format!("{:x}{point}{fraction}p{power:+}", significand >> 52)
    }
}

/// The digits of a number, `1.5`, and its exponent.
fn exponential(value: f64, precision: usize) -> (String, i64) {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

/// Parses a number or `*` at the start of a text. Returns it with the rest of the text.
fn size(text: &[u8]) -> (Option<Size>, &[u8]) {
    if let [b'*', rest @ ..] = text {
        return (Some(Size::Argument), rest);
    }
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = text[..count].iter();
    let number = digits
        .fold(0usize, |number, digit| number.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
    ((count > 0).then_some(Size::Number(number.min(MOST_WIDTH))), &text[count..])
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::ffi::{CStr, CString, c_char, c_int};

    use super::*;

    unsafe extern "C" {
        /// The C library's `snprintf`, the reference.
        fn snprintf(to: *mut c_char, bytes: usize, format: *const c_char, ...) -> c_int;
    }

    /// Arguments from a list. The address of a string is a host address.
    struct Given(Vec<u64>);

    impl Arguments for Given {
        type Error = Infallible;

        fn next(&mut self, _bytes: u32) -> Result<u64, Infallible> {
            Ok(self.0.remove(0))
        }

        fn text(&mut self, address: u64, most: usize) -> Result<Vec<u8>, Infallible> {
            // SAFETY: the tests pass addresses of C strings that outlive the call.
            let text = unsafe { CStr::from_ptr(address as *const c_char) }.to_bytes();
            Ok(text[..text.len().min(most)].to_vec())
        }
    }

    fn ours(format: &str, arguments: &[u64]) -> (String, usize) {
        let mut output = Vec::new();
        let Ok(count) = write(format.as_bytes(), &mut Given(arguments.to_vec()), &mut output);
        (String::from_utf8(output).unwrap(), count)
    }

    /// The output of C's `snprintf`. A macro, because variadic arguments have different types.
    macro_rules! c {
        ($format:expr, $($argument:expr),*) => {{
            let format = CString::new($format).unwrap();
            let mut text = vec![0u8; 2000];
            let (to, bytes) = (text.as_mut_ptr().cast(), text.len());
            // SAFETY: `text` is larger than any output, and the arguments match the format.
            let bytes = unsafe { snprintf(to, bytes, format.as_ptr(), $($argument),*) };
            String::from_utf8(text[..bytes as usize].to_vec()).unwrap()
        }};
    }

    /// Calls `check` with every combination of flags and with some widths and precisions.
    fn each_format(conversion: &str, mut check: impl FnMut(&str)) {
        for flags in 0..32 {
            let flags: String = (0..5)
                .filter(|bit| flags >> bit & 1 != 0)
                .map(|bit| ['-', '+', ' ', '#', '0'][bit])
                .collect();
            for width in ["", "1", "12", "40"] {
                for precision in ["", ".", ".0", ".1", ".3", ".13", ".20"] {
                    check(&format!("[%{flags}{width}{precision}{conversion}]"));
                }
            }
        }
    }

    #[test]
    fn integers_are_printed_as_by_c() {
        let values =
            [0, 1, 7, 8, 255, 256, 1 << 31, u32::MAX.into(), 1 << 32, u64::MAX, 1 << 63, 0x8000, 0x80];
        for length in ["", "h", "hh", "l", "ll", "z", "j", "t"] {
            for kind in ["d", "i", "u", "x", "X", "o"] {
                each_format(&format!("{length}{kind}"), |format| {
                    for value in values {
                        let bits =
                            if matches!(length, "" | "h" | "hh") { value & 0xffff_ffff } else { value };
                        assert_eq!(ours(format, &[bits]), (c!(format, bits), 1), "{format} of {value:#x}");
                    }
                });
            }
        }
    }

    #[test]
    fn floats_are_printed_as_by_c() {
        let mut values = vec![
            0.0,
            1.0,
            1.5,
            2.5,
            0.5,
            0.1,
            9.5,
            99.5,
            0.000123456,
            123456.0,
            1234567.0,
            999999.5,
            9.999995,
            1e-5,
            1e100,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            f64::from_bits(0xf_ffff_ffff_ffff),
            f64::INFINITY,
            f64::NAN,
            std::f64::consts::PI,
            1.0 / 3.0,
            0.0625,
            1.96875,
            1.0 + 1.0 / 16.0,
            1048575.5,
        ];
        values.extend(values.clone().iter().map(|value| -value));
        for kind in ["f", "F", "e", "E", "g", "G", "a", "A", "lf"] {
            each_format(kind, |format| {
                for &value in &values {
                    let (found, expected) = (ours(format, &[value.to_bits()]), (c!(format, value), 1));
                    // glibc drops the zeros of `%#g` if it rounds up to a power of ten.
                    let digits = |text: &str| text.replace(['0', ' '], "");
                    let forgets = format.contains('#') && kind.eq_ignore_ascii_case("g");
                    if !(forgets && found != expected && digits(&found.0) == digits(&expected.0)) {
                        assert_eq!(found, expected, "{format} of {value:e}");
                    }
                }
            });
        }
    }

    #[test]
    fn zeros_that_glibc_drops_are_printed() {
        assert_eq!(
            ours("%#g|%#.3G", &[999_999.5f64.to_bits(), 999.5f64.to_bits()]).0,
            "1.00000e+06|1.00E+03"
        );
    }

    #[test]
    fn texts_characters_and_pointers_are_printed_as_by_c() {
        let text = CString::new("a text").unwrap();
        for width in ["", "3", "-3", "12", "-12"] {
            for precision in ["", ".", ".0", ".3", ".9"] {
                let format = format!("[%{width}{precision}s]");
                let address = text.as_ptr() as u64;
                assert_eq!(ours(&format, &[address]), (c!(format.as_str(), address), 1), "{format}");
            }
            for (kind, value) in [("c", u64::from(b'x')), ("c", 0x141), ("p", 0x1234_5678_9abc), ("p", 0)] {
                let format = format!("[%{width}{kind}]");
                assert_eq!(ours(&format, &[value]), (c!(format.as_str(), value), 1), "{format}");
            }
        }
        assert_eq!(ours("[%s] [%.3s]", &[0, 0]), ("[(null)] []".to_owned(), 2));
    }

    #[test]
    fn widths_and_precisions_may_be_arguments() {
        for (width, precision) in [(12, 3), (-12, 3), (0, 0), (5, -1)] {
            let found =
                ours("[%*.*f|%*d]", &[width as u64, precision as u64, 2.5f64.to_bits(), width as u64, 7]);
            assert_eq!(found, (c!("[%*.*f|%*d]", width, precision, 2.5f64, width, 7), 5));
        }
    }

    #[test]
    fn text_that_is_no_conversion_is_printed_unchanged() {
        assert_eq!(ours("100%% of %d%%\n", &[5]), ("100% of 5%\n".to_owned(), 1));
        assert_eq!(ours("%y %n %", &[]), ("%y %n %".to_owned(), 0));
        assert_eq!(ours("%5.", &[]), ("%5.".to_owned(), 0));
        assert_eq!(ours("", &[]), (String::new(), 0));
        // "At most 32 arguments": later conversions are printed literally.
        let found = ours(&"%d ".repeat(34), &(0..34).collect::<Vec<_>>());
        assert!(found.0.ends_with(" 31 %d %d ") && found.1 == 32, "{found:?}");
        // Huge widths and precisions are cut to `MOST_WIDTH`.
        assert_eq!(ours("%999999999999999999999d", &[1]).0.len(), MOST_WIDTH);
        assert_eq!(ours("%.99999999999f", &[1f64.to_bits()]).0.len(), MOST_WIDTH + 2);
        assert_eq!(ours("%.99999999999g", &[0]).0, "0");
        assert_eq!(ours("%#.99999999g", &[1e-4f64.to_bits()]).0.len(), MOST_WIDTH + 5);
    }
}
