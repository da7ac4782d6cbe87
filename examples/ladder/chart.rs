//! Charts as SVG. Nothing fills the background, and lines and letters are of a middle grey, so that they are read on a light
//! and on a dark page.

use std::fmt::Display;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::error::Error;
use super::record::Record;
use super::rung::is_rung;
use super::table::{length, short};

/// Letters and axes.
const INK: RGBColor = RGBColor(128, 128, 128);

/// What is drawn: each at least three times as bright as black, and white as it.
const COLOURS: [RGBColor; 7] = [
    RGBColor(66, 133, 204),
    RGBColor(217, 119, 38),
    RGBColor(52, 150, 92),
    RGBColor(204, 82, 94),
    RGBColor(140, 108, 204),
    RGBColor(40, 148, 156),
    RGBColor(158, 126, 40),
];

const WIDTH: u32 = 840;
/// The backend divides the size by 1.24.
const FONT: (&str, u32) = ("sans-serif", 17);

/// The charts of what was timed, by the names of their files: of one length the bandwidth and the time of each variant as
/// bars, of several the time over the length.
pub fn charts(records: &[Record]) -> Result<Vec<(&'static str, String)>, Error> {
    // What a file holds may be anything.
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

/// A bar a row, with its value, and a line at the ceiling.
fn bars(title: &str, rows: &[(&str, f64)], ceiling: Option<f64>) -> Result<String, Error> {
    let mut svg = String::new();
    let height = 26 * rows.len() as u32 + 80;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let most = rows.iter().map(|row| row.1).chain(ceiling).fold(0.0, f64::max);
        let count = rows.len() as f64;
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(16)
            .caption(title, text(FONT))
            .set_label_area_size(LabelAreaPosition::Left, 156)
            .set_label_area_size(LabelAreaPosition::Bottom, 28)
            .build_cartesian_2d(0.0..most * 1.1, 0.0..count)
            .map_err(draw)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .axis_style(INK)
            .bold_line_style(INK.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|&value| rounded(value))
            .x_label_style(text(FONT))
            .draw()
            .map_err(draw)?;
        let [left, right] =
            [HPos::Right, HPos::Left].map(|side| text(FONT).pos(Pos::new(side, VPos::Center)));
        let label = |x: f64, y: f64, pixels, what: String, style| {
            EmptyElement::at((x, y)) + Text::new(what, (pixels, 0), style)
        };
        for (index, &(name, value)) in rows.iter().enumerate() {
            let middle = count - index as f64 - 0.5;
            let colour = if is_rung(name) { COLOURS[0] } else { COLOURS[1] };
            let bar = Rectangle::new([(0.0, middle - 0.35), (value, middle + 0.35)], colour.filled());
            let name = label(0.0, middle, -6, name.to_owned(), left.clone());
            let value = label(value, middle, 6, rounded(value), right.clone());
            chart.draw_series([bar]).map_err(draw)?;
            chart.draw_series([name, value]).map_err(draw)?;
        }
        if let Some(ceiling) = ceiling {
            let line = PathElement::new([(ceiling, 0.0), (ceiling, count)], COLOURS[3].stroke_width(2));
            chart.draw_series([line]).map_err(draw)?;
            // On the first row, whose bar is short.
            let left = left.color(&COLOURS[3]);
            let peak = format!("the peak of the memory, {}", rounded(ceiling));
            chart.draw_series([label(ceiling, count - 0.5, -6, peak, left)]).map_err(draw)?;
        }
        root.present().map_err(draw)?;
    }
    Ok(svg)
}

/// A line a variant, both axes logarithmic.
fn lines(title: &str, records: &[&Record]) -> Result<String, Error> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 560)).into_drawing_area();
        let points: Vec<(f64, f64)> = records.iter().map(|r| (r.n as f64, r.us.unwrap_or(0.0))).collect();
        let least = points.iter().copied().reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap_or((1.0, 1.0));
        let most = points.iter().copied().fold(least, |a, b| (a.0.max(b.0), a.1.max(b.1)));
        let decade = |us: f64, up: f64| 10f64.powf((us.log10() + up).floor());
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(24)
            .caption(title, text(FONT))
            .set_label_area_size(LabelAreaPosition::Left, 64)
            .set_label_area_size(LabelAreaPosition::Bottom, 32)
            .build_cartesian_2d(
                (least.0..most.0).log_scale().base(2.0),
                (decade(least.1, 0.0)..decade(most.1, 1.0)).log_scale(),
            )
            .map_err(draw)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(INK.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|&n| length(n.round() as usize))
            .y_label_formatter(&|us| time(*us))
            .label_style(text(FONT))
            .draw()
            .map_err(draw)?;
        let variants = records.iter().take_while(|record| record.n == records[0].n);
        for (index, variant) in variants.map(|record| &record.variant).enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let of_variant = || records.iter().zip(&points).filter(|(record, _)| record.variant == *variant);
            let line = LineSeries::new(of_variant().map(|(_, &point)| point), colour.stroke_width(2));
            chart
                .draw_series(line)
                .map_err(draw)?
                .label(variant)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
            let dots = of_variant().map(|(_, &point)| Circle::new(point, 3, colour.filled()));
            chart.draw_series(dots).map_err(draw)?;
        }
        let labels = &mut chart.configure_series_labels();
        let labels = labels.position(SeriesLabelPosition::UpperLeft).border_style(INK.mix(0.3));
        labels.label_font(text(FONT)).draw().map_err(draw)?;
        root.present().map_err(draw)?;
    }
    Ok(svg)
}

/// A number with as many digits as can be told apart in a chart.
fn rounded(number: f64) -> String {
    if number < 100.0 { short(number) } else { format!("{number:.0}") }
}

/// A time of so many microseconds, in the unit that suits it.
fn time(us: f64) -> String {
    match us {
        1e6.. => format!("{} s", short(us / 1e6)),
        1e3.. => format!("{} ms", short(us / 1e3)),
        _ => format!("{} µs", short(us)),
    }
}

fn text(font: (&'static str, u32)) -> TextStyle<'static> {
    font.into_font().color(&INK)
}

fn draw(error: impl Display) -> Error {
    Error::Draw(error.to_string())
}
