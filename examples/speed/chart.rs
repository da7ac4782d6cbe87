//! The chart of `f32` sums.

use std::iter::once;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::error::Error;
use super::figures::{Case, Figures, OURS};
use crate::common::chart::{COLOURS, INK, Lines, Series, decades, ranges, svg};
use crate::common::table::{rounded, short};

/// Heights, in pixels.
const UPPER: u32 = 400;
const LOWER: u32 = 240;

/// Bandwidths over lengths, and below them how many times as fast as each peer we are; as ourselves, once.
pub fn chart(figures: &Figures) -> Result<String, Error> {
    let (mut bandwidths, mut ratios) = (Vec::new(), Vec::new());
    for (name, colour) in once(OURS).chain(figures.peers()).zip(COLOURS.into_iter().cycle()) {
        bandwidths.push(line(name, colour, figures.of(name).map(|time| (&time.case, time.gbps()))));
        ratios.push(line(name, colour, figures.ratios(name)));
    }
    let ([lengths, _], [our_lengths, ratio_range]) = (ranges(&bandwidths), ranges(&ratios));
    if our_lengths.start >= our_lengths.end {
        return Err(Error::NoLengths);
    }
    let mut title = "Sums of f32: GB/s over length".to_owned();
    if let Some(peak) = &figures.peak {
        title += &format!(", on {}", peak.device);
        let name = format!("the peak of the memory, {}", rounded(peak.gbps));
        let points = vec![(lengths.start, peak.gbps), (lengths.end, peak.gbps)];
        bandwidths.push(Series { name, colour: INK, points, dots: false });
    }

    let [_, bandwidth_range] = ranges(&bandwidths);
    let upper = Lines {
        title: &title,
        lengths: lengths.clone(),
        values: decades(bandwidth_range),
        label: decade,
        series: &bandwidths,
        legend: SeriesLabelPosition::LowerRight,
    };
    let lower = Lines {
        title: &format!("How many times as fast {OURS} is"),
        lengths,
        values: RangedCoordf64::from(0.95 * ratio_range.start..1.05 * ratio_range.end),
        label: short,
        series: &ratios,
        legend: SeriesLabelPosition::UpperRight,
    };
    Ok(svg(UPPER + LOWER, |area| {
        let (above, below) = area.split_vertically(UPPER);
        upper.draw(&above)?;
        lower.draw(&below)
    })?)
}

/// A value for each sum of `f32`.
fn line<'a>(name: &str, colour: RGBColor, values: impl Iterator<Item = (&'a Case, f64)>) -> Series {
    let sums = values.filter(|(case, _)| case.is_sum_of_f32());
    let mut points: Vec<_> = sums.map(|(case, value)| (case.n.get() as f64, value)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series { name: name.to_owned(), colour, points, dots: true }
}

/// A power of ten, with no digits that it does not need.
fn decade(value: f64) -> String {
    let digits = -value.log10().round().min(0.0);
    format!("{value:.0$}", digits as usize)
}
