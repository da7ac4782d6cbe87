//! The numbers of registers and labels in PTX, which `cuda_builder`'s `registers.rs` wrote as marks. Its tests are there.

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
