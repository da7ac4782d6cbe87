//! Logic, shifts and bit fields, by the pseudo code of the PTX ISA ("Logic and Shift Instructions"; `bfe` to
//! `fns` are in "Integer Arithmetic Instructions").

use crate::instructions::row::{Row, row, script};

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    every_width(&mut rows);
    fields(&mut rows);
    lop3(&mut rows);
    funnel(&mut rows);
    permute(&mut rows);
    rows.push(row("and.pred", |a: bool, b: bool| a && b));
    rows.push(row("or.pred", |a: bool, b: bool| a || b));
    rows.push(row("xor.pred", |a: bool, b: bool| a != b));
    rows.push(row("not.pred", |a: bool| !a));
    rows.push(script("and.b32 %a, %a, 31;\nfns.b32 %x, %b, %a, %c;", |base: u32, mask: u32, offset: i32| {
        nth_set(mask, (base & 31) as i32, offset)
    }));
    rows
}

/// Returns a bit of a value; 0 past its end.
fn bit(value: u64, place: u32) -> u64 {
    value.checked_shr(place).unwrap_or(0) & 1
}

fn every_width(rows: &mut Vec<Row>) {
    macro_rules! every_width {
        ($($int:ident $signed:ident $bits:literal)*) => {$(
            let name = |name: &str| format!("{name}{}", $bits);
            rows.extend([
                row(name("and.b"), |a: $int, b: $int| a & b),
                row(name("or.b"), |a: $int, b: $int| a | b),
                row(name("xor.b"), |a: $int, b: $int| a ^ b),
                row(name("not.b"), |a: $int| !a),
                row(name("cnot.b"), |a: $int| $int::from(a == 0)),
                row(name("shl.b"), |a: $int, count: u32| a.checked_shl(count).unwrap_or(0)),
                row(name("shr.b"), |a: $int, count: u32| a.checked_shr(count).unwrap_or(0)),
                row(name("shr.u"), |a: $int, count: u32| a.checked_shr(count).unwrap_or(0)),
                row(name("shr.s"), |a: $signed, count: u32| a >> count.min($bits - 1)),
            ]);
        )*};
    }
    every_width!(u16 i16 16 u32 i32 32 u64 i64 64);
}

/// `brev`, `clz`, `popc`, `bfind`, `bfe`, `bfi`, `szext`, `bmsk`.
fn fields(rows: &mut Vec<Row>) {
    macro_rules! fields {
        ($($int:ident $signed:ident $bits:literal)*) => {$(
            let name = |name: &str| format!("{name}{}", $bits);
            rows.extend([
                row(name("brev.b"), |a: $int| {
                    (0..$bits).fold(0, |all, i| all | (bit(a.into(), i) as $int) << ($bits - 1 - i))
                }),
                row(name("clz.b"), |a: $int| {
                    (0..$bits).rev().take_while(|&i| bit(a.into(), i) == 0).count() as u32
                }),
                row(name("popc.b"), |a: $int| (0..$bits).map(|i| bit(a.into(), i) as u32).sum::<u32>()),
                row(name("bfind.u"), |a: $int| highest(a.into(), $bits).unwrap_or(u32::MAX)),
                row(name("bfind.s"), |a: $signed| {
                    let differing = (a ^ (a >> ($bits - 1))) as u64 & u64::from($int::MAX);
                    highest(differing, $bits).unwrap_or(u32::MAX)
                }),
                row(name("bfind.shiftamt.u"), |a: $int| {
                    highest(a.into(), $bits).map_or(u32::MAX, |place| $bits - 1 - place)
                }),
                row(name("bfind.shiftamt.s"), |a: $signed| {
                    let place = highest((a ^ (a >> ($bits - 1))) as u64 & u64::from($int::MAX), $bits);
                    place.map_or(u32::MAX, |place| $bits - 1 - place)
                }),
                row(name("bfe.u"), |a: $int, start: u32, length: u32| {
                    extract(a.into(), start, length, $bits, false) as $int
                }),
                row(name("bfe.s"), |a: $int, start: u32, length: u32| {
                    extract(a.into(), start, length, $bits, true) as $int
                }),
                row(name("bfi.b"), |a: $int, b: $int, start: u32, length: u32| {
                    let [start, length] = [start, length].map(|amount| amount & field_bits($bits));
                    (0..$bits).fold(0, |all: $int, i| {
                        let inside = i >= start && i - start < length;
                        let from = if inside { bit(a.into(), i - start) } else { bit(b.into(), i) };
                        all | (from as $int) << i
                    })
                }),
            ]);
        )*};
    }
    fields!(u32 i32 32 u64 i64 64);
    for (mode, amount) in AMOUNTS {
        rows.push(row(format!("szext.{mode}.u32"), move |a: u32, b: u32| {
            (i64::from(a) & ((1 << amount(b)) - 1)) as u32
        }));
        rows.push(row(format!("szext.{mode}.s32"), move |a: u32, b: u32| match amount(b) {
            0 => 0,
            count => extract(a.into(), 0, count, 32, true) as u32,
        }));
        rows.push(row(format!("bmsk.{mode}.b32"), move |a: u32, b: u32| {
            (((1u64 << amount(b)) - 1) << amount(a)) as u32
        }));
    }
}

/// A modifier and how it treats an amount above 31.
type Amount = (&'static str, fn(u32) -> u32);

const AMOUNTS: [Amount; 2] = [("wrap", |amount| amount % 32), ("clamp", |amount| amount.min(32))];

fn highest(value: u64, bits: u32) -> Option<u32> {
    (0..bits).rev().find(|&i| bit(value, i) != 0)
}

/// Returns the mask of the bits of a field's start and length that count.
///
/// The ISA says 8 bits for all types; an H200 uses all 32 bits for 64-bit values.
fn field_bits(bits: u32) -> u32 {
    if bits == 64 { u32::MAX } else { 0xff }
}

/// `bfe`: bits past the field are copies of its sign.
fn extract(a: u64, start: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let [start, length] = [start, length].map(|amount| u64::from(amount & field_bits(bits)));
    let top = u64::from(bits) - 1;
    let bit = |place: u64| bit(a, place as u32);
    let sign = if signed && length > 0 { bit((start + length - 1).min(top)) } else { 0 };
    (0..u64::from(bits)).fold(0, |all, i| {
        let from = if i < length && start + i <= top { bit(start + i) } else { sign };
        all | from << i
    })
}

fn lop3(rows: &mut Vec<Row>) {
    for table in [0x00u32, 0x80, 0xfe, 0x96, 0xe8, 0xca, 0x1b, 0xff] {
        rows.push(script(format!("lop3.b32 %x, %a, %b, %c, {table};"), move |a: u32, b: u32, c: u32| {
            (0..32).fold(0, |all, i| {
                let index = bit(a.into(), i) << 2 | bit(b.into(), i) << 1 | bit(c.into(), i);
                all | (table >> index & 1) << i
            })
        }));
    }
}

fn funnel(rows: &mut Vec<Row>) {
    for (mode, amount) in AMOUNTS {
        rows.push(row(format!("shf.l.{mode}.b32"), move |low: u32, high: u32, count: u32| {
            let both = u128::from(high) << 32 | u128::from(low);
            (both << amount(count) >> 32) as u32
        }));
        rows.push(row(format!("shf.r.{mode}.b32"), move |low: u32, high: u32, count: u32| {
            let both = u128::from(high) << 32 | u128::from(low);
            (both >> amount(count)) as u32
        }));
    }
}

/// `prmt`, by selectors and by the tables of the modes, which list the result's bytes from the most
/// significant.
fn permute(rows: &mut Vec<Row>) {
    fn pick(a: u32, b: u32, selector: u32) -> u32 {
        let byte = [a.to_le_bytes(), b.to_le_bytes()].concat()[selector as usize & 7];
        u32::from(if selector & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 })
    }
    let all = |a, b, selectors: [u32; 4]| {
        selectors.iter().fold(0, |all, &selector| all << 8 | pick(a, b, selector))
    };
    rows.push(row("prmt.b32", move |a: u32, b: u32, c: u32| {
        all(a, b, [c >> 12, c >> 8, c >> 4, c].map(|c| c & 15))
    }));
    for (mode, table) in [
        ("f4e", [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        ("b4e", [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        ("rc8", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecl", [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        ("rc16", [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ] {
        rows.push(row(format!("prmt.b32.{mode}"), move |a: u32, b: u32, c: u32| {
            all(a, b, table[c as usize & 3])
        }));
    }
}

/// `fns`. The ISA does not define the smallest offset; an H200 returns 0.
fn nth_set(mask: u32, base: i32, offset: i32) -> u32 {
    if offset == i32::MIN {
        return 0;
    }
    if offset == 0 {
        return if bit(mask.into(), base as u32) != 0 { base as u32 } else { u32::MAX };
    }
    let (mut place, mut count) = (base, offset.unsigned_abs() - 1);
    while (0..32).contains(&place) {
        if bit(mask.into(), place as u32) != 0 {
            if count == 0 {
                return place as u32;
            }
            count -= 1;
        }
        place += offset.signum();
    }
    u32::MAX
}
