//! Tables in Markdown.

/// A length, written as a power of two if it is one greater than 1.
pub fn length(n: usize) -> String {
    if n > 1 && n.is_power_of_two() { format!("2^{}", n.ilog2()) } else { n.to_string() }
}

/// A number with at most two decimals, without trailing zeros.
pub fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with the digits that matter in a chart.
pub fn rounded(number: f64) -> String {
    if number < 100.0 { short(number) } else { format!("{number:.0}") }
}

/// A table; the first line is the header, the first column is text and the others are numbers.
pub fn markdown(lines: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    let row = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("| {cell:<width$} |"),
            _ => format!(" {cell:>width$} |"),
        });
        cells.collect::<String>() + "\n"
    };
    let rule = widths.iter().enumerate().map(|(column, &width)| match column {
        0 => format!("| {} |", "-".repeat(width)),
        _ => format!(" {}: |", "-".repeat(width.saturating_sub(1))),
    });
    row(&lines[0])
        + &rule.collect::<String>()
        + "\n"
        + &lines[1..].iter().map(|line| row(line)).collect::<String>()
}
