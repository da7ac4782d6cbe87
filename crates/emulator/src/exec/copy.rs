//! Asynchronous copies (`cp.async`). The bytes are copied at once; the checks forbid their use until the copy
//! has been waited for.

use crate::{
    fault::{Fault, FaultKind},
    program::code::{AsyncCopy, Space},
};

use super::{
    access::{Count, Request, addresses, weak_read},
    block::State,
    hooks::{Event, Hooks},
    lanes::{ALL, LANES, collect, lanes},
    warp::Warp,
};

impl State<'_> {
    /// Runs `cp.async`.
    #[cold]
    pub fn copy(
        &mut self,
        warp: &mut Warp,
        copy: &AsyncCopy,
        active: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let (from, to) = (addresses(&warp.registers, &copy.from), addresses(&warp.registers, &copy.to));
        let wanted = copy.reads.map_or([copy.size.into(); LANES], |register| warp.registers.wide(register));
        let ignored = copy.ignores.map_or(0, |(register, negated)| {
            warp.registers.predicate[register.index as usize] ^ if negated { ALL } else { 0 }
        });
        let too_many = collect(|lane| wanted[lane] > copy.size.into()) & active;
        if too_many != 0 {
            let count = wanted[too_many.trailing_zeros() as usize];
            let text = format!("`cp.async` reads {count} bytes but copies only {}", copy.size);
            return Err(self.site.fault(warp.index, at, too_many, FaultKind::CopyOperand(text)));
        }
        let size = copy.size.min(8);
        let count = copy.size / size;
        let mut values = [[0; LANES]; 2];
        let values = &mut values[..count as usize];
        let whole = collect(|lane| wanted[lane] == copy.size.into()) & active & !ignored;
        let request = weak_read(warp, (Space::Global, &from, whole), (size, count), at);
        self.hooks.begin(&request);
        let mut counted = Count::Request;
        if whole != 0 {
            self.read(warp, &request, values)?;
            counted = Count::Rest;
        }
        // Partial reads go byte by byte: only the bytes that are read must be in an allocation.
        let part = collect(|lane| wanted[lane] != 0) & active & !ignored & !whole;
        if part != 0 {
            self.site.check_aligned(&Request { mask: part, ..request })?;
            for byte in 0..u64::from(copy.size) {
                let mask = collect(|lane| wanted[lane] > byte) & part;
                if mask == 0 {
                    break;
                }
                let (addresses, mut bytes) = (from.map(|from| from.wrapping_add(byte)), [[0; LANES]]);
                let one =
                    Request { addresses: &addresses, mask, size: 1, bytes: 1, count: counted, ..request };
                self.read(warp, &one, &mut bytes)?;
                for lane in lanes(mask) {
                    values[byte as usize / 8][lane] |= bytes[0][lane] << (8 * (byte % 8));
                }
                counted = Count::Nothing;
            }
        }
        let request = Request { addresses: &to, mask: active, space: Space::Shared, ..request }.stored();
        self.write(warp, &request, values)?;
        let event = Event::Copy { lanes: active, to: &to, bytes: copy.size, at };
        self.tell(warp, &event)
    }
}
