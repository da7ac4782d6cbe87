//! The header of NumPy's `.npy` files:
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use super::error::Error;

/// The first bytes of every `.npy` file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// The contents of a header.
pub struct Header {
    /// NumPy's name of the type, such as `<f4`; for a structured type, the list of its fields.
    pub descr: String,
    /// The shape as the file spells it, such as `(3, 4)`.
    pub shape: String,
    /// The lengths of the axes.
    pub axes: Vec<usize>,
    /// Whether the first axis is contiguous, not the last.
    pub fortran_order: bool,
    /// The number of elements: the product of the shape.
    pub count: usize,
    /// The offset of the data in the file, in bytes.
    pub start: usize,
}

impl Header {
    /// Parses the header at the start of `file`, of format version 1.0, 2.0 or 3.0.
    ///
    /// # Errors
    ///
    /// [`Error::Npy`] if the header is cut off, or is not the dictionary that the format prescribes.
    pub fn parse(file: &[u8]) -> Result<Header, Error> {
        let malformed = |reason: String| Error::Npy { reason };
        let cut_off = || malformed("the file ends within its header".into());

        let Some(preamble) = file.strip_prefix(MAGIC) else {
            return Err(malformed(r"it does not start with the bytes \x93NUMPY".into()));
        };
        let (length, text) = match *preamble {
            [1, 0, a, b, ref text @ ..] => (u16::from_le_bytes([a, b]).into(), text),
            [2 | 3, 0, a, b, c, d, ref text @ ..] => (u32::from_le_bytes([a, b, c, d]) as usize, text),
            [1..=3, 0, ..] | [] | [_] => return Err(cut_off()),
            [major, minor, ..] => {
                return Err(malformed(format!("version {major}.{minor} is not 1.0, 2.0 or 3.0")));
            }
        };
        let (text, data) = text.split_at_checked(length).ok_or_else(cut_off)?;

        let text = String::from_utf8_lossy(text);
        let (descr, fortran_order, shape) = values(text.trim()).ok_or_else(|| {
            malformed(format!("`{}` is not a dictionary of descr, fortran_order and shape", text.trim()))
        })?;
        let (axes, count) = lengths(shape)
            .and_then(|axes| {
                let count = axes.iter().try_fold(1_usize, |count, &length| count.checked_mul(length))?;
                Some((axes, count))
            })
            .ok_or_else(|| malformed(format!("`{shape}` is not a shape whose elements can be counted")))?;
        let start = file.len() - data.len();
        Ok(Header { descr: descr.into(), shape: shape.into(), axes, fortran_order, count, start })
    }
}

/// Returns a header for `count` results of `width` numbers each, of the type that NumPy calls `descr`.
pub fn header(descr: &str, count: usize, width: usize) -> Vec<u8> {
    /// Bytes before the text: the magic bytes, the version and the text's length.
    const PREAMBLE: usize = MAGIC.len() + 4;
    let shape = if width == 1 { format!("({count},)") } else { format!("({count}, {width})") };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // The data start at a multiple of 64 bytes, after a line end.
    let length = (PREAMBLE + text.len() + 1).next_multiple_of(64) - PREAMBLE;
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    header
}

/// The values of `descr`, `fortran_order` and `shape` in a Python dictionary of exactly these keys.
fn values(dictionary: &str) -> Option<(&str, bool, &str)> {
    let (mut descr, mut order, mut shape) = (None, None, None);
    for entry in top_level_entries(dictionary.strip_prefix('{')?.strip_suffix('}')?) {
        let (key, value) = entry.split_once(':')?;
        let value = value.trim();
        match unquoted(key.trim())? {
            "descr" => descr = Some(unquoted(value).unwrap_or(value)),
            "fortran_order" => {
                order = Some(match value {
                    "True" => true,
                    "False" => false,
                    _ => return None,
                });
            }
            "shape" => shape = Some(value),
            _ => return None,
        }
    }
    Some((descr?, order?, shape?))
}

/// The parts of `text` between commas outside of brackets and strings.
fn top_level_entries(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quote) = (0, None);
    let entries = text.split(move |c| {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0 && quote.is_none()
    });
    entries.map(str::trim).filter(|entry| !entry.is_empty())
}

/// The content of a Python string literal.
fn unquoted(literal: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| literal.strip_prefix(quote)?.strip_suffix(quote))
}

/// The sizes in a Python tuple: `(3, 4)`, `(3,)` or `()`.
fn lengths(tuple: &str) -> Option<Vec<usize>> {
    let sizes = tuple.strip_prefix('(')?.strip_suffix(')')?.trim();
    let sizes = sizes.strip_suffix(',').unwrap_or(sizes);
    if sizes.is_empty() {
        return Some(Vec::new());
    }
    sizes.split(',').map(|size| size.trim().parse().ok()).collect()
}
