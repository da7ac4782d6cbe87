//! Input values: edge cases and random values.

use crate::instructions::value::{Format, Operand};

/// Returns the inputs of a row, a multiple of `unit`.
///
/// First all combinations of its operands' edge cases, or random ones if there are too many; then at least
/// `count` random inputs.
pub fn inputs(sources: &[Operand], count: usize, unit: usize) -> Vec<[u64; 4]> {
    const MOST_EDGES: usize = 1 << 16;
    let pools: Vec<Pool> = sources.iter().map(|&source| Pool::new(source)).collect();
    let all = pools.iter().map(|pool| pool.edges.len()).product::<usize>();
    let crossed = all.min(MOST_EDGES);
    let mut random = Random(7);
    let total = (crossed + count).next_multiple_of(unit);
    let input = |index: usize| {
        let mut rest = index;
        std::array::from_fn(|place| {
            let Some(pool) = pools.get(place) else { return 0 };
            let edge = pool.edges[rest % pool.edges.len()];
            rest /= pool.edges.len();
            match index < crossed {
                true if crossed == all => edge,
                true => pool.edge(&mut random),
                false => pool.random(&mut random),
            }
        })
    };
    (0..total).map(input).collect()
}

/// The values to choose from for an operand.
struct Pool {
    operand: Operand,
    edges: Vec<u64>,
    /// If the register has two values, the pool of one of them.
    part: Option<Box<Pool>>,
}

impl Pool {
    fn new(operand: Operand) -> Pool {
        let part = match operand {
            Operand::Integers => Some(Operand::Integer(16)),
            Operand::Floats(format) => Some(Operand::Float(format)),
            _ => None,
        };
        let part = part.map(|part| Box::new(Pool::new(part)));
        let edges = match (operand, &part) {
            (_, Some(part)) => {
                let high = part.edges.iter().cycle().skip(part.edges.len() / 3);
                part.edges.iter().zip(high).map(|(low, high)| low | high << 16).collect()
            }
            (Operand::Integer(bits), _) => integer_edges(bits),
            (Operand::Float(format), _) => float_edges(format),
            _ => vec![0, 1],
        };
        Pool { operand, edges, part }
    }

    fn edge(&self, random: &mut Random) -> u64 {
        self.edges[random.next() as usize % self.edges.len()]
    }

    /// Returns an edge case, random bits, or a number of moderate size.
    fn random(&self, random: &mut Random) -> u64 {
        if let Some(part) = &self.part {
            return part.random(random) | part.random(random) << 16;
        }
        let kind = random.next() % 4;
        match self.operand {
            _ if kind == 0 => self.edge(random),
            Operand::Float(format) if kind > 1 => moderate(format, kind == 2, random),
            Operand::Float(format) => random.next() >> (64 - format.bits()),
            Operand::Integer(bits) => {
                // A register has at least 16 bits.
                let shift = if kind == 1 { random.next() % 64 } else { 0 };
                (random.next() as i64 >> shift) as u64 & u64::MAX >> (64 - bits.max(16))
            }
            _ => random.next() >> 63,
        }
    }
}

fn distinct(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values.dedup();
    values
}

fn integer_edges(bits: u32) -> Vec<u64> {
    let ones = u64::MAX >> (64 - bits);
    let mut edges = vec![0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 0x5555_5555_5555_5555];
    for width in [8, 16, 32, 64] {
        let top = 1u64 << (width - 1);
        edges.extend([top - 2, top - 1, top, top + 1, top.wrapping_mul(2).wrapping_sub(1)]);
    }
    edges.extend(edges.clone().iter().map(|bits| !bits));
    distinct(edges.into_iter().map(|bits| bits & ones).collect())
}

/// Returns the edge cases of a float, with both signs.
///
/// Zeros, subnormals, the smallest and greatest normal numbers, numbers near one and near the limits of
/// integers and of narrower formats, ties, infinities, quiet and signalling NaNs.
fn float_edges(format: Format) -> Vec<u64> {
    let (infinity, last) = (format.infinity(), (1 << format.fraction) - 1);
    let small = [0, 1, 2, last / 2, last, last + 1, last + 2];
    let great =
        [infinity - 1, infinity, infinity + 1, infinity + last / 3, infinity + last / 2 + 1, infinity + last];
    let mut edges = [&small[..], &great].concat();
    for power in [-149, -126, -24, -14, -1, 0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 126, 127] {
        let Some(one) = power_of_two(format, power) else { continue };
        edges.extend([one - 1, one, one + 1, one + last / 2 + 1]);
        // One half more, if the fraction has that bit.
        if (0..format.fraction as i32).contains(&power) {
            edges.push(one + (1 << (format.fraction - 1) >> power));
        }
    }
    edges.extend(edges.clone().iter().map(|bits| bits | 1 << (format.bits() - 1)));
    distinct(edges)
}

/// Returns a number with an exponent near 0; with few fraction bits set if `sparse`.
fn moderate(format: Format, sparse: bool, random: &mut Random) -> u64 {
    let exponent = (random.next() % 64) as i32 - 32;
    let one = power_of_two(format, exponent).or(power_of_two(format, exponent / 4)).unwrap_or(0);
    let bits = random.next() >> (64 - format.bits());
    let fraction = if sparse { bits & random.next() & random.next() } else { bits };
    one | fraction & ((1 << format.fraction) - 1) | bits & 1 << (format.bits() - 1)
}

/// Returns 2^power, if that is a normal number.
fn power_of_two(format: Format, power: i32) -> Option<u64> {
    let biased = power + (1 << (format.exponent - 1)) - 1;
    (1..(1 << format.exponent) - 1).contains(&biased).then_some((biased as u64) << format.fraction)
}

/// A SplitMix64 generator, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
