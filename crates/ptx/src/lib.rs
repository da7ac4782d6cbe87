//! The PTX of many kernels, packed to be embedded in a program.
//!
//! Each entry point is a module of its own, so that the driver compiles it alone. Similar modules are
//! compressed together, one after the other, because they differ little. Register and label numbers hardly
//! repeat, so each is encoded as how long ago it was used. Reading a module decompresses those before it but
//! not those after it, so the modules needed most come first.
//!
//! The feature `pack` packs and the feature `unpack` unpacks; without both there is only [`Ptx`].
#![cfg_attr(not(any(feature = "pack", feature = "unpack")), no_std)]

#[cfg(test)]
extern crate self as gpu_reduce_ptx;
#[cfg(all(test, feature = "pack", feature = "unpack"))]
#[path = "../../../ptx/kernels.rs"]
mod kernels;
#[cfg(all(test, feature = "pack", feature = "unpack"))]
#[path = "../../../ptx/ladder.rs"]
mod ladder;

#[cfg(feature = "unpack")]
mod fold;
#[cfg(feature = "pack")]
mod pack;
#[cfg(any(feature = "pack", feature = "unpack"))]
mod registers;
#[cfg(feature = "unpack")]
mod unpack;

#[cfg(feature = "unpack")]
pub use fold::fold_constants;
#[cfg(feature = "pack")]
pub use pack::{Packed, pack, repack, statics};

/// The packed PTX of some kernels.
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// The version of the PTX ISA that it needs: major and minor.
    pub version: (i32, i32),
    /// The compute capability that it needs: major and minor.
    pub capability: (i32, i32),
    /// The kernels by name, in the order of their modules. A kernel has an entry point `NAME_BLOCK` for each
    /// pair of a BLOCK and the length of its encoded module.
    pub kernels: &'static [(&'static str, &'static [(u32, usize)])],
    /// The encoded modules, compressed by Brotli.
    pub packed: &'static [u8],
}

impl Ptx {
    /// Whether there is a kernel of this name.
    pub fn has(&self, kernel: &str) -> bool {
        self.kernels.iter().any(|&(name, _)| name == kernel)
    }

    /// Whether a kernel has an entry point for a BLOCK.
    pub fn has_block(&self, kernel: &str, block: u32) -> bool {
        let mut kernels = self.kernels.iter();
        kernels.any(|&(name, entries)| name == kernel && entries.iter().any(|entry| entry.0 == block))
    }
}

#[cfg(all(test, feature = "pack", feature = "unpack"))]
mod tests {
    use super::*;
    use registers::encode;

    #[test]
    fn what_was_packed_comes_back() {
        let module = |entry: &str, version: &str| {
            format!(
                ".version {version}\n.target sm_75, debug\n.visible .entry {entry}() {{ add.s32 %r1, %r2, %r1; ret; }}\n"
            )
        };
        let modules = [("sum_32", "6.3"), ("sum_64", "7.0"), ("max_0", "6.3")]
            .map(|(entry, version)| (entry, module(entry, version)));
        let [sum, of_64, max] = modules.each_ref().map(|(_, module)| encode(module).len());
        for quality in [0, 5, 9, 11] {
            let pairs = modules.iter().map(|(entry, module)| (*entry, &**module));
            let packed = pack("file", pairs, quality).unwrap();
            let expression = format!(
                "Ptx {{
    version: (7, 0),
    capability: (7, 5),
    kernels: &[
        (\"sum\", &[(32, {sum}), (64, {of_64})]),
        (\"max\", &[(0, {max})]),
    ],
    packed: include_bytes!(\"file\"),
}}"
            );
            assert_eq!(packed.expression, expression);
            let entries: [&'static [(u32, usize)]; 2] =
                [vec![(32, sum), (64, of_64)].leak(), vec![(0, max)].leak()];
            let ptx = Ptx {
                version: (7, 0),
                capability: (7, 5),
                kernels: vec![("sum", entries[0]), ("max", entries[1])].leak(),
                packed: packed.bytes.clone().leak(),
            };
            for ((kernel, block), (_, module)) in
                [("sum", 32), ("sum", 64), ("max", 0)].into_iter().zip(&modules)
            {
                assert_eq!(ptx.module(kernel, block).as_ref(), Some(module));
            }
            for (kernel, block) in [("sum", 0), ("max", 32), ("min", 32), ("", 0)] {
                assert_eq!(ptx.module(kernel, block), None);
            }
            let all = ptx.modules().unwrap();
            assert!(
                all.iter().map(|(entry, module)| (&**entry, module)).eq(modules.iter().map(|(e, m)| (*e, m)))
            );
            let pairs = || modules.iter().map(|(entry, module)| (*entry, &**module));
            assert_eq!(repack("file", pairs(), quality, &packed.bytes).unwrap().bytes, packed.bytes);
            // Kept though it was packed otherwise; not if it is something else.
            let other = pack("file", pairs(), quality ^ 1).unwrap().bytes;
            assert_eq!(repack("file", pairs(), quality, &other).unwrap().bytes, other);
            assert_eq!(
                repack("file", pairs().take(2), quality, &other).unwrap(),
                pack("file", pairs().take(2), quality).unwrap()
            );
            let damaged = Ptx { packed: &ptx.packed[..ptx.packed.len() / 2], ..ptx };
            assert_eq!(damaged.module("max", 0), None);
        }
    }

    #[test]
    fn what_the_library_embeds_comes_back() {
        let mut count = 0;
        for ptx in kernels::ALL.iter().chain(ladder::ALL) {
            let modules = ptx.modules().unwrap();
            let lens = ptx.kernels.iter().flat_map(|(_, entries)| entries.iter().map(|&(_, len)| len));
            for ((entry, module), len) in modules.iter().zip(lens) {
                assert_eq!(encode(module).len(), len, "{entry}");
                count += 1;
            }
            // One alone is the same: the first and the last, before which all others are unpacked.
            for (entry, module) in [&modules[0], &modules[modules.len() - 1]] {
                let (kernel, block) = entry.rsplit_once('_').unwrap();
                assert_eq!(ptx.module(kernel, block.parse().unwrap()).as_ref(), Some(module), "{entry}");
            }
        }
        assert!(count > 1000, "{count} modules");
    }
}
