//! The keys of a table's rows.

use std::collections::HashMap;
use std::mem::{replace, take};

/// The keys of all rows, numbered in the order in which their texts first appear.
#[derive(Clone)]
pub struct Keys {
    /// The keys' column: its name in the header, or its index without one.
    pub column: String,
    of_rows: Vec<u64>,
    of_texts: HashMap<Vec<u8>, u64>,
}

/// The keys of all rows as ranks: how many smaller keys there are.
pub struct Ranks {
    /// As in [`Keys`].
    pub column: String,
    pub of_rows: Vec<u64>,
    /// The text of each rank; the first of equal keys.
    pub texts: Vec<Vec<u8>>,
}

impl Keys {
    /// No keys yet.
    pub fn of_column(column: String) -> Keys {
        Keys { column, of_rows: Vec::new(), of_texts: HashMap::new() }
    }

    /// Adds the next row's key.
    pub fn push(&mut self, text: &[u8]) {
        let number = self.number(text);
        self.of_rows.push(number);
    }

    /// Appends the keys of the next file.
    pub fn append(&mut self, next: &Keys) {
        let mut numbers = vec![0; next.of_texts.len()];
        // In order of their numbers, so that new texts are numbered as they appear.
        let mut texts: Vec<_> = next.of_texts.iter().collect();
        texts.sort_by_key(|&(_, &number)| number);
        for (text, &number) in texts {
            numbers[number as usize] = self.number(text);
        }
        self.of_rows.extend(next.of_rows.iter().map(|&number| numbers[number as usize]));
    }

    fn number(&mut self, text: &[u8]) -> u64 {
        if let Some(&number) = self.of_texts.get(text) {
            return number;
        }
        let number = self.of_texts.len() as u64;
        self.of_texts.insert(text.to_vec(), number);
        number
    }

    /// Ranks the keys by value if all are integers or all are numbers, else by the bytes of their texts.
    /// Empty keys do not count in this choice, and are ranked after numbers.
    pub fn ranked(self) -> Ranks {
        let mut texts = vec![Vec::new(); self.of_texts.len()];
        for (text, number) in self.of_texts {
            texts[number as usize] = text;
        }
        let values = values(&texts, integer).or_else(|| values(&texts, float));
        let mut sorted: Vec<usize> = (0..texts.len()).collect();
        match &values {
            Some(values) => sorted.sort_by_key(|&key| values[key]),
            None => sorted.sort_by(|&a, &b| texts[a].cmp(&texts[b])),
        }

        let are_equal = |a: usize, b: usize| values.as_ref().is_some_and(|values| values[a] == values[b]);
        let mut ranks = vec![0; texts.len()];
        let mut of_ranks = Vec::new();
        for equal in sorted.chunk_by(|&a, &b| are_equal(a, b)) {
            equal.iter().for_each(|&key| ranks[key] = of_ranks.len() as u64);
            of_ranks.push(take(&mut texts[equal[0]]));
        }
        Ranks {
            column: self.column,
            of_rows: self.of_rows.into_iter().map(|key| ranks[key as usize]).collect(),
            texts: of_ranks,
        }
    }
}

impl Ranks {
    /// The first key that has rows again after a row of another key.
    pub fn that_comes_back(&self) -> Option<&[u8]> {
        let mut is_seen = vec![false; self.texts.len()];
        let mut runs = self.of_rows.chunk_by(|a, b| a == b).map(|run| run[0] as usize);
        let rank = runs.find(|&rank| replace(&mut is_seen[rank], true))?;
        Some(&self.texts[rank])
    }

    /// Sorts the keys. Returns the former row of each key; equal keys keep their order.
    pub fn sort(&mut self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.of_rows.len()).collect();
        rows.sort_by_key(|&row| self.of_rows[row]);
        self.of_rows.sort_unstable();
        rows
    }
}

/// Whether the text is empty, and an integer in the order of its value.
type Value = (bool, i128);

/// The values of all texts; `None` if `parse` fails on a text that is not empty.
fn values(texts: &[Vec<u8>], parse: fn(&str) -> Option<i128>) -> Option<Vec<Value>> {
    let value = |text: &Vec<u8>| match text.is_empty() {
        true => Some((true, 0)),
        false => Some((false, parse(str::from_utf8(text).ok()?)?)),
    };
    texts.iter().map(value).collect()
}

fn integer(text: &str) -> Option<i128> {
    text.parse().ok()
}

/// An integer in the order of a float's value. Both zeros are equal, and so are all NaNs, which come last.
/// `None` for an integer so large that a float may not distinguish it from the next.
fn float(text: &str) -> Option<i128> {
    const PRECISE: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let value: f64 = text.parse().ok()?;
    let is_integer = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-'));
    if is_integer && value.abs() >= PRECISE {
        return None;
    }
    let bits = if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() } as i64;
    Some(if bits < 0 { !i128::from(bits & i64::MAX) } else { bits.into() })
}
