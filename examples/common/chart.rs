//! Charts as SVG. The background is transparent, and text and lines are grey, readable on light and dark
//! pages.

use std::fmt::Display;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use super::table::length;

/// The colour of text and axes.
pub const INK: RGBColor = RGBColor(128, 128, 128);

/// The colours of bars and lines. Their contrast with black and with white is at least 3 to 1.
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(66, 133, 204),
    RGBColor(217, 119, 38),
    RGBColor(52, 150, 92),
    RGBColor(204, 82, 94),
    RGBColor(140, 108, 204),
    RGBColor(40, 148, 156),
    RGBColor(158, 126, 40),
];

const WIDTH: u32 = 840;

/// The area of a chart.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A reason why a chart cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct Draw(String);

pub fn failed(error: impl Display) -> Draw {
    Draw(error.to_string())
}

/// Returns the image that `draw` draws.
pub fn svg(height: u32, draw: impl FnOnce(&Area) -> Result<(), Draw>) -> Result<String, Draw> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

pub fn text() -> TextStyle<'static> {
    // The backend divides the size by 1.24.
    ("sans-serif", 17).into_font().color(&INK)
}

/// Lines over lengths, with a logarithmic axis of lengths.
pub struct Lines<'a, Y> {
    pub title: &'a str,
    pub lengths: Range<f64>,
    /// The axis of the values.
    pub values: Y,
    /// Formats a value for the axis.
    pub label: fn(f64) -> String,
    pub series: &'a [Series],
    /// The position of the legend, if there is one.
    pub legend: Option<SeriesLabelPosition>,
}

/// A line: a value for each length.
pub struct Series {
    pub name: String,
    pub colour: RGBColor,
    pub points: Vec<(f64, f64)>,
    /// Whether a dot marks each point.
    pub dots: bool,
}

impl<Y: Ranged<ValueType = f64> + ValueFormatter<f64>> Lines<'_, Y> {
    pub fn draw(self, area: &Area) -> Result<(), Draw> {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .caption(self.title, text())
            .set_label_area_size(LabelAreaPosition::Left, 64)
            .set_label_area_size(LabelAreaPosition::Bottom, 32)
            .build_cartesian_2d(self.lengths.log_scale().base(2.0), self.values)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(INK.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|&n| length(n.round() as usize))
            .y_label_formatter(&|&value| (self.label)(value))
            .label_style(text())
            .draw()
            .map_err(failed)?;
        for &Series { ref name, colour, ref points, dots } in self.series {
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
                .map_err(failed)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
            let circles = points.iter().filter(|_| dots).map(|&point| Circle::new(point, 3, colour.filled()));
            chart.draw_series(circles).map_err(failed)?;
        }
        let Some(position) = self.legend else { return Ok(()) };
        let labels = &mut chart.configure_series_labels();
        let labels = labels.position(position).border_style(INK.mix(0.3));
        labels.label_font(text()).draw().map_err(failed)
    }
}

/// The ranges of the points' lengths and values; each starts at infinity if there are no points.
pub fn ranges(series: &[Series]) -> [Range<f64>; 2] {
    let range = |of: fn(&(f64, f64)) -> f64| {
        let numbers = || series.iter().flat_map(|series| &series.points).map(of);
        numbers().fold(f64::INFINITY, f64::min)..numbers().fold(0.0, f64::max)
    };
    [range(|point| point.0), range(|point| point.1)]
}

/// A logarithmic axis between the powers of ten that enclose the values.
pub fn decades(values: Range<f64>) -> LogCoord<f64> {
    let power = |value: f64, up: f64| 10f64.powf((value.log10() + up).floor());
    (power(values.start, 0.0)..power(values.end, 1.0)).log_scale().into()
}
