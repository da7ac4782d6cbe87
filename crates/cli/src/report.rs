//! Prints results as text, CSV or JSON.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::time::Duration;

use gpu_reduce::Device;
use rayon::prelude::*;
use serde_json::{Value, from_str, to_string};

use super::error::{Error, printable};
use super::results::Results;
use super::slices::Slices;

/// The output format.
#[derive(Clone, Copy)]
pub enum Format {
    /// A line for each quantity; CSV for slices.
    Text,
    Csv,
    Json,
}

/// The options that choose the format.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct FormatArgs {
    /// Print JSON: an object with the results by name, or a list of objects, one for each row, column or key.
    ///
    /// Numbers have all their digits; NaN and infinities, which JSON lacks, are the strings "NaN", "Infinity"
    /// and "-Infinity"; dates and times are strings. Results of several numbers are lists; a result without a
    /// value is null.
    #[arg(long)]
    json: bool,

    /// Print CSV: a row of names and rows of results. Numbers have all their digits.
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

/// The results of reducing all numbers.
pub struct Report(Vec<Entry>);

struct Entry {
    name: String,
    /// The result for the text format.
    text: String,
    /// The numbers of the result for the other formats; empty if it has no value.
    numbers: Vec<String>,
}

impl Report {
    /// A report with the count of the input's numbers.
    pub fn new(count: usize) -> Report {
        let mut report = Report(Vec::new());
        report.number("count", count);
        report
    }

    fn add(&mut self, name: &str, text: String, numbers: Vec<String>) {
        self.0.push(Entry { name: name.to_owned(), text, numbers });
    }

    /// Adds a named number.
    pub fn number(&mut self, name: &str, number: impl ToString) {
        let text = number.to_string();
        self.add(name, text.clone(), vec![text]);
    }

    /// Adds a result; `None` is printed as "none". The `note` appears only in the text format.
    pub fn result(&mut self, name: &str, result: Option<&Results>, note: &str) {
        let Some(result) = result else {
            return self.add(name, "none".to_owned() + note, Vec::new());
        };
        let numbers: Vec<String> = result.texts(0).collect();
        self.add(name, numbers.join(" ") + note, numbers);
    }

    /// Writes a line for each result.
    fn write_text(&self, to: &mut impl Write) -> io::Result<()> {
        let width = self.0.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
        self.0.iter().try_for_each(|Entry { name, text, .. }| writeln!(to, "{name:<width$}  {text}"))
    }

    /// The results as members of a JSON object.
    fn members(&self) -> String {
        let member = |Entry { name, numbers, .. }: &Entry| {
            let value = if numbers.is_empty() { "null".to_owned() } else { json(numbers) };
            format!("{}: {value}", string(name))
        };
        self.0.iter().map(member).collect::<Vec<_>>().join(", ")
    }
}

/// The times of a run.
pub struct Times {
    pub device: String,
    /// Time to read the numbers and to copy them to the device.
    pub load: Duration,
    /// Time of the reductions.
    pub time: Duration,
    /// Bytes that the reductions read.
    pub bytes: usize,
}

impl Times {
    /// No time yet.
    pub fn none(device: &Device) -> Times {
        Times { device: device.to_string(), load: Duration::ZERO, time: Duration::ZERO, bytes: 0 }
    }

    /// Adds the times of the next column.
    pub fn add(&mut self, load: Duration, time: Duration, bytes: usize) {
        self.load += load;
        self.time += time;
        self.bytes += bytes;
    }

    /// Prints the times on stderr.
    pub fn print(&self) {
        let Times { device, load, time, bytes } = self;
        let speed = *bytes as f64 / 1e9 / time.as_secs_f64();
        say(&format!("device  {device}\nload    {load:.3?}\ntime    {time:.3?}\nGB/s    {speed:.2}"));
    }
}

/// Prints lines on stderr; ignores errors.
pub fn say(lines: &str) {
    _ = writeln!(io::stderr(), "{lines}");
}

impl Format {
    /// Prints the reports of columns with their names. One report is printed without a name.
    ///
    /// # Errors
    ///
    /// [`Error::Print`].
    pub fn print(self, reports: &[(&str, Report)]) -> Result<(), Error> {
        let mut to = io::stdout().lock();
        let written = match (self, reports) {
            (Format::Text, [(_, report)]) => report.write_text(&mut to),
            (Format::Text, _) => write_table(reports, &mut to),
            (Format::Csv, _) => csv_of(reports, &mut to).map_err(io_error),
            (Format::Json, [(_, report)]) => writeln!(to, "{{{}}}", report.members()),
            (Format::Json, _) => {
                let object = |(name, report): &(&str, Report)| {
                    format!("\n{{\"column\": {}, {}}}", string(name), report.members())
                };
                writeln!(to, "[{}\n]", reports.iter().map(object).collect::<Vec<_>>().join(","))
            }
        };
        written.map_err(Error::Print)
    }

    /// Prints the results of each slice; `columns` are the quantities with their names.
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

/// The underlying I/O error. `io::Error::from` hides its kind, which identifies a closed pipe.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Writes a row of names and a row for each of several columns; the columns of text are aligned.
fn write_table(reports: &[(&str, Report)], to: &mut impl Write) -> io::Result<()> {
    let names = reports.first().map(|(_, Report(entries))| entries.iter().map(|entry| entry.name.clone()));
    let header: Vec<String> = ["column".to_owned()].into_iter().chain(names.into_iter().flatten()).collect();
    let row = |(name, Report(entries)): &(&str, Report)| {
        let texts = entries.iter().map(|entry| entry.text.clone());
        [printable(name)].into_iter().chain(texts).collect()
    };
    let rows: Vec<Vec<String>> = [header].into_iter().chain(reports.iter().map(row)).collect();
    let width = |place: usize| rows.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    rows.iter().try_for_each(|row| {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        writeln!(to, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())
    })
}

fn csv_of(reports: &[(&str, Report)], to: impl Write) -> csv::Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    let are_named = reports.len() > 1;
    if are_named {
        csv.write_field("column")?;
    }
    for Entry { name, numbers, .. } in reports.iter().take(1).flat_map(|(_, Report(entries))| entries) {
        names(name, numbers.len().max(1)).try_for_each(|name| csv.write_field(name))?;
    }
    csv.write_record(None::<&str>)?;
    for (name, Report(entries)) in reports {
        if are_named {
            csv.write_field(name)?;
        }
        for Entry { numbers, .. } in entries {
            match &numbers[..] {
                [] => csv.write_field("")?,
                numbers => numbers.iter().try_for_each(|number| csv.write_field(number))?,
            }
        }
        csv.write_record(None::<&str>)?;
    }
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
    let mut csv = csv::Writer::from_writer(to);
    slices.names().iter().try_for_each(|name| csv.write_field(shown(name.as_bytes())))?;
    for (name, results) in columns {
        names(name, results.width()).try_for_each(|name| csv.write_field(name))?;
    }
    csv.write_record(None::<&str>)?;
    csv.flush()?;
    let of_chunk = |chunk: Range<usize>| {
        let mut csv = csv::Writer::from_writer(Vec::new());
        for index in chunk {
            slices.labels(index).iter().try_for_each(|label| csv.write_field(shown(label)))?;
            for (_, results) in columns {
                results.texts(index).try_for_each(|number| csv.write_field(number))?;
            }
            csv.write_record(None::<&str>)?;
        }
        csv.into_inner().map_err(|error| error.into_error().into())
    };
    in_chunks(slices.len(), &mut csv.into_inner().map_err(|error| error.into_error())?, of_chunk)
}

/// Writes what `of_chunk` returns for each chunk of `0..len`, in their order. Threads call it.
fn in_chunks<E: From<io::Error> + Send>(
    len: usize,
    to: &mut impl Write,
    of_chunk: impl Fn(Range<usize>) -> Result<Vec<u8>, E> + Sync,
) -> Result<(), E> {
    const CHUNK: usize = 1 << 13;
    let turn = CHUNK * 4 * rayon::current_num_threads();
    for start in (0..len).step_by(turn) {
        let end = len.min(start + turn);
        let chunks = (start..end).into_par_iter().step_by(CHUNK);
        let texts: Vec<_> = chunks.map(|start| of_chunk(start..end.min(start + CHUNK))).collect();
        texts.into_iter().try_for_each(|text| Ok::<_, E>(to.write_all(&text?)?))?;
    }
    Ok(to.flush()?)
}

fn json_of_each(slices: &Slices, columns: &[(String, Results)], to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    write!(to, "[")?;
    let names = slices.names();
    for index in 0..slices.len() {
        let label = |label: &Cow<[u8]>| match String::from_utf8_lossy(label) {
            label if slices.are_numbered() => label.into_owned(),
            label => string(&label),
        };
        let labels = slices.labels(index);
        let labels =
            names.iter().zip(&labels).map(|(name, text)| format!("{}: {}", string(name), label(text)));
        let result = |(name, results): &(String, Results)| {
            format!("{}: {}", string(name), json(&results.texts(index).collect::<Vec<_>>()))
        };
        let members: Vec<_> = labels.chain(columns.iter().map(result)).collect();
        write!(to, "{}\n{{{}}}", if index > 0 { "," } else { "" }, members.join(", "))?;
    }
    writeln!(to, "\n]")?;
    to.flush()
}

/// Column names for a result of `width` numbers.
fn names(name: &str, width: usize) -> impl Iterator<Item = String> {
    (1..=width).map(move |number| if width == 1 { name.to_owned() } else { format!("{name}_{number}") })
}

/// One number as JSON, or several as a list.
fn json(numbers: &[String]) -> String {
    let number = |number: &String| match number.as_str() {
        "" => "null".to_owned(),
        "inf" => string("Infinity"),
        "-inf" => string("-Infinity"),
        number if from_str::<Value>(number).is_ok() => number.to_owned(),
        // NaN, a date or a time.
        other => string(other),
    };
    match numbers {
        [one] => number(one),
        _ => format!("[{}]", numbers.iter().map(number).collect::<Vec<_>>().join(", ")),
    }
}

fn string(text: &str) -> String {
    // Serialising a string cannot fail.
    to_string(text).unwrap_or_default()
}
