//! The charts of `f32` sums.

use std::iter::once;
use std::num::NonZeroUsize;
use std::ops::Range;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::error::Error;
use super::figures::{Case, Figures, OURS};
use crate::common::chart::{COLOURS, INK, Lines, Series, decades, ranges, svg};
use crate::common::table::{rounded, short};

/// Heights in pixels.
const UPPER: u32 = 400;
const LOWER: u32 = 240;
const HALF: u32 = 320;

/// The number of elements in all segments together.
const OF_SEGMENTS: usize = 1 << 26;

/// Draws the bandwidth over the length, and below it the speedup over each peer and over ourselves, which is
/// 1.
pub fn over_lengths(figures: &Figures) -> Result<String, Error> {
    let length = |case: &Case| Some(case.n).filter(|_| case.is_of_f32("sum"));
    let mut bandwidths = bandwidths(figures, length);
    let ratios: Vec<_> =
        names(figures).map(|(name, colour)| line(name, colour, figures.ratios(name), length)).collect();
    let ([lengths, _], [our_lengths, ratio_range]) = (ranges(&bandwidths), ranges(&ratios));
    if our_lengths.start >= our_lengths.end {
        return Err(Error::NoLengths);
    }
    bandwidths.extend(peak(figures, &lengths));

    let [_, bandwidth_range] = ranges(&bandwidths);
    let upper = Lines {
        title: &on_device("Sums of f32: GB/s over length", figures),
        lengths: lengths.clone(),
        values: decades(bandwidth_range),
        label: decade,
        series: &bandwidths,
        legend: Some(SeriesLabelPosition::LowerRight),
    };
    let lower = Lines {
        title: &format!("How many times as fast {OURS} is"),
        lengths,
        values: RangedCoordf64::from(0.95 * ratio_range.start..1.05 * ratio_range.end),
        label: short,
        series: &ratios,
        legend: Some(SeriesLabelPosition::UpperRight),
    };
    Ok(svg(UPPER + LOWER, |area| {
        let (above, below) = area.split_vertically(UPPER);
        upper.draw(&above)?;
        lower.draw(&below)
    })?)
}

/// Draws the bandwidth over the length of segments by offsets, and below it over the length of rows.
pub fn over_segments(figures: &Figures) -> Result<String, Error> {
    let lengths = 1.0..OF_SEGMENTS as f64;
    let [segments, rows] = ["segsum", "rowsum"].map(|op| {
        let length = |case: &Case| {
            NonZeroUsize::new(case.segment).filter(|_| case.is_of_f32(op) && case.n.get() == OF_SEGMENTS)
        };
        bandwidths(figures, length)
    });
    if [&segments, &rows].iter().all(|lines| lines[0].points.is_empty()) {
        return Err(Error::NoSegments);
    }
    let [segments, rows] =
        [segments, rows].map(|lines| lines.into_iter().chain(peak(figures, &lengths)).collect::<Vec<_>>());

    let highest = [&segments, &rows].map(|lines| ranges(lines)[1].end).into_iter().fold(0.0, f64::max);
    let half = |title, series, legend| Lines {
        title,
        lengths: lengths.clone(),
        values: RangedCoordf64::from(0.0..highest),
        label: rounded,
        series,
        legend,
    };
    let title = on_device("Sums of segments of 2^26 f32: GB/s of the input over their length", figures);
    let upper = half(&title, &segments, None);
    // The legend is in the lower half, where there is room; both halves have the same colours.
    let lower = half(
        "Sums of rows: GB/s of the input over their length",
        &rows,
        Some(SeriesLabelPosition::LowerRight),
    );
    Ok(svg(2 * HALF, |area| {
        let (above, below) = area.split_vertically(HALF);
        upper.draw(&above)?;
        lower.draw(&below)
    })?)
}

/// This library and the peers, each with its colour.
fn names(figures: &Figures) -> impl Iterator<Item = (&str, RGBColor)> {
    once(OURS).chain(figures.peers()).zip(COLOURS.into_iter().cycle())
}

/// The bandwidths of this library and of each peer, over the lengths that `length` gives for a case, if any.
fn bandwidths(figures: &Figures, length: impl Fn(&Case) -> Option<NonZeroUsize>) -> Vec<Series> {
    let values = |name| figures.of(name).map(|time| (&time.case, time.gbps()));
    names(figures).map(|(name, colour)| line(name, colour, values(name), &length)).collect()
}

fn line<'a>(
    name: &str,
    colour: RGBColor,
    values: impl Iterator<Item = (&'a Case, f64)>,
    length: impl Fn(&Case) -> Option<NonZeroUsize>,
) -> Series {
    let mut points: Vec<_> =
        values.filter_map(|(case, value)| Some((length(case)?.get() as f64, value))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series { name: name.to_owned(), colour, points, dots: true }
}

/// The memory's peak bandwidth, if it is known.
fn peak(figures: &Figures, lengths: &Range<f64>) -> Option<Series> {
    let gbps = figures.peak.as_ref()?.gbps;
    let points = vec![(lengths.start, gbps), (lengths.end, gbps)];
    let name = format!("the peak of the memory, {}", rounded(gbps));
    Some(Series { name, colour: INK, points, dots: false })
}

/// The title, followed by the device's name if it is known.
fn on_device(title: &str, figures: &Figures) -> String {
    let device = figures.peak.iter().map(|peak| format!(", on {}", peak.device));
    once(title.to_owned()).chain(device).collect()
}

/// Formats a power of ten without superfluous digits.
fn decade(value: f64) -> String {
    let digits = -value.log10().round().min(0.0);
    format!("{value:.0$}", digits as usize)
}
