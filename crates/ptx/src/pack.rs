//! Packs PTX modules.

use crate::registers;
use brotli::enc::BrotliEncoderParams;

/// Packed modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Their [`Ptx`](crate::Ptx) as a Rust expression that includes the bytes from a file.
    pub expression: String,
    /// The content of that file.
    pub bytes: Vec<u8>,
}

/// Packs the modules of entry points named `NAME_BLOCK`, in this order.
///
/// `quality` is Brotli's, from 0 to 11; 11 is by far the slowest. `file` is the name of the file for the
/// packed modules, beside the file that has the expression. Returns `None` if a name or a module is
/// malformed.
pub fn pack<'a>(
    file: &str,
    modules: impl Iterator<Item = (&'a str, &'a str)>,
    quality: i32,
) -> Option<Packed> {
    repack(file, modules, quality, &[])
}

/// As [`pack`], but reuses `old`, the bytes of an earlier file, if they unpack to the same: packing is slow.
pub fn repack<'a>(
    file: &str,
    modules: impl Iterator<Item = (&'a str, &'a str)>,
    quality: i32,
    old: &[u8],
) -> Option<Packed> {
    let (mut text, mut kernels) = (Vec::new(), Vec::<(&str, Vec<(u32, usize)>)>::new());
    let mut needs = Needs::default();
    for (entry, module) in modules {
        let (name, block) = entry.rsplit_once('_')?;
        let module_needs = needs_of(module)?;
        needs = Needs {
            version: needs.version.max(module_needs.version),
            capability: needs.capability.max(module_needs.capability),
        };
        let encoded = registers::encode(module);
        let entry = (block.parse().ok()?, encoded.len());
        match kernels.last_mut() {
            Some((last, entries)) if *last == name => entries.push(entry),
            _ => kernels.push((name, vec![entry])),
        }
        text.extend(encoded);
    }
    let Needs { version, capability } = needs;
    let rows: String =
        kernels.iter().map(|(name, entries)| format!("        ({name:?}, &{entries:?}),\n")).collect();
    let expression = format!(
        "Ptx {{
    version: {version:?},
    capability: {capability:?},
    kernels: &[
{rows}    ],
    packed: include_bytes!({file:?}),
}}"
    );
    let mut unpacked = Vec::new();
    let is_same = brotli::BrotliDecompress(&mut &old[..], &mut unpacked).is_ok() && unpacked == text;
    Some(Packed { expression, bytes: if is_same { old.to_vec() } else { compress(&text, quality)? } })
}

const HEADER: &str = "#![allow(missing_docs, non_upper_case_globals)]
#![cfg_attr(rustfmt, rustfmt_skip)]

use gpu_reduce_ptx::Ptx;

";

/// A Rust module with a static for each name and its packed modules, and `ALL`, a list of them. A linker
/// leaves out those that a program does not name.
pub fn statics<'a>(files: impl Iterator<Item = (&'a str, &'a Packed)> + Clone) -> String {
    let statics: String = files
        .clone()
        .map(|(name, packed)| format!("pub static {name}: Ptx = {};\n", packed.expression))
        .collect();
    let all: String = files.map(|(name, _)| format!("    &{name},\n")).collect();
    format!("{HEADER}{statics}pub static ALL: &[&Ptx] = &[\n{all}];\n")
}

fn compress(text: &[u8], quality: i32) -> Option<Vec<u8>> {
    let params = BrotliEncoderParams {
        quality,
        // A window no larger than the text: unpacking allocates that much memory.
        lgwin: text.len().max(1).ilog2().saturating_add(1).clamp(10, 24) as i32,
        size_hint: text.len(),
        ..BrotliEncoderParams::default()
    };
    let mut bytes = Vec::new();
    brotli::BrotliCompress(&mut &text[..], &mut bytes, &params).ok()?;
    Some(bytes)
}

/// What modules need of a driver and a GPU.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Needs {
    version: (i32, i32),
    capability: (i32, i32),
}

/// Reads what a module needs from its first lines.
fn needs_of(module: &str) -> Option<Needs> {
    let value_of = |directive| module.lines().find_map(|line| line.strip_prefix(directive));
    let (major, minor) = value_of(".version ")?.split_once('.')?;
    let target = value_of(".target sm_")?;
    let target: i32 = target.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some(Needs {
        version: (major.parse().ok()?, minor.trim_end().parse().ok()?),
        capability: (target / 10, target % 10),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_has_a_name() {
        let module = ".version 6.0\n.target sm_70\n";
        let packed = pack("sum.ptx.br", [("sum_32", module)].into_iter(), 9).unwrap();
        let file = statics([("sum", &packed)].into_iter());
        let statics = format!("pub static sum: Ptx = {};\n", packed.expression);
        assert_eq!(file, format!("{HEADER}{statics}pub static ALL: &[&Ptx] = &[\n    &sum,\n];\n"));
    }

    #[test]
    fn what_is_no_kernel_is_not_packed() {
        const PTX: &str = ".version 6.0\n.target sm_70, debug\n";
        for (entry, module) in [
            ("sum", PTX),
            ("sum_", PTX),
            ("sum_f32", PTX),
            ("sum_32", ""),
            ("sum_32", ".version 6\n.target sm_70\n"),
        ] {
            assert!(pack("file", [(entry, module)].into_iter(), 9).is_none(), "{entry}: {module}");
        }
        assert_eq!(needs_of(PTX), Some(Needs { version: (6, 0), capability: (7, 0) }));
    }
}
