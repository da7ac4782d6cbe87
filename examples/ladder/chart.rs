//! Charts of the times.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::error::Error;
use super::record::Record;
use super::rung::is_rung;
use crate::common::chart::{COLOURS, Draw, INK, Lines, Series, decades, failed, ranges, svg, text};
use crate::common::table::{rounded, short};

/// Charts with their file names: for one length, the bandwidth and time of each variant as bars; for several,
/// the time over the length.
pub fn charts(records: &[Record]) -> Result<Vec<(&'static str, String)>, Error> {
    // A file may contain any number.
    let drawn = |number: Option<f64>| number.is_some_and(|number| number.is_normal() && number > 0.0);
    let timed: Vec<&Record> =
        records.iter().filter(|record| record.n > 0 && drawn(record.us) && drawn(record.gbps)).collect();
    let (Some(first), Some(last)) = (timed.first(), timed.last()) else { return Err(Error::NoTimes) };
    let what = format!("Sums of {}, {} threads a block, {}", first.r#type, first.threads, first.device);
    if first.n != last.n {
        let title = format!("{what}: time over length");
        return Ok(vec![("sweep.svg", lines(&title, &timed)?)]);
    }
    let bandwidths = timed.iter().filter_map(|record| Some((record.variant.as_str(), record.gbps?)));
    let peak = first.peak_gbps.filter(|&peak| drawn(Some(peak)));
    let times = timed.iter().filter_map(|record| Some((record.variant.as_str(), record.us?)));
    let what = format!("{what}, {} elements", first.n);
    Ok(vec![
        ("bandwidth.svg", bars(&format!("{what}: GB/s"), &bandwidths.collect::<Vec<_>>(), peak)?),
        ("time.svg", bars(&format!("{what}: µs"), &times.collect::<Vec<_>>(), None)?),
    ])
}

/// One bar per row, with its value, and a line at the ceiling.
fn bars(title: &str, rows: &[(&str, f64)], ceiling: Option<f64>) -> Result<String, Draw> {
    svg(26 * rows.len() as u32 + 80, |area| {
        let most = rows.iter().map(|row| row.1).chain(ceiling).fold(0.0, f64::max);
        let count = rows.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(16)
            .caption(title, text())
            .set_label_area_size(LabelAreaPosition::Left, 156)
            .set_label_area_size(LabelAreaPosition::Bottom, 28)
            .build_cartesian_2d(0.0..most * 1.1, 0.0..count)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .axis_style(INK)
            .bold_line_style(INK.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|&value| rounded(value))
            .x_label_style(text())
            .draw()
            .map_err(failed)?;
        let [left, right] = [HPos::Right, HPos::Left].map(|side| text().pos(Pos::new(side, VPos::Center)));
        let label = |x: f64, y: f64, pixels, what: String, style| {
            EmptyElement::at((x, y)) + Text::new(what, (pixels, 0), style)
        };
        for (index, &(name, value)) in rows.iter().enumerate() {
            let middle = count - index as f64 - 0.5;
            let colour = if is_rung(name) { COLOURS[0] } else { COLOURS[1] };
            let bar = Rectangle::new([(0.0, middle - 0.35), (value, middle + 0.35)], colour.filled());
            let name = label(0.0, middle, -6, name.to_owned(), left.clone());
            let value = label(value, middle, 6, rounded(value), right.clone());
            chart.draw_series([bar]).map_err(failed)?;
            chart.draw_series([name, value]).map_err(failed)?;
        }
        if let Some(ceiling) = ceiling {
            let line = PathElement::new([(ceiling, 0.0), (ceiling, count)], COLOURS[3].stroke_width(2));
            chart.draw_series([line]).map_err(failed)?;
            // In the first row, whose bar is short.
            let left = left.color(&COLOURS[3]);
            let peak = format!("the peak of the memory, {}", rounded(ceiling));
            chart.draw_series([label(ceiling, count - 0.5, -6, peak, left)]).map_err(failed)?;
        }
        Ok(())
    })
}

/// One line per variant, with logarithmic axes.
fn lines(title: &str, records: &[&Record]) -> Result<String, Draw> {
    let variants = records.iter().take_while(|record| record.n == records[0].n);
    let series = variants.zip(COLOURS.into_iter().cycle()).map(|(Record { variant, .. }, colour)| {
        let of_variant = records.iter().filter(|record| record.variant == *variant);
        let points = of_variant.filter_map(|record| Some((record.n as f64, record.us?))).collect();
        Series { name: variant.clone(), colour, points, dots: true }
    });
    let series: Vec<Series> = series.collect();
    let [lengths, times] = ranges(&series);
    let (values, legend) = (decades(times), Some(SeriesLabelPosition::UpperLeft));
    svg(560, |area| Lines { title, lengths, values, label: time, series: &series, legend }.draw(area))
}

/// A time in a suitable unit.
fn time(us: f64) -> String {
    match us {
        1e6.. => format!("{} s", short(us / 1e6)),
        1e3.. => format!("{} ms", short(us / 1e3)),
        _ => format!("{} µs", short(us)),
    }
}
