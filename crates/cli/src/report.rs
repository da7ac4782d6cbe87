//! What is printed, in each of the formats.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::to_string;

use super::error::{Error, printable};
use super::results::Results;
use super::slices::Slices;

/// In which format.
#[derive(Clone, Copy)]
pub enum Format {
    /// A line for each quantity; of slices, CSV.
    Text,
    Csv,
    Json,
}

/// The options that choose it.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct FormatArgs {
    /// Print JSON: an object with the results by their names, or a list of one for each row, column or key.
    ///
    /// Numbers have all their digits; what JSON has no numbers for are the texts "NaN", "Infinity" and "-Infinity". Results that are
    /// several numbers are lists, and one that has no value is null.
    #[arg(long)]
    json: bool,

    /// Print CSV: a row of names, and one of results. Numbers have all their digits.
    #[arg(long)]
    csv: bool,
}

impl FormatArgs {
    pub fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        }
    }
}

/// The results of all numbers.
pub struct Report(Vec<Entry>);

struct Entry {
    name: String,
    /// In lines of text.
    text: String,
    /// In other formats. Without a value there are none.
    numbers: Vec<String>,
}

impl Report {
    /// Of so many numbers.
    pub fn new(count: usize) -> Report {
        let mut report = Report(Vec::new());
        report.number("count", count);
        report
    }

    fn add(&mut self, name: &str, text: String, numbers: Vec<String>) {
        self.0.push(Entry { name: name.to_owned(), text, numbers });
    }

    /// Adds a number of things.
    pub fn number(&mut self, name: &str, number: impl ToString) {
        let text = number.to_string();
        self.add(name, text.clone(), vec![text]);
    }

    /// Adds a result, or that there is none, and a note that only lines of text have.
    pub fn result(&mut self, name: &str, result: Option<&Results>, note: &str) {
        let Some(result) = result else {
            return self.add(name, "none (empty input)".into(), Vec::new());
        };
        let numbers: Vec<String> = result.texts(0).collect();
        self.add(name, numbers.join(" ") + note, numbers);
    }
}

/// How long it took.
pub struct Times {
    pub device: String,
    /// Until the numbers were read, and lay on the device.
    pub load: Duration,
    /// Of the reductions.
    pub time: Duration,
    /// Of the reductions, in GB/s.
    pub speed: f64,
}

impl Times {
    /// Prints them on stderr.
    pub fn print(&self) {
        let Times { device, load, time, speed } = self;
        say(&format!("device  {device}\nload    {load:.3?}\ntime    {time:.3?}\nGB/s    {speed:.2}"));
    }
}

/// Prints lines on stderr, if anybody reads it.
pub fn say(lines: &str) {
    _ = writeln!(io::stderr(), "{lines}");
}

impl Format {
    /// Prints a report.
    ///
    /// # Errors
    ///
    /// [`Error::Print`].
    pub fn print(self, Report(entries): &Report) -> Result<(), Error> {
        let mut to = io::stdout().lock();
        let written = match self {
            Format::Text => {
                let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
                entries.iter().try_for_each(|Entry { name, text, .. }| writeln!(to, "{name:<width$}  {text}"))
            }
            Format::Csv => csv_of(entries, &mut to).map_err(io_error),
            Format::Json => {
                let members = entries.iter().map(|Entry { name, numbers, .. }| {
                    let value = if numbers.is_empty() { "null".to_owned() } else { json(numbers) };
                    format!("{}: {value}", string(name))
                });
                writeln!(to, "{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
        };
        written.map_err(Error::Print)
    }

    /// Prints the results for each slice; `columns` have names.
    ///
    /// # Errors
    ///
    /// [`Error::Print`].
    pub fn print_each(self, slices: &Slices, columns: &[(String, Results)]) -> Result<(), Error> {
        let to = io::stdout().lock();
        let written = match self {
            Format::Text | Format::Csv => csv_of_each(slices, columns, to).map_err(io_error),
            Format::Json => json_of_each(slices, columns, to),
        };
        written.map_err(Error::Print)
    }
}

/// The system's error, by which a closed pipe is known; `io::Error::from` hides it.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn csv_of(entries: &[Entry], to: impl Write) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    for Entry { name, numbers, .. } in entries {
        names(name, numbers.len().max(1)).try_for_each(|name| csv.write_field(name))?;
    }
    csv.write_record(None::<&str>)?;
    for Entry { numbers, .. } in entries {
        match &numbers[..] {
            [] => csv.write_field("")?,
            numbers => numbers.iter().try_for_each(|number| csv.write_field(number))?,
        }
    }
    csv.write_record(None::<&str>)?;
    Ok(csv.flush()?)
}

fn csv_of_each(
    slices: &Slices,
    columns: &[(String, Results)],
    to: impl Write + IsTerminal,
) -> csv::Result<()> {
    let is_terminal = to.is_terminal();
    let shown = |text: &[u8]| match is_terminal {
        true => printable(&String::from_utf8_lossy(text)).into_bytes(),
        false => text.to_vec(),
    };
    let mut csv = csv::Writer::from_writer(io::BufWriter::new(to));
    csv.write_field(shown(slices.name.as_bytes()))?;
    for (name, results) in columns {
        names(name, results.width()).try_for_each(|name| csv.write_field(name))?;
    }
    csv.write_record(None::<&str>)?;
    for index in 0..slices.len() {
        csv.write_field(shown(&slices.label(index)))?;
        for (_, results) in columns {
            results.texts(index).try_for_each(|number| csv.write_field(number))?;
        }
        csv.write_record(None::<&str>)?;
    }
    Ok(csv.flush()?)
}

fn json_of_each(slices: &Slices, columns: &[(String, Results)], to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    write!(to, "[")?;
    for index in 0..slices.len() {
        let label = String::from_utf8_lossy(&slices.label(index)).into_owned();
        let label = if slices.are_numbered() { label } else { string(&label) };
        write!(to, "{}\n{{{}: {label}", if index > 0 { "," } else { "" }, string(&slices.name))?;
        for (name, results) in columns {
            write!(to, ", {}: {}", string(name), json(&results.texts(index).collect::<Vec<_>>()))?;
        }
        write!(to, "}}")?;
    }
    writeln!(to, "\n]")?;
    to.flush()
}

/// The names of columns for a result of so many numbers.
fn names(name: &str, width: usize) -> impl Iterator<Item = String> {
    (1..=width).map(move |number| if width == 1 { name.to_owned() } else { format!("{name}_{number}") })
}

/// A number as JSON has it, or a list of several.
fn json(numbers: &[String]) -> String {
    let number = |number: &String| match number.as_str() {
        "NaN" => string("NaN"),
        "inf" => string("Infinity"),
        "-inf" => string("-Infinity"),
        number => number.to_owned(),
    };
    match numbers {
        [one] => number(one),
        _ => format!("[{}]", numbers.iter().map(number).collect::<Vec<_>>().join(", ")),
    }
}

fn string(text: &str) -> String {
    // Text always is a text of JSON.
    to_string(text).unwrap_or_default()
}
