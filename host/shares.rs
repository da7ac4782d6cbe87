//! Which share of an array folds which chunk.
//!
//! An array may lie in shares, one after the other: on several GPUs, or on the ranks of a communicator.
//! Everyone computes the same assignments from the lengths of the shares and the [`Plan`] of the whole.

use crate::Plan;
use std::ops::Range;

/// Where the shares of an array begin and end. Indices of items count from the start of the whole array.
pub struct Shares {
    /// The start of each share, and the end of the last one.
    bounds: Vec<u64>,
}

/// Consecutive chunks that one share folds.
#[derive(Debug, PartialEq)]
pub struct Assignment {
    pub share: usize,
    pub chunks: Range<u32>,
    /// Whether this is a chunk that lies on several shares: the others send their items of it.
    pub is_split: bool,
}

impl Shares {
    /// Shares with these lengths, the first of which begins at index `start`.
    pub fn new(start: u64, lens: impl IntoIterator<Item = u64>) -> Self {
        let mut bounds = vec![start];
        let mut end = start;
        bounds.extend(lens.into_iter().map(|len| {
            end += len;
            end
        }));
        Self { bounds }
    }

    /// Returns the items of a share.
    pub fn range(&self, share: usize) -> Range<u64> {
        self.bounds[share]..self.bounds[share + 1]
    }

    /// Returns the number of all items.
    pub fn len(&self) -> u64 {
        self.bounds[self.bounds.len() - 1] - self.bounds[0]
    }

    /// Returns the part of `items` on each share that has any, in order. Not all of `items` come before the
    /// first share.
    pub fn parts(&self, items: Range<u64>) -> impl DoubleEndedIterator<Item = (usize, Range<u64>)> {
        let first = self.bounds.partition_point(|&start| start <= items.start) - 1;
        let end = self.bounds.partition_point(|&start| start < items.end).min(self.bounds.len() - 1);
        let part = move |share: usize| {
            let Range { start, end } = self.range(share);
            (share, start.max(items.start)..end.min(items.end))
        };
        (first..end).map(part).filter(|(_, part)| !part.is_empty())
    }

    /// Assigns all chunks that lie on the shares, in the order of the chunks. The shares have items, whole
    /// chunks of them.
    ///
    /// A split chunk goes to the share with most of its items, the first one of several.
    #[cfg_attr(not(any(gpu, feature = "mpi")), allow(dead_code, reason = "for devices and ranks"))]
    pub fn assign(&self, plan: &Plan) -> Vec<Assignment> {
        let &Plan { len, chunk, chunks, .. } = plan;
        let mut all = Vec::<Assignment>::new();
        for share in 0..self.bounds.len() - 1 {
            let Range { start, end } = self.range(share);
            let whole = start.div_ceil(chunk) as u32..if end == len { chunks } else { (end / chunk) as u32 };
            if !whole.is_empty() {
                all.push(Assignment { share, chunks: whole, is_split: false });
            }
            let last = (end / chunk) as u32;
            let ends_within = end < len && !end.is_multiple_of(chunk);
            if ends_within && all.last().is_none_or(|assigned| assigned.chunks.start != last) {
                // `max_by_key` returns the last of several.
                let most = self.parts(plan.range(last)).rev().max_by_key(|(_, part)| part.end - part.start);
                let share = most.map_or(share, |(share, _)| share);
                all.push(Assignment { share, chunks: last..last + 1, is_split: true });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Assigns each chunk by counting its items on each share.
    fn by_counting(plan: &Plan, lens: &[u64]) -> Vec<(usize, u32, bool)> {
        let assign = |chunk| {
            let items = plan.range(chunk);
            let mut start = 0;
            let counts: Vec<u64> = lens
                .iter()
                .map(|len| {
                    let share = start..start + len;
                    start += len;
                    (items.end.min(share.end)).saturating_sub(items.start.max(share.start))
                })
                .collect();
            let most = counts.iter().copied().max().unwrap();
            let owner = counts.iter().position(|&count| count == most).unwrap();
            (owner, chunk, counts.iter().filter(|&&count| count > 0).count() > 1)
        };
        (0..plan.chunks).map(assign).collect()
    }

    #[test]
    fn each_chunk_is_assigned_once_to_the_share_with_most_of_it() {
        let chunk = Plan::new(100_000, 4, 32).chunk;
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut cases = vec![vec![100_000], vec![0, 100_000, 0], vec![chunk / 2; 9], vec![1; 1000]];
        cases.push(vec![chunk, chunk, 3 * chunk + chunk / 2, chunk / 2, 0, 1, chunk / 2 - 1, chunk / 2, 0]);
        for _ in 0..200 {
            let count = 1 + random(12);
            let longest = [5, chunk, 10 * chunk][random(3) as usize];
            cases.push((0..=count).map(|index| if index == 0 { 1 } else { random(longest + 1) }).collect());
        }
        for lens in cases {
            let shares = Shares::new(0, lens.iter().copied());
            assert_eq!(shares.len(), lens.iter().sum::<u64>());
            let plan = Plan::new(shares.len(), 4, 32);
            let assigned = shares.assign(&plan);
            let one_by_one: Vec<_> = assigned
                .iter()
                .flat_map(|assigned| {
                    assigned.chunks.clone().map(|chunk| (assigned.share, chunk, assigned.is_split))
                })
                .collect();
            assert_eq!(one_by_one, by_counting(&plan, &lens), "{lens:?}");
            assert!(assigned.iter().all(|assigned| !assigned.is_split || assigned.chunks.len() == 1));
        }
    }

    #[test]
    fn parts_make_up_the_range() {
        let shares = Shares::new(10, [3, 0, 4, 0]);
        let parts = |items| shares.parts(items).collect::<Vec<_>>();
        assert_eq!(parts(10..17), [(0, 10..13), (2, 13..17)]);
        assert_eq!(parts(12..14), [(0, 12..13), (2, 13..14)]);
        assert_eq!(parts(13..17), [(2, 13..17)]);
        assert_eq!(parts(12..12), []);
        assert_eq!(parts(17..17), []);
    }

    /// Shares that are a part of the whole.
    #[test]
    fn chunks_of_a_part() {
        let plan = Plan::new(1_000_000, 4, 32);
        let part = plan.elements(3..7);
        let shares = Shares::new(part.start, [part.end - part.start]);
        assert_eq!(shares.assign(&plan), [Assignment { share: 0, chunks: 3..7, is_split: false }]);
    }
}
