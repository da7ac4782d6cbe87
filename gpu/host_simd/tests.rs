use super::strips::Fold;
use super::*;
use crate::*;
use bytemuck::bytes_of;
use std::vec::Vec;

/// The accumulator of a chunk by the plan's description.
fn planned<O: Op<T>, T: Element>(op: &O, chunk: &[T], first: u64, row: usize) -> O::Accumulator {
    fn tree<O: Op<T>, T: Element>(op: &O, columns: &[O::Accumulator]) -> O::Accumulator {
        match columns {
            [one] => *one,
            _ => {
                let (a, b) = columns.split_at(columns.len() / 2);
                op.combine(tree(op, a), tree(op, b))
            }
        }
    }
    let column = |column: usize| {
        (column..chunk.len())
            .step_by(row)
            .fold(op.identity(), |all, i| op.combine(all, op.lift(chunk[i], first + i as u64)))
    };
    tree(op, &(0..row).map(column).collect::<Vec<_>>())
}

/// Every instruction set that the processor has.
fn check<O: Op<T> + Default, T: Element>(from: impl Fn(usize) -> T) {
    let op = &O::default();
    let items = (0..9000).map(from).collect::<Vec<_>>();
    for row in [32, 64, 128, 256, 512, 2048] {
        for len in [1, 2, 10, 16, 17, 31, 33, 63, 100, 127, 129, 500, 1000, 1025, 2050, 3333, 8192, 8999] {
            // Of longer rows an operator with large accumulators has none.
            if !O::EXACT && size_of::<O::Accumulator>() > 8 && row > 1024 {
                continue;
            }
            let (first, chunk) = (7, &items[9000 - len..]);
            let expected = planned(op, chunk, first, row);
            let same = |what: &str, all: O::Accumulator| {
                assert_eq!(bytes_of(&all), bytes_of(&expected), "{} {} {what} {len} {row}", O::NAME, T::NAME);
            };
            same("any", fold_chunk(op, chunk, first, row));
            #[cfg(target_arch = "x86_64")]
            {
                let fold = || Fold { op, chunk, first, row, above: None };
                same("SSE2", O::sse2(&fold()));
                if has_avx2() {
                    // SAFETY: the processor has it.
                    same("AVX2", unsafe { O::avx2(&fold()) });
                }
                if has_avx512() && len > FEW {
                    // SAFETY: the processor has it.
                    same("AVX-512", unsafe { O::avx512(&fold()) });
                }
                if has_avx512()
                    && !O::EXACT
                    && matches!(size_of::<O::Accumulator>(), 4 | 8)
                    && 128 <= row
                    && row <= len
                {
                    // SAFETY: the processor has it.
                    same("rows", unsafe { O::avx512_by_rows(fold()) });
                }
            }
        }
    }
}

fn scrambled(i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9e37_79b9)
}

fn check_double<O: Op<f64> + Default>() {
    check::<O, f64>(|i| f64::from(scrambled(i)) * 2f64.powi(-31) - 1.0);
}

fn check_others<O: Op<f32> + Op<bf16> + Op<i8> + Op<u64> + Default>() {
    check::<O, f32>(|i| (scrambled(i) >> 8) as f32 * 2f32.powi(-23) - 1.0);
    check::<O, bf16>(|i| bf16::from_bits((scrambled(i) >> 16) as u16 & 0xbfff));
    check::<O, i8>(|i| (scrambled(i) >> 24) as i8);
    check::<O, u64>(|i| u64::from(scrambled(i)).pow(2));
}

/// Each operator, and for each kind of accumulator the other types: every instruction set is compiled for each of them.
#[test]
fn instruction_sets_agree() {
    macro_rules! operators {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$( check_double::<$op>(); )*};
    }
    for_each_operator! { operators! {} }
    check_others::<Sum>();
    check_others::<Prod>();
    check_others::<MinMax>();
    check_others::<ArgMax>();
    check_others::<Var>();
}
