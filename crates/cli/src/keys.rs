//! The keys of a CSV file's rows.

use std::collections::HashMap;
use std::mem::{replace, take};

/// The keys of all rows. Each is the number of its text, in the order in which texts first appear.
#[derive(Clone)]
pub struct Keys {
    /// Their column, as the header calls it, or its index where there is none.
    pub column: String,
    of_rows: Vec<u64>,
    of_texts: HashMap<Vec<u8>, u64>,
}

/// The keys of all rows, each as its rank: how many others there are below it.
pub struct Ranks {
    /// As of [`Keys`].
    pub column: String,
    pub of_rows: Vec<u64>,
    /// The text of each rank, of equal keys that of the first.
    pub texts: Vec<Vec<u8>>,
}

impl Keys {
    /// Those of a column of no rows yet.
    pub fn of_column(column: String) -> Keys {
        Keys { column, of_rows: Vec::new(), of_texts: HashMap::new() }
    }

    /// Takes the next row's key.
    pub fn push(&mut self, text: &[u8]) {
        let number = self.number(text);
        self.of_rows.push(number);
    }

    /// Takes the keys of all rows of the next file.
    pub fn append(&mut self, next: &Keys) {
        let mut numbers = vec![0; next.of_texts.len()];
        // In their order, so that new ones are numbered as they appear.
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

    /// The keys by their values, where all are integers or all are numbers, else by the bytes of their texts. Empty
    /// ones are left out of account, and come after numbers.
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
    /// The first key that has a row after one of another key, and an earlier one before that.
    pub fn that_comes_back(&self) -> Option<&[u8]> {
        let mut is_seen = vec![false; self.texts.len()];
        let mut runs = self.of_rows.chunk_by(|a, b| a == b).map(|run| run[0] as usize);
        let rank = runs.find(|&rank| replace(&mut is_seen[rank], true))?;
        Some(&self.texts[rank])
    }

    /// Sorts the keys; returns the rows in their order, those of equal keys as they were.
    pub fn sort(&mut self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.of_rows.len()).collect();
        rows.sort_by_key(|&row| self.of_rows[row]);
        self.of_rows.sort_unstable();
        rows
    }
}

/// Whether a text is empty, and its value as an integer that orders as the value does.
type Value = (bool, i128);

/// The value of each text, if `parse` finds one in all that are not empty.
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

/// A float's value: both zeros are one, and so are all NaNs, which come last. An integer is none where a float may not
/// tell it from the next.
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
