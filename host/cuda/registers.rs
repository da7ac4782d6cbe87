//! The numbers of registers and labels in PTX, which `cuda_builder`'s `registers.rs` wrote as marks.

use std::ops::Range;
use std::str;

/// The marks: a number that was new so many new numbers before the newest, a new number, and the new number after the newest.
const AGO: u8 = 0xfd;
const NEW: u8 = 0xfe;
const NEXT: u8 = 0xff;

/// The numbers that there were after one name.
struct Numbers<'a> {
    name: &'a [u8],
    /// Where each was new in the text.
    places: Vec<Range<usize>>,
    next: u32,
}

/// The text of one module; `None` for what `cuda_builder` did not encode.
pub fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut all: Vec<Numbers> = Vec::new();
    let mut text = Vec::with_capacity(2 * encoded.len());
    let mut rest = encoded;
    while let Some(at) = rest.iter().position(|&byte| byte >= AGO) {
        let (before, after) = rest.split_at(at);
        let (&mark, after) = after.split_first()?;
        let len = after.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
        let (digits, after) = after.split_at(len);
        let name = &before[before.iter().rposition(|byte| b"%$".contains(byte))?..];
        let index = all.iter().position(|numbers| numbers.name == name).unwrap_or_else(|| {
            all.push(Numbers { name, places: Vec::new(), next: 0 });
            all.len() - 1
        });
        text.extend_from_slice(before);
        all[index].decode(mark, str::from_utf8(digits).ok()?, &mut text)?;
        rest = after;
    }
    text.extend_from_slice(rest);
    Some(text)
}

impl Numbers<'_> {
    fn decode(&mut self, mark: u8, digits: &str, text: &mut Vec<u8>) -> Option<()> {
        let number = match mark {
            NEXT if digits.is_empty() => self.next,
            NEXT => return None,
            NEW => digits.parse().ok()?,
            _ => {
                let last = self.places.len().checked_sub(1)?;
                let place = &self.places[last.checked_sub(digits.parse().ok()?)?];
                text.extend_from_within(place.clone());
                return Some(());
            }
        };
        let start = text.len();
        text.extend_from_slice(number.to_string().as_bytes());
        self.places.push(start..text.len());
        self.next = number.wrapping_add(1);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_builder::encode;

    #[track_caller]
    fn comes_back(text: &str) {
        assert_eq!(decode(&encode(text)).as_deref(), Some(text.as_bytes()), "{text}");
    }

    #[test]
    fn any_text_comes_back() {
        for text in [
            "",
            "%r1",
            "%r0 %r00 %r007 %r7 %r0 %r4294967295 %r0 %r4294967296 %r99999999999999999999",
            "%r4294967295 %r0 %r1 %r4294967295",
            "%5 $5 %$5 $%5 %%r1 %r1%r1$r1 %r1$ %",
            "// %r1 \"%r2\" 100% %r<5> %tid.x %r1a %r_1 %r1_1 $L__BB0_1 $L__BB00_1 $L__BB0_01:",
            "\u{fd}0 %\u{fd}0 %r\u{ff}1 %r1\u{fe} %\u{e9}1 \0%r1\0 \u{10ffff}%r1",
        ] {
            comes_back(text);
        }
    }

    #[test]
    fn random_texts_come_back() {
        const PIECES: [&str; 24] = [
            "%",
            "$",
            "r",
            "rd",
            "L__BB0_",
            "_",
            "0",
            "1",
            "2",
            "7",
            "9",
            "12",
            "4294967295",
            "4294967296",
            " ",
            ", ",
            "\"",
            "//",
            "\n",
            "<",
            ".x",
            "\u{fd}",
            "%r",
            "\u{10ffff}",
        ];
        let mut state = 1u64;
        for _ in 0..2000 {
            let text: String = (0..200)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    PIECES[(state >> 33) as usize % PIECES.len()]
                })
                .collect();
            comes_back(&text);
        }
    }

    #[test]
    fn what_was_not_encoded_has_no_text() {
        for encoded in [
            &b"\xff"[..],
            b"r\xff",
            b"%r\xff1",
            b"%r\xfe",
            b"%r\xfe4294967296",
            b"%r\xfd0",
            b"%r\xff %r\xfd",
            b"%r\xff %r\xfd1",
            b"%r\xff %rd\xfd0",
            b"%r\xff\xfd0",
            b"%r\xff %r\xfd99999999999999999999",
        ] {
            assert_eq!(decode(encoded), None, "{encoded:?}");
        }
    }
}
