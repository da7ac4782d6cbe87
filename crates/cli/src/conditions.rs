//! The rows that `--where` keeps.

use std::cmp::Ordering;
use std::str::FromStr;

use super::fields::Field as _;

/// Conditions, all of which a row must meet.
#[derive(Clone, Debug)]
pub struct Conditions(pub Vec<Condition>);

/// A comparison of the fields of a column with a value.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The name or index of the column.
    pub column: String,
    comparison: Comparison,
    value: String,
    /// The value, if it is a number without quotes.
    number: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Equal,
    Different,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// The comparisons as they are written; the longer ones come first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("!=", Comparison::Different),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

const AND: &str = " and ";

impl FromStr for Conditions {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Conditions, &'static str> {
        let (mut conditions, mut rest) = (Vec::new(), text);
        loop {
            let (column, _, after) = word(rest, |rest| comparison(rest).is_some())?;
            let (after, comparison) =
                comparison(after).ok_or("no comparison follows a column; write =, !=, <, <=, > or >=")?;
            let (value, is_quoted, after) = word(after, |rest| rest.starts_with(AND))?;
            let number = f64::parse(value.as_bytes()).filter(|_| !is_quoted);
            conditions.push(Condition { column: column.into(), comparison, value: value.into(), number });
            match after.strip_prefix(AND) {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(Conditions(conditions)),
                None => return Err("only ` and ` may follow a value"),
            }
        }
    }
}

/// The comparison at the start of the text, and what follows it.
fn comparison(text: &str) -> Option<(&str, Comparison)> {
    COMPARISONS.iter().find_map(|&(name, comparison)| Some((text.strip_prefix(name)?, comparison)))
}

/// Splits the text after a word: one in quotes, or the text up to where `is_end` holds, without blanks around
/// it. Returns the word, whether it was quoted, and the rest.
fn word(text: &str, is_end: impl Fn(&str) -> bool) -> Result<(&str, bool, &str), &'static str> {
    let start = text.trim_start();
    if let Some(quote) = start.chars().next().filter(|quote| ['\'', '"'].contains(quote)) {
        let (word, rest) = start[1..].split_once(quote).ok_or("a quote is never closed")?;
        // Blanks may follow, of which ` and ` needs one.
        let next = rest.trim_start();
        return Ok((word, true, if is_end(next) || next.is_empty() { next } else { rest }));
    }
    let end = start.char_indices().map(|(index, _)| index).find(|&index| is_end(&start[index..]));
    let (word, rest) = start.split_at(end.unwrap_or(start.len()));
    match word.trim_end() {
        "" => Err("a column or a value is missing; quote an empty one or one with blanks, as in 'city=\"\"'"),
        word => Ok((word, false, rest)),
    }
}

impl Condition {
    /// Whether the field meets the condition. An empty field meets none. Fields are compared with a number as
    /// numbers, of which a field that is none is different; else as text by its bytes.
    pub fn holds(&self, field: &[u8]) -> bool {
        !field.is_empty()
            && match self.number {
                Some(_) => self.holds_for(f64::parse(field)),
                None => self.comparison.holds(Some(field.cmp(self.value.as_bytes()))),
            }
    }

    /// As [`holds`](Self::holds) of a field that is this number, or none.
    pub fn holds_for(&self, field: Option<f64>) -> bool {
        self.comparison.holds(field.partial_cmp(&self.number).filter(|_| field.is_some()))
    }

    /// Whether fields are compared as numbers.
    pub fn is_of_numbers(&self) -> bool {
        self.number.is_some()
    }
}

impl Comparison {
    /// Whether the comparison holds in this order; `None` is no order.
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::Different => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::AtMost => order.is_some_and(Ordering::is_le),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}
