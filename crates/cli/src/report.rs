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
    /// several numbers are lists, and one that has no value is null. Times are in seconds.
    #[arg(long)]
    json: bool,

    /// Print CSV: a row of names, and one of results. Numbers have all their digits; times are in seconds.
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

/// What is known of all numbers.
pub struct Report(Vec<Entry>);

struct Entry {
    /// In lines of text, and in other formats.
    names: [String; 2],
    text: String,
    value: Value,
}

enum Value {
    None,
    Numbers(Vec<String>),
    Text(String),
}

impl Report {
    /// Of so many numbers.
    pub fn new(count: usize) -> Report {
        let mut report = Report(Vec::new());
        report.number("count", count);
        report
    }

    fn add(&mut self, names: [&str; 2], text: String, value: Value) {
        self.0.push(Entry { names: names.map(str::to_owned), text, value });
    }

    /// Adds a number of things.
    pub fn number(&mut self, name: &str, number: impl ToString) {
        let text = number.to_string();
        self.add([name; 2], text.clone(), Value::Numbers(vec![text]));
    }

    /// Adds a result, or that there is none, and a note that only lines of text have.
    pub fn result(&mut self, name: &str, result: Option<&Results>, note: &str) {
        let Some(result) = result else {
            return self.add([name; 2], "none (empty input)".into(), Value::None);
        };
        let numbers: Vec<String> = result.texts(0).collect();
        self.add([name; 2], numbers.join(" ") + note, Value::Numbers(numbers));
    }

    /// Adds how long numbers took on a device to be read, and to be reduced at a speed in GB/s.
    pub fn times(&mut self, device: String, load: Duration, time: Duration, speed: f64) {
        let seconds = |time: Duration| Value::Numbers(vec![format!("{:?}", time.as_secs_f64())]);
        self.add(["device"; 2], device.clone(), Value::Text(device));
        self.add(["load", "load_seconds"], format!("{load:.3?}"), seconds(load));
        self.add(["time", "seconds"], format!("{time:.3?}"), seconds(time));
        self.add(
            ["GB/s", "gigabytes_per_second"],
            format!("{speed:.2}"),
            Value::Numbers(vec![format!("{speed:?}")]),
        );
    }
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
                let width = entries.iter().map(|entry| entry.names[0].len()).max().unwrap_or(0);
                entries.iter().try_for_each(|Entry { names: [name, _], text, .. }| {
                    writeln!(to, "{name:<width$}  {text}")
                })
            }
            Format::Csv => csv_of(entries, &mut to),
            Format::Json => {
                let members = entries.iter().map(|Entry { names: [_, name], value, .. }| {
                    let value = match value {
                        Value::None => "null".to_owned(),
                        Value::Numbers(numbers) => json(numbers),
                        Value::Text(text) => string(text),
                    };
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
            Format::Text | Format::Csv => csv_of_each(slices, columns, to),
            Format::Json => json_of_each(slices, columns, to),
        };
        written.map_err(Error::Print)
    }
}

fn csv_of(entries: &[Entry], to: impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    for Entry { names: [_, name], value, .. } in entries {
        match value {
            Value::Numbers(numbers) => {
                names(name, numbers.len()).try_for_each(|name| csv.write_field(name))?
            }
            _ => csv.write_field(name)?,
        }
    }
    csv.write_record(None::<&str>)?;
    for Entry { value, .. } in entries {
        match value {
            Value::None => csv.write_field("")?,
            Value::Numbers(numbers) => numbers.iter().try_for_each(|number| csv.write_field(number))?,
            Value::Text(text) => csv.write_field(text)?,
        }
    }
    csv.write_record(None::<&str>)?;
    csv.flush()
}

fn csv_of_each(
    slices: &Slices,
    columns: &[(String, Results)],
    to: impl Write + IsTerminal,
) -> io::Result<()> {
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
    csv.flush()
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
