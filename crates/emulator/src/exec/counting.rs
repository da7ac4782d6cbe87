//! Counts what a launch does, with the cost of accesses: shared memory passes and global memory sectors.

use crate::{counters::Counters, fault::Fault, program::code::Space};

use super::{
    access::{Count, Request, Values},
    grid::Grid,
    hooks::{Bulk, Done, Event, Hooks},
    lanes::{LANES, lanes},
    site::Site,
    warp::Warp,
};

/// The counters of the block that runs.
#[derive(Default)]
pub struct Counting(Counters);

impl<'g> Hooks<'g> for Counting {
    fn new(_grid: &'g Grid<'g>) -> Self {
        Counting::default()
    }

    fn begin_block(&mut self, site: &Site<'g>) {
        self.0 = Counters { blocks: 1, warps: site.grid.warps.into(), ..Counters::default() };
    }

    fn end_block(&mut self, done: &mut Done<'g>) {
        done.counters = self.0;
    }

    fn issued(&mut self, instructions: u64, lanes: u64) {
        self.0.warp_instructions += instructions;
        self.0.lane_instructions += lanes;
    }

    fn branched(&mut self, diverges: bool) {
        self.0.branches += 1;
        self.0.divergent_branches += u64::from(diverges);
    }

    fn complete(&mut self, _barrier: usize) {
        self.0.barriers += 1;
    }

    #[inline(always)]
    fn before(
        &mut self,
        _site: &mut Site<'g>,
        _warp: &Warp,
        request: &Request,
        _values: &Values,
    ) -> Result<(), Box<Fault>> {
        match request.space {
            Space::Global => self.global(request),
            Space::Shared => self.shared(request),
            _ => {}
        }
        Ok(())
    }

    fn order(&mut self, _site: &mut Site<'g>, _warp: &Warp, event: &Event) -> Result<(), Box<Fault>> {
        let Event::Bulk(Bulk::Begin(transfer)) = event else { return Ok(()) };
        let (count, sectors) = (&mut self.0, transfer.place.sectors());
        if !transfer.kind.writes() {
            count.global_load_requests += 1;
            count.global_load_sectors += sectors;
            count.shared_store_requests += 1;
        } else {
            if transfer.kind.is_atomic() {
                count.global_atomic_requests += 1;
            } else {
                count.global_store_requests += 1;
                count.global_store_sectors += sectors;
            }
            count.shared_load_requests += 1;
        }
        Ok(())
    }
}

impl Counting {
    fn global(&mut self, request: &Request) {
        let requests = match request.count {
            Count::Nothing => return,
            Count::Rest => 0,
            Count::Request => 1,
        };
        let sectors = || {
            if request.contiguous {
                (request.first() + request.whole() - 1) / 32 - request.first() / 32 + 1
            } else {
                sectors(request.addresses, request.mask, request.bytes)
            }
        };
        if !request.kind.writes() {
            self.0.global_load_requests += requests;
            self.0.global_load_sectors += sectors();
        } else if request.reads {
            self.0.global_atomic_requests += requests;
            self.0.atomic_operations += u64::from(request.mask.count_ones());
        } else {
            self.0.global_store_requests += requests;
            self.0.global_store_sectors += sectors();
        }
    }

    fn shared(&mut self, request: &Request) {
        let requests = match request.count {
            Count::Nothing => return,
            Count::Rest => 0,
            Count::Request => 1,
        };
        let conflicts = || {
            let Request { contiguous, addresses, mask, bytes, .. } = *request;
            if contiguous { 0 } else { bank_conflicts(addresses, mask, bytes) }
        };
        if !request.kind.writes() {
            self.0.shared_load_requests += requests;
            self.0.shared_load_conflicts += conflicts();
        } else if request.reads {
            self.0.shared_atomic_requests += requests;
            self.0.atomic_operations += u64::from(request.mask.count_ones());
        } else {
            self.0.shared_store_requests += requests;
            self.0.shared_store_conflicts += conflicts();
        }
    }
}

/// The passes of a shared memory access of `bytes` per lane beyond those without bank conflicts.
///
/// There are 32 banks of 4 bytes. Accesses of 8 bytes run per half warp and those of 16 bytes per quarter, so
/// that no part exceeds 128 bytes. Within a part, lanes that access the same word share it; different words
/// of one bank take a pass each.
pub fn bank_conflicts(addresses: &[u64; LANES], mask: u32, bytes: u32) -> u64 {
    let words_each = bytes.div_ceil(4).clamp(1, 32);
    let width = LANES as u32 / words_each;
    let mut extra = 0;
    for part in 0..words_each {
        let part_mask = mask & (u32::MAX >> (32 - width)) << (part * width);
        if part_mask == 0 {
            continue;
        }
        // Common case: all words lie in 128 consecutive bytes.
        let base = addresses[part_mask.trailing_zeros() as usize] & !3;
        if lanes(part_mask).all(|lane| addresses[lane].wrapping_sub(base) < 128) {
            continue;
        }
        // `width` lanes of `words_each` words: at most 32.
        let mut words = [0; LANES];
        let mut count = 0;
        for lane in lanes(part_mask) {
            for word in 0..u64::from(words_each) {
                words[count] = addresses[lane] / 4 + word;
                count += 1;
            }
        }
        let words = &mut words[..count];
        words.sort_unstable();
        let mut banks = [0u64; 32];
        for word in words.chunk_by(|a, b| a == b) {
            banks[(word[0] % 32) as usize] += 1;
        }
        extra += banks.into_iter().max().unwrap_or(1) - 1;
    }
    extra
}

/// The number of 32-byte sectors touched by an access of `bytes` per lane.
pub fn sectors(addresses: &[u64; LANES], mask: u32, bytes: u32) -> u64 {
    let mut touched = [0; LANES];
    let mut count = 0;
    let mut ascending = true;
    for lane in lanes(mask) {
        let sector = addresses[lane] / 32;
        if count > 0 && sector == touched[count - 1] {
            continue;
        }
        ascending &= count == 0 || sector > touched[count - 1];
        touched[count] = sector;
        count += 1;
    }
    if !ascending {
        touched[..count].sort_unstable();
        let mut distinct = 1;
        for at in 1..count {
            distinct += usize::from(touched[at] != touched[at - 1]);
        }
        count = distinct;
    }
    // An aligned access of up to 32 bytes lies in one sector.
    debug_assert!(bytes <= 32);
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(f: impl Fn(u64) -> u64) -> [u64; LANES] {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn bank_conflicts_are_counted() {
        let all = u32::MAX;
        assert_eq!(bank_conflicts(&at(|lane| lane * 4), all, 4), 0);
        assert_eq!(bank_conflicts(&at(|lane| 4096 - lane * 4), all, 4), 0);
        assert_eq!(bank_conflicts(&at(|_| 8), all, 4), 0);
        for stride in [2, 4, 8, 16, 32] {
            assert_eq!(bank_conflicts(&at(|lane| lane * 4 * stride), all, 4), stride.min(32) - 1);
        }
        assert_eq!(bank_conflicts(&at(|lane| lane * 4 * 33), all, 4), 0);
        assert_eq!(bank_conflicts(&at(|lane| lane), all, 1), 0);
        assert_eq!(bank_conflicts(&at(|lane| lane * 128), 0b11, 4), 1);
        // 8 bytes: a pass per half warp. 16 bytes: a pass per quarter.
        assert_eq!(bank_conflicts(&at(|lane| lane * 8), all, 8), 0);
        assert_eq!(bank_conflicts(&at(|lane| lane * 16), all, 8), 2);
        assert_eq!(bank_conflicts(&at(|lane| lane * 16), all, 16), 0);
        assert_eq!(bank_conflicts(&at(|lane| lane * 32), all, 16), 4);
    }

    #[test]
    fn sectors_are_counted_once() {
        let all = u32::MAX;
        assert_eq!(sectors(&at(|lane| 64 + lane * 4), all, 4), 4);
        assert_eq!(sectors(&at(|lane| 80 + lane * 4), all, 4), 5);
        assert_eq!(sectors(&at(|lane| lane * 16), all, 16), 16);
        assert_eq!(sectors(&at(|lane| lane * 32), all, 4), 32);
        assert_eq!(sectors(&at(|lane| (lane % 2) * 32), all, 4), 2);
        assert_eq!(sectors(&at(|lane| 1024 - lane * 4), all, 4), 5);
        assert_eq!(sectors(&at(|lane| lane * 4), 0, 4), 0);
    }
}
