//! Unpacks PTX modules.

use crate::{Ptx, registers};
use brotli_decompressor::Decompressor;
use std::io::{self, Read};

impl Ptx {
    /// Returns the module of the entry point of `kernel` for this BLOCK, if there is one.
    pub fn module(&self, kernel: &str, block: u32) -> Option<String> {
        let mut end = 0;
        let len = self.kernels.iter().find_map(|&(name, entries)| {
            entries.iter().find_map(|&(of, len)| {
                end += len;
                (name == kernel && of == block).then_some(len)
            })
        })?;
        let mut packed = Decompressor::new(self.packed, 1 << 12);
        io::copy(&mut packed.by_ref().take((end - len) as u64), &mut io::sink()).ok()?;
        let mut encoded = vec![0; len];
        packed.read_exact(&mut encoded).ok()?;
        String::from_utf8(registers::decode(&encoded)?).ok()
    }

    /// All modules with their entry points' names, `NAME_BLOCK` each, if none is damaged: sooner than one by
    /// one.
    pub fn modules(&self) -> Option<Vec<(String, String)>> {
        let mut packed = Decompressor::new(self.packed, 1 << 16);
        let entries =
            self.kernels.iter().flat_map(|(name, entries)| entries.iter().map(move |entry| (name, entry)));
        let unpack = |(name, &(block, len)): (_, &(u32, usize))| {
            let mut encoded = vec![0; len];
            packed.read_exact(&mut encoded).ok()?;
            Some((format!("{name}_{block}"), String::from_utf8(registers::decode(&encoded)?).ok()?))
        };
        entries.map(unpack).collect()
    }
}
