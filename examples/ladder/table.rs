//! Tables of results in Markdown.

use super::record::Record;
use super::rung::is_rung;
use crate::common::table::{length, markdown, short};

/// For one length, the ladder's table; for several, a row per length and a column per variant.
pub fn table(records: &[Record]) -> String {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return String::new() };
    let what = format!("Sums of {}, {} threads a block", first.r#type, first.threads);
    if first.n != last.n {
        return format!("{what}, on {}: microseconds\n\n{}", first.device, times(records));
    }
    let on = if first.us.is_some() { format!(" on {}", first.device) } else { String::new() };
    let counted = match first.counted_n {
        Some(n) if n == first.n => "; counters from the emulator".to_owned(),
        Some(n) => format!("; counters from the emulator, of {n} elements"),
        None => String::new(),
    };
    format!("{what}, {} elements{on}{counted}\n\n{}", first.n, ladder(records))
}

/// The table of one length; leaves out columns without any value.
fn ladder(records: &[Record]) -> String {
    let mut before: Option<f64> = None;
    let first = records.first().and_then(|record| record.us);
    let rows = records.iter().map(|r| {
        // A step is the speedup over the rung before; variants beside the ladder have none.
        let step = before.filter(|_| is_rung(&r.variant)).zip(r.us).map(|(before, us)| before / us);
        before = r.us;
        [
            ("time, µs", r.us.map(|us| format!("{us:.2}"))),
            ("GB/s", r.gbps.map(|gbps| format!("{gbps:.1}"))),
            ("step", step.map(|step| format!("{step:.2}"))),
            ("total", first.zip(r.us).map(|(first, us)| format!("{:.2}", first / us))),
            ("% of peak", r.gbps.zip(r.peak_gbps).map(|(gbps, peak)| format!("{:.1}", 100.0 * gbps / peak))),
            ("barriers a block", r.barriers.map(short)),
            ("divergent branches a warp", r.divergent_branches.map(short)),
            ("lanes active", r.lanes_active.map(short)),
            ("bank conflicts an access", r.bank_conflicts.map(short)),
            ("sectors a load", r.sectors_per_load.map(short)),
            ("instructions for 32 elements", r.instructions.map(short)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let has_values = |column: &usize| rows.iter().any(|row| row[*column].1.is_some());
    let columns: Vec<usize> = (0..rows.first().map_or(0, |row| row.len())).filter(has_values).collect();
    let header = columns.iter().map(|&column| rows[0][column].0.to_owned());
    let mut lines = vec![std::iter::once("variant".to_owned()).chain(header).collect::<Vec<_>>()];
    for (record, row) in records.iter().zip(&rows) {
        let values = columns.iter().map(|&column| row[column].1.clone().unwrap_or_default());
        lines.push(std::iter::once(record.variant.clone()).chain(values).collect());
    }
    markdown(&lines)
}

/// The table of a sweep's times.
fn times(records: &[Record]) -> String {
    let lengths: Vec<&[Record]> = records.chunk_by(|one, next| one.n == next.n).collect();
    let header = lengths[0].iter().map(|record| record.variant.clone());
    let mut lines = vec![std::iter::once("elements".to_owned()).chain(header).collect::<Vec<_>>()];
    for of_length in lengths {
        let values = of_length.iter().map(|r| r.us.map_or_else(String::new, |us| format!("{us:.2}")));
        lines.push(std::iter::once(length(of_length[0].n)).chain(values).collect());
    }
    markdown(&lines)
}
