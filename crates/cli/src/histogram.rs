//! A histogram of the numbers, drawn as SVG.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use gpu_reduce_dynamic::Number;
use plotters::prelude::*;
use rayon::prelude::*;

use super::error::Error;

/// Counts of the numbers in ranges of equal width.
pub struct Histogram {
    /// The start of the first range; `to` is the end of the last.
    from: f64,
    to: f64,
    counts: Vec<u64>,
    /// The number of NaNs and infinities, which are in no range.
    left_out: u64,
}

impl Histogram {
    /// Counts `values` in up to 64 ranges between the least and the greatest. Integers have a range each if
    /// 64 are enough.
    pub fn of<T: Number>(values: &[T]) -> Histogram {
        const PIECE: usize = 1 << 16;
        const MOST: f64 = 64.0;
        let pieces = || values.par_chunks(PIECE).map(|piece| piece.iter().map(|value| value.as_f64()));
        let is_finite = |value: &f64| value.is_finite();
        let nothing = || (f64::INFINITY, f64::NEG_INFINITY, 0_u64);
        let (least, greatest, count) = pieces()
            .map(|piece| {
                piece
                    .filter(is_finite)
                    .fold(nothing(), |(a, b, n), value| (a.min(value), b.max(value), n + 1))
            })
            .reduce(nothing, |(a, b, n), (c, d, m)| (a.min(c), b.max(d), n + m));
        let left_out = values.len() as u64 - count;
        if count == 0 {
            return Histogram { from: 0.0, to: 1.0, counts: vec![0], left_out };
        }

        let is_each_its_own = T::IS_INTEGER && greatest - least < MOST;
        let (from, to, bins) = match is_each_its_own || least == greatest {
            true => (least - 0.5, greatest + 0.5, greatest - least + 1.0),
            false => (least, greatest, (count as f64).sqrt().ceil().min(MOST)),
        };
        // Halves the values first, so that their difference is finite.
        let bin = |value: f64| {
            (((value / 2.0 - from / 2.0) / (to / 2.0 - from / 2.0) * bins) as usize).min(bins as usize - 1)
        };
        let counts = pieces().fold(
            || vec![0_u64; bins as usize],
            |mut counts, piece| {
                piece.filter(is_finite).for_each(|value| counts[bin(value)] += 1);
                counts
            },
        );
        let sum = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        Histogram { from, to, counts: counts.reduce(|| vec![0; bins as usize], sum), left_out }
    }

    /// Writes the SVG to a file.
    ///
    /// # Errors
    ///
    /// [`Error::Plot`], [`Error::Write`].
    pub fn draw(&self, path: &Path) -> Result<(), Error> {
        let svg = self.svg()?;
        fs::write(path, svg).map_err(|source| Error::Write { path: path.into(), source })
    }

    /// The SVG text. Its background is transparent and its text is grey, readable on light and dark pages.
    fn svg(&self) -> Result<String, Error> {
        const SIZE: (u32, u32) = (840, 400);
        const INK: RGBColor = RGBColor(128, 128, 128);
        const BARS: RGBColor = RGBColor(66, 133, 204);
        let failed = |error: &dyn Display| Error::Plot { reason: error.to_string() };

        let Histogram { from, to, ref counts, left_out } = *self;
        let count: u64 = counts.iter().sum();
        let mut caption = format!("{count} numbers");
        if left_out > 0 {
            caption += &format!(", without {left_out} that are NaN or infinite");
        }
        // The axis counts ranges, because the difference of two values may be infinite.
        let bins = counts.len() as f64;
        let edge = |bin: f64| rounded(from * (1.0 - bin / bins) + to * (bin / bins));
        let most = counts.iter().max().map_or(1, |&most| most.max(1));

        let mut svg = String::new();
        {
            let text = ("sans-serif", 17).into_font().color(&INK);
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&root)
                .margin(8)
                .margin_right(32)
                .caption(caption, text.clone())
                .set_label_area_size(LabelAreaPosition::Left, 96)
                .set_label_area_size(LabelAreaPosition::Bottom, 32)
                .build_cartesian_2d(0.0..bins, 0.0..most as f64)
                .map_err(|error| failed(&error))?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .axis_style(INK)
                .bold_line_style(INK.mix(0.3))
                .light_line_style(TRANSPARENT)
                .x_labels(8)
                .x_label_formatter(&|&bin| edge(bin))
                .y_label_formatter(&|&count| format!("{count}"))
                .label_style(text)
                .draw()
                .map_err(|error| failed(&error))?;
            let bars = counts.iter().enumerate().map(|(bin, &count)| {
                let bin = bin as f64;
                Rectangle::new([(bin, 0.0), (bin + 1.0, count as f64)], BARS.mix(0.8).filled())
            });
            chart.draw_series(bars).map_err(|error| failed(&error))?;
            root.present().map_err(|error| failed(&error))?;
        }
        Ok(svg)
    }
}

/// A number with four significant digits.
fn rounded(number: f64) -> String {
    let text = format!("{number:.3e}");
    match text.parse::<f64>() {
        Ok(number) if number == 0.0 || (1e-4..1e7).contains(&number.abs()) => number.to_string(),
        _ => text,
    }
}
