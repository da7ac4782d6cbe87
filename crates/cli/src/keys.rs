//! The keys of a table's rows, and the groups that rows of equal keys form.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::str::FromStr;

use hashbrown::{HashMap, HashSet, HashTable};
use rayon::prelude::*;

use super::fields::short_integer;
use super::memory;

/// Distinct texts, numbered in the order in which they first appear.
#[derive(Default)]
struct Texts {
    /// All texts, one after another.
    bytes: Vec<u8>,
    /// Where each text ends in `bytes`.
    ends: Vec<usize>,
    /// The numbers of texts that [`packed`] packs.
    short: HashMap<u64, u32>,
    /// The numbers of other texts.
    long: HashTable<u32>,
}

impl Texts {
    /// The number of a text, if it is there.
    fn find(&self, text: &[u8]) -> Option<u32> {
        match packed(text) {
            Some(packed) => self.short.get(&packed).copied(),
            None => {
                let is_text = |&number: &u32| self.get(number) == text;
                self.long.find(self.short.hasher().hash_one(text), is_text).copied()
            }
        }
    }

    /// Returns the number of a text, which is added if it is new.
    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.find(text) {
            return number;
        }
        let Texts { bytes, ends, short, long } = self;
        let number = saturated(ends.len());
        bytes.extend_from_slice(text);
        ends.push(bytes.len());
        match packed(text) {
            Some(packed) => _ = short.insert(packed, number),
            None => {
                let hash = |&number: &u32| short.hasher().hash_one(text_of(bytes, ends, number));
                long.insert_unique(hash(&number), number, hash);
            }
        }
        number
    }

    /// The text with this number.
    fn get(&self, number: u32) -> &[u8] {
        text_of(&self.bytes, &self.ends, number)
    }

    /// The number of texts.
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|number| self.get(number as u32))
    }
}

/// The number, or the maximum of u32 if it is greater: the library refuses that many groups.
fn saturated(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn text_of<'a>(bytes: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &bytes[start..ends[number]]
}

/// The text as an integer, if it has less than 8 bytes. Its highest byte that is not zero is the length.
fn packed(text: &[u8]) -> Option<u64> {
    let pack = |packed, &byte: &u8| packed << 8 | u64::from(byte);
    (text.len() < size_of::<u64>()).then(|| text.iter().fold(text.len() as u64, pack))
}

/// The keys of rows in one column. Threads read the parts of a file at the same time: a part has the numbers
/// of the rows before, which are known, and further numbers for new texts.
pub struct Keys {
    /// The column's name in the header, or its index without one.
    column: String,
    /// The key of each row, if all are integers of which the text is known by the value. Then there are no
    /// texts.
    integers: Option<Vec<i64>>,
    /// How many texts are known from the rows before.
    known: u32,
    /// The new texts, whose numbers come after the known texts' numbers.
    texts: Texts,
    /// The numbers of the texts of [`push_bits`](Self::push_bits).
    of_bits: HashMap<u64, u32>,
    /// The number of each row's text.
    of_rows: Vec<u32>,
}

impl Keys {
    /// No keys yet.
    pub fn of_column(column: String) -> Keys {
        let (texts, of_bits, of_rows) = (Texts::default(), HashMap::new(), Vec::new());
        Keys { column, integers: Some(Vec::new()), known: 0, texts, of_bits, of_rows }
    }

    /// No keys of a part yet, which comes after these rows.
    pub fn part(&self) -> Keys {
        let integers = self.integers.as_ref().map(|_| Vec::new());
        Keys { integers, known: saturated(self.texts.len()), ..Keys::of_column(self.column.clone()) }
    }

    /// Adds the key of the next row of a part, which comes after the rows `before`.
    pub fn push(&mut self, before: &Keys, text: &[u8]) {
        if let (Some(integers), Some(integer)) = (&mut self.integers, plain_integer(text)) {
            return integers.push(integer);
        }
        let number = self.number(before, text);
        self.push_number(number);
    }

    /// As [`push`](Self::push) of the integer's text.
    pub fn push_integer(&mut self, before: &Keys, integer: i64) {
        match &mut self.integers {
            Some(integers) => integers.push(integer),
            None => self.push_bits(before, integer as u64, || integer.to_string()),
        }
    }

    /// As [`push`](Self::push). The text is asked for once for these bits.
    pub fn push_bits(&mut self, before: &Keys, bits: u64, text: impl FnOnce() -> String) {
        let number = before.of_bits.get(&bits).or_else(|| self.of_bits.get(&bits)).copied();
        let number = number.unwrap_or_else(|| {
            let number = self.number(before, text().as_bytes());
            self.of_bits.insert(bits, number);
            number
        });
        self.push_number(number);
    }

    /// Adds the key of the next row, which has this number.
    pub fn push_number(&mut self, number: u32) {
        self.of_rows.push(number);
    }

    /// Returns the number of the text of the next row.
    pub fn number(&mut self, before: &Keys, text: &[u8]) -> u32 {
        self.become_texts();
        before.texts.find(text).unwrap_or_else(|| self.known.saturating_add(self.texts.number(text)))
    }

    /// Reserves memory for `count` more rows.
    pub fn reserve(&mut self, count: usize) {
        match &mut self.integers {
            Some(integers) => memory::reserve(integers, count),
            None => memory::reserve(&mut self.of_rows, count),
        }
    }

    /// Numbers the texts of the integers, if all keys were integers until now.
    fn become_texts(&mut self) {
        let Some(integers) = self.integers.take() else { return };
        let mut numbers = HashMap::new();
        let Keys { texts, of_rows, .. } = self;
        let mut number = |integer: i64| {
            *numbers.entry(integer).or_insert_with(|| texts.number(integer.to_string().as_bytes()))
        };
        of_rows.extend(integers.into_iter().map(&mut number));
    }

    /// Appends the keys of a part of a file, or of the next file.
    pub fn append(&mut self, mut next: Keys) {
        if let (Some(integers), Some(next)) = (&mut self.integers, &mut next.integers) {
            return integers.append(next);
        }
        self.become_texts();
        next.become_texts();
        let numbers: Vec<u32> = next.texts.iter().map(|text| self.texts.number(text)).collect();
        let number = |number: u32| match number.checked_sub(next.known) {
            Some(new) => numbers[new as usize],
            None => number,
        };
        self.of_bits.extend(next.of_bits.into_iter().map(|(bits, text)| (bits, number(text))));
        self.of_rows.par_extend(next.of_rows.into_par_iter().map(number));
    }

    /// Groups the rows of equal keys. Keys are compared by value if all are integers or all are numbers, else
    /// by the bytes of their texts. Empty keys do not count in this choice, and come after numbers. The label
    /// of equal keys is the first.
    ///
    /// # Errors
    ///
    /// If [`gpu_reduce::Groups::of`] cannot number the keys: its errors.
    fn groups(self) -> Result<Groups, gpu_reduce::Error> {
        let Keys { column: name, integers, texts, mut of_rows, .. } = self;
        if let Some(integers) = integers {
            let groups = gpu_reduce::Groups::of(&integers)?;
            let (of_rows, count) = (groups.numbers().to_vec()?, groups.len());
            let values = Values::Integers(groups.into_keys().to_vec()?);
            let of_groups = (0..saturated(count)).collect();
            return Ok(Groups { columns: vec![Labels { name, values, of_groups }], of_rows, count });
        }
        let numbers =
            || ranked(&texts, number(integer::<i64>)).or_else(|| ranked(&texts, number(integer::<i128>)));
        let ranks = numbers().or_else(|| ranked(&texts, number(float))).or_else(|| ranked(&texts, Some));
        let Ranks { of_texts, labels: of_groups } = ranks.unwrap_or_default();
        of_rows.par_iter_mut().for_each(|key| *key = of_texts[*key as usize]);
        let count = of_groups.len();
        let values = Values::Texts(texts);
        Ok(Groups { columns: vec![Labels { name, values, of_groups }], of_rows, count })
    }
}

/// The groups of rows whose keys are equal in all columns, in ascending order of the first column's keys,
/// then of the next column's.
pub struct Groups {
    pub columns: Vec<Labels>,
    /// The group of each row.
    pub of_rows: Vec<u32>,
    /// The number of groups.
    pub count: usize,
}

/// The keys of all groups in one column.
pub struct Labels {
    /// The name of the column.
    pub name: String,
    values: Values,
    /// The number of each group's value.
    of_groups: Vec<u32>,
}

/// Distinct keys, by their numbers.
enum Values {
    Texts(Texts),
    Integers(Vec<i64>),
}

impl Groups {
    /// Groups rows by their keys in each column; `None` without a column.
    ///
    /// # Errors
    ///
    /// If [`gpu_reduce::Groups::of`] cannot number the keys: its errors.
    pub fn of(columns: Vec<Keys>) -> Result<Option<Groups>, gpu_reduce::Error> {
        let groups: Vec<_> = columns.into_iter().map(Keys::groups).collect::<Result<_, _>>()?;
        Ok(groups.into_iter().reduce(Groups::split))
    }

    /// Splits the groups by the keys of further columns.
    fn split(mut self, by: Groups) -> Groups {
        const CHUNK: usize = 1 << 16;
        let pair = |&group: &u32, &by: &u32| u64::from(group) << u32::BITS | u64::from(by);
        let chunks = self.of_rows.par_chunks(CHUNK).zip(by.of_rows.par_chunks(CHUNK));
        let of_chunks =
            chunks.map(|(a, b)| a.iter().zip(b).map(|(a, b)| pair(a, b)).collect::<HashSet<u64>>());
        let distinct = of_chunks.reduce(HashSet::new, |mut all, of_chunk| {
            all.extend(of_chunk);
            all
        });
        let mut pairs: Vec<u64> = distinct.into_iter().collect();
        pairs.par_sort_unstable();

        let numbers: HashMap<u64, u32> = pairs.iter().copied().zip(0..).collect();
        let rows = self.of_rows.par_iter_mut().zip(&by.of_rows);
        rows.for_each(|(group, by)| *group = numbers[&pair(group, by)]);
        self.columns.iter_mut().for_each(|labels| labels.spread(&pairs, |pair| (pair >> u32::BITS) as u32));
        self.columns.extend(by.columns.into_iter().map(|mut labels| {
            labels.spread(&pairs, |pair| pair as u32);
            labels
        }));
        Groups { count: pairs.len(), ..self }
    }
}

impl Labels {
    /// The key of a group.
    pub fn get(&self, group: usize) -> Cow<'_, [u8]> {
        let number = self.of_groups[group];
        match &self.values {
            Values::Texts(texts) => texts.get(number).into(),
            Values::Integers(integers) => integers[number as usize].to_string().into_bytes().into(),
        }
    }

    /// Gives each pair the label of its group, which `group` finds in the pair.
    fn spread(&mut self, pairs: &[u64], group: fn(u64) -> u32) {
        self.of_groups = pairs.iter().map(|&pair| self.of_groups[group(pair) as usize]).collect();
    }
}

/// The ranks of texts: how many smaller values there are.
#[derive(Default)]
struct Ranks {
    of_texts: Vec<u32>,
    /// The number of each rank's text; of equal values, the first text.
    labels: Vec<u32>,
}

/// Ranks texts by their values; `None` if a text has no value.
fn ranked<'a, V: Ord + Send>(
    texts: &'a Texts,
    value: impl Fn(&'a [u8]) -> Option<V> + Sync,
) -> Option<Ranks> {
    let valued = |number| Some((value(texts.get(number))?, number));
    let sorted: Option<Vec<_>> = (0..saturated(texts.len())).into_par_iter().map(valued).collect();
    let mut sorted = sorted?;
    sorted.par_sort_unstable();

    let mut ranks = Ranks { of_texts: vec![0; texts.len()], labels: Vec::new() };
    for equal in sorted.chunk_by(|(a, _), (b, _)| a == b) {
        let rank = ranks.labels.len() as u32;
        equal.iter().for_each(|&(_, text)| ranks.of_texts[text as usize] = rank);
        ranks.labels.push(equal[0].1);
    }
    Some(ranks)
}

/// The value of a text that is empty or a number. Empty texts come last.
fn number<V: Default>(parse: fn(&str) -> Option<V>) -> impl Fn(&[u8]) -> Option<(bool, V)> {
    move |text| match text.is_empty() {
        true => Some((true, V::default())),
        false => Some((false, parse(str::from_utf8(text).ok()?)?)),
    }
}

/// An integer, if this is how its value is written.
fn plain_integer(text: &[u8]) -> Option<i64> {
    short_integer(text).or_else(|| {
        let integer: i64 = integer(str::from_utf8(text).ok()?)?;
        (integer.to_string().as_bytes() == text).then_some(integer)
    })
}

fn integer<I: FromStr>(text: &str) -> Option<I> {
    text.parse().ok()
}

/// An integer in the order of a float's value. Both zeros are equal, and so are all NaNs, which come last.
/// `None` for an integer so large that a float may not distinguish it from the next.
fn float(text: &str) -> Option<i64> {
    const PRECISE: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    let value: f64 = text.parse().ok()?;
    let is_integer = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-'));
    if is_integer && value.abs() >= PRECISE {
        return None;
    }
    let bits = if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() } as i64;
    Some(if bits < 0 { !(bits & i64::MAX) } else { bits })
}
