//! Encodes the numbers of registers and labels by how many others were used since each was used last.
//!
//! As plain numbers they hardly repeat, and make up most of the PTX after compression. The same instructions on other
//! registers have the same code, wherever in a kernel they are.

#[cfg(feature = "unpack")]
pub use decode::decode;
#[cfg(feature = "pack")]
pub use encode::encode;

/// Marks a known number; digits follow, which count the numbers that were used since.
const AGO: u8 = 0xfd;
/// Marks a new number; its digits follow.
const NEW: u8 = 0xfe;
/// Marks a new number that is one more than the last new one, or 0 if there is none.
const NEXT: u8 = 0xff;

#[cfg(feature = "pack")]
mod encode {
    use super::{AGO, NEW, NEXT};
    use std::collections::{HashMap, HashSet};

    /// The numbers seen after one name.
    #[derive(Default)]
    struct Numbers {
        known: HashSet<u32>,
        /// The known numbers in the order of their last use.
        used: Vec<u32>,
        next: u32,
    }

    /// Encodes the numbers of registers and labels, such as `%rd12` and `$0_3`. Each name, the text from
    /// `%` or `$` up to the number, has numbers of its own. The marks are bytes that never occur in UTF-8, so
    /// nothing is escaped.
    pub fn encode(text: &str) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(text.len());
        let mut all: HashMap<&str, Numbers> = HashMap::new();
        let mut rest = text;
        while let Some(start) = rest.bytes().position(|byte| matches!(byte, b'%' | b'$')) {
            let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let len = rest.bytes().skip(start + 1).position(|byte| !is_of_word(byte));
            let (before, after) = rest.split_at(len.map_or(rest.len(), |len| start + 1 + len));
            rest = after;
            let name = before.trim_end_matches(|c: char| c.is_ascii_digit());
            let digits = &before[name.len()..];
            encoded.extend(name.bytes());
            match digits.parse() {
                // Numbers such as `007` would not be decoded to the same digits.
                Ok(number) if digits == "0" || !digits.starts_with('0') => {
                    all.entry(&name[start..]).or_default().encode(number, &mut encoded);
                }
                _ => encoded.extend(digits.bytes()),
            }
        }
        encoded.extend(rest.bytes());
        encoded
    }

    impl Numbers {
        fn encode(&mut self, number: u32, encoded: &mut Vec<u8>) {
            if self.known.insert(number) {
                if number == self.next {
                    encoded.push(NEXT);
                } else {
                    encoded.push(NEW);
                    encoded.extend(number.to_string().bytes());
                }
                self.next = number.wrapping_add(1);
            } else if let Some(ago) = self.used.iter().rev().position(|&used| used == number) {
                encoded.push(AGO);
                encoded.extend(ago.to_string().bytes());
                self.used.remove(self.used.len() - 1 - ago);
            }
            self.used.push(number);
        }
    }
}

#[cfg(feature = "unpack")]
mod decode {
    use super::{AGO, NEW, NEXT};
    use std::ops::Range;
    use std::str;

    /// The numbers seen after one name.
    struct Numbers<'a> {
        name: &'a [u8],
        /// For each known number, where in the text it was new; in the order of their last use.
        used: Vec<Range<usize>>,
        next: u32,
    }

    /// Decodes the text of a module; `None` if `encode` did not make it.
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
                all.push(Numbers { name, used: Vec::new(), next: 0 });
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
                    let last = self.used.len().checked_sub(1)?;
                    let place = self.used.remove(last.checked_sub(digits.parse().ok()?)?);
                    text.extend_from_within(place.clone());
                    self.used.push(place);
                    return Some(());
                }
            };
            let start = text.len();
            text.extend_from_slice(number.to_string().as_bytes());
            self.used.push(start..text.len());
            self.next = number.wrapping_add(1);
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_said_by_how_long_ago_it_was_used() {
        let cases: [(&str, &[u8]); 12] = [
            ("%r5, %r6, %r6, %r5, %r7;", b"%r\xfe5, %r\xff, %r\xfd0, %r\xfd1, %r\xff;"),
            (
                "%r0 %r1 %r2 %r0 %r1 %r1 %r2 %r0",
                b"%r\xff %r\xff %r\xff %r\xfd2 %r\xfd2 %r\xfd0 %r\xfd2 %r\xfd2",
            ),
            ("%r5, %rd6, {%r6,%rd5}", b"%r\xfe5, %rd\xfe6, {%r\xff,%rd\xfe5}"),
            ("%r0 %r1 %r4294967295 %r0", b"%r\xff %r\xff %r\xfe4294967295 %r\xfd2"),
            ("%r4294967295 %r0", b"%r\xfe4294967295 %r\xff"),
            ("@%p1 bra $L__BB0_2;\n$L__BB0_2:", b"@%p\xfe1 bra $L__BB0_\xfe2;\n$L__BB0_\xfd0:"),
            ("%r1%r1$%2", b"%r\xfe1%r\xfd0$%\xfe2"),
            (".reg .b32 \t%r<12>; %tid.x; %r1a %r_2_", b".reg .b32 \t%r<12>; %tid.x; %r1a %r_2_"),
            ("%r007 %r00 %r01 %r4294967296", b"%r007 %r00 %r01 %r4294967296"),
            ("r1 100% 100$", b"r1 100% 100$"),
            ("\u{e9}%r1\u{e9} %\u{fd}1", b"\xc3\xa9%r\xfe1\xc3\xa9 %\xc3\xbd1"),
            ("", b""),
        ];
        for (text, expected) in cases {
            assert_eq!(encode(text), expected, "{text}");
        }
    }

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
