//! Matrix instructions (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions").
//!
//! The ISA says which lane holds which element, but not how narrow floats are summed. The reference computes
//! that as published measurements of an H100 say (arXiv 2511.10909), in `f64`, which holds each cut-off term
//! and their sum.

use crate::instructions::row::{Row, Thread, of_thread};
use crate::instructions::value::{Double, Half, Single, Value};
use rustc_apfloat::{Float, FloatConvert, Round};

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    products(&mut rows);
    tiles(&mut rows);
    moves(&mut rows);
    rows
}

/// Declares eight words in `%w0` to `%w7`: the source, and others computed from it.
///
/// Words that are `tame` have floats of similar exponents.
fn declare(tame: Option<[u32; 2]>) -> String {
    let mut text = String::from(".reg .b32 %w<8>, %d<8>;\n.reg .b64 %t, %u;\nmov.b64 {%w0, %w1}, %a;\n");
    for word in 2..8 {
        text += &format!("mad.lo.u32 %w{word}, %w{}, {FACTOR}, {word};\n", word - 2);
    }
    if let Some([keep, set]) = tame {
        for word in 0..8 {
            text += &format!("and.b32 %w{word}, %w{word}, {keep};\nor.b32 %w{word}, %w{word}, {set};\n");
        }
    }
    text
}

const FACTOR: u32 = 0x9e37_79b1;

/// The words of a thread.
fn words(sources: &[u64; 4], tame: Option<[u32; 2]>) -> [u32; 8] {
    let mut words = [sources[0] as u32, (sources[0] >> 32) as u32, 0, 0, 0, 0, 0, 0];
    for word in 2..8 {
        words[word] = words[word - 2].wrapping_mul(FACTOR).wrapping_add(word as u32);
    }
    let [keep, set] = tame.unwrap_or([u32::MAX, 0]);
    words.map(|word| word & keep | set)
}

/// The matrices of a product.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    A,
    B,
    /// c or d.
    C,
}

/// An `mma` or a `wmma.mma`.
#[derive(Clone)]
struct Product {
    shape: Shape,
    /// The types of a, b, c and d.
    types: [&'static str; 4],
    saturates: bool,
    /// Sums where bits differ instead of products.
    differs: bool,
    rounding: Round,
    is_wmma: bool,
}

#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

fn shape(m: usize, n: usize, k: usize) -> Shape {
    Shape { m, n, k }
}

fn bits(ty: &str) -> usize {
    match ty {
        "b1" => 1,
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

/// The elements of a register.
fn per(ty: &str) -> usize {
    (32 / bits(ty)).max(1)
}

impl Shape {
    fn name(self) -> String {
        let Shape { m, n, k } = self;
        format!("m{m}n{n}k{k}")
    }

    /// The rows and columns of a matrix.
    fn size(self, role: Role) -> [usize; 2] {
        match role {
            Role::A => [self.m, self.k],
            Role::B => [self.k, self.n],
            Role::C => [self.m, self.n],
        }
    }

    /// The registers of a fragment, without repetitions.
    fn registers(self, role: Role, ty: &str) -> usize {
        self.size(role).iter().product::<usize>() / 32 / per(ty)
    }

    /// The lane, the register and the place in it that hold an element.
    ///
    /// The ISA shows this for `mma`. An H200 showed that the fragments of `wmma` are those of several `mma`,
    /// of which it computes d in halves of 8 columns, or of 16 rows; if there are 8 rows and 32 columns, it
    /// transposes all.
    fn place(self, role: Role, ty: &str, row: usize, column: usize) -> [usize; 3] {
        let (Shape { m, n, k }, per) = (self, per(ty));
        match role {
            _ if (m, n) == (8, 32) => {
                let turned = match role {
                    Role::A => Role::B,
                    Role::B => Role::A,
                    Role::C => Role::C,
                };
                shape(n, m, k).place(turned, ty, column, row)
            }
            Role::A => {
                let (upper, within) = (row / 16, row % 16);
                let halves = if m == 8 { 1 } else { 2 };
                let register = column / (4 * per) * halves + within / 8 + upper * k / (4 * per) * 2;
                [row % 8 * 4 + column / per % 4, register, column % per]
            }
            Role::B => {
                let register = row / (4 * per) + column / 8 * (k / (4 * per));
                [column % 8 * 4 + row / per % 4, register, row % per]
            }
            Role::C => {
                // The elements of a lane, in order.
                let index = column % 2 + row % 16 / 8 * 2 + (column / 8 + row / 16) * 4;
                [row % 8 * 4 + column % 8 / 2, index / per, index % per]
            }
        }
    }
}

/// The elements of each register of each lane: their rows, columns and places.
struct Held {
    registers: usize,
    elements: Vec<Vec<[usize; 3]>>,
}

impl Held {
    fn new(shape: Shape, role: Role, ty: &str) -> Held {
        let ([rows, columns], registers) = (shape.size(role), shape.registers(role, ty));
        let mut elements = vec![Vec::new(); 32 * registers];
        for row in 0..rows {
            for column in 0..columns {
                let [lane, register, place] = shape.place(role, ty, row, column);
                elements[lane * registers + register].push([row, column, place]);
            }
        }
        Held { registers, elements }
    }

    /// Those of a register, whose number may be of a repetition.
    fn of(&self, lane: usize, register: usize) -> &[[usize; 3]] {
        &self.elements[lane * self.registers + register % self.registers]
    }
}

impl Product {
    fn ty(&self, role: Role) -> &'static str {
        self.types[role as usize]
    }

    fn registers(&self, role: Role) -> usize {
        self.shape.registers(role, self.ty(role))
    }

    /// The first of a thread's values that the registers of a fragment hold.
    fn first(&self, role: Role) -> usize {
        match role {
            Role::A => 0,
            Role::B => self.registers(Role::A),
            Role::C => self.registers(Role::A) + self.registers(Role::B),
        }
    }

    /// The registers of a fragment, of `count` values. `wmma` holds elements of f16 several times.
    fn fragment(&self, role: Role, count: usize) -> String {
        let (first, registers) = (self.first(role), self.registers(role));
        let shown = if self.is_wmma && role != Role::C && self.ty(role) == "f16" { 8 } else { registers };
        list("w", (0..shown).map(|register| (first + register % registers) % count))
    }

    /// An element.
    fn element(&self, role: Role, row: usize, column: usize, values: impl Fn(usize, usize) -> u64) -> u64 {
        let ty = self.ty(role);
        let [lane, register, place] = self.shape.place(role, ty, row, column);
        values(lane, self.first(role) + register) >> (place * bits(ty)) & u64::MAX >> (64 - bits(ty))
    }

    /// A register of d, which holds these elements.
    fn result(&self, held: &[[usize; 3]], values: impl Fn(usize, usize) -> u64) -> u64 {
        held.iter().fold(0, |result, &[row, column, place]| {
            let along = 0..self.shape.k;
            let a: Vec<u64> = along.clone().map(|k| self.element(Role::A, row, k, &values)).collect();
            let b: Vec<u64> = along.map(|k| self.element(Role::B, k, column, &values)).collect();
            let c = self.element(Role::C, row, column, &values);
            result | self.sum(&a, &b, c) << (place * bits(self.types[3]))
        })
    }

    fn sum(&self, a: &[u64], b: &[u64], c: u64) -> u64 {
        let pairs = || a.iter().zip(b);
        match self.types[0] {
            "f64" => {
                let float = |bits: u64| Double::from_bits(bits.into());
                let sum = pairs()
                    .fold(float(c), |sum, (&a, &b)| float(a).mul_add_r(float(b), sum, self.rounding).value);
                sum.to_bits() as u64
            }
            "f16" | "bf16" | "tf32" => {
                // `wmma` sums in f16 only if both c and d have it.
                let [_, _, of_c, of_d] = self.types;
                let sums = if [of_c, of_d] == ["f16"; 2] { "f16" } else { "f32" };
                let step = if self.is_wmma && self.types[0] == "tf32" { 4 } else { self.shape.k };
                let mut c = if of_c == sums { c } else { converted::<Half, Single>(c) };
                for (a, b) in a.chunks(step).zip(b.chunks(step)) {
                    let factor = |bits| Part::new(self.types[0], bits);
                    let products = a.iter().zip(b).map(|(&a, &b)| factor(a).times(factor(b)));
                    let terms: Vec<Part> = products.chain([Part::new(sums, c)]).collect();
                    c = rounded(sums, sum(&terms));
                }
                if of_d == sums { c } else { converted::<Single, Half>(c) }
            }
            _ => {
                let wide = |ty: &str, value: u64| match ty {
                    "s8" => i64::from(value as i8),
                    "s4" => i64::from((value as i8) << 4 >> 4),
                    _ => value as i64,
                };
                let products = pairs().map(|(&a, &b)| {
                    let (a, b) = (wide(self.types[0], a), wide(self.types[1], b));
                    if self.differs { a ^ b } else { a * b }
                });
                let sum = products.sum::<i64>() + i64::from(c as i32);
                let sum = if self.saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                u64::from(sum as u32)
            }
        }
    }
}

/// A number as `significand · 2^exponent`. The significand is below 2, or below 4 in a product; that of a
/// subnormal is below 1. An infinity or a NaN is in the significand.
#[derive(Clone, Copy)]
struct Part {
    significand: f64,
    exponent: i32,
}

impl Part {
    fn new(ty: &str, bits: u64) -> Part {
        let (bits, exponent, fraction) = match ty {
            "f16" => (bits, 5, 10),
            "bf16" => (bits, 8, 7),
            "tf32" => (bits >> 13, 8, 10),
            _ => (bits, 8, 23),
        };
        let field = bits >> fraction & ((1 << exponent) - 1);
        let rest = (bits & ((1 << fraction) - 1)) as f64 / f64::from(1 << fraction);
        let bias = (1 << (exponent - 1)) - 1;
        let significand = match field {
            0 => rest,
            _ if field < (1 << exponent) - 1 => 1.0 + rest,
            _ if rest == 0.0 => f64::INFINITY,
            _ => f64::NAN,
        };
        let negative = bits >> (exponent + fraction) & 1 != 0;
        Part {
            significand: if negative { -significand } else { significand },
            exponent: field.max(1) as i32 - bias,
        }
    }

    fn times(self, other: Part) -> Part {
        Part { significand: self.significand * other.significand, exponent: self.exponent + other.exponent }
    }
}

/// The sum of terms that are cut off 25 bits below the highest exponent.
fn sum(terms: &[Part]) -> f64 {
    let plain: f64 = terms.iter().map(|term| term.significand).sum();
    if !plain.is_finite() {
        return plain;
    }
    let exponents = terms.iter().filter(|term| term.significand != 0.0).map(|term| term.exponent);
    let Some(highest) = exponents.max() else { return 0.0 };
    let cut = |term: &Part| (term.significand * 2f64.powi(25 + term.exponent - highest)).trunc();
    let sum: f64 = terms.iter().map(cut).sum();
    // In two steps, as the power alone may be subnormal.
    sum * 2f64.powi(-25) * 2f64.powi(highest)
}

/// Rounds to f16 to nearest, or to f32 toward zero, but to infinity if it exceeds f32. A zero is positive.
fn rounded(ty: &str, sum: f64) -> u64 {
    if ty == "f16" {
        let half = converted::<Double, Half>(sum.to_bits());
        return if half & 0x7fff == 0 { 0 } else { half };
    }
    let double = Double::from_bits(sum.to_bits().into());
    let single: Single = double.convert_r(Round::TowardZero, &mut false).value;
    match () {
        () if single.is_zero() => 0,
        () if sum.abs() >= 2f64.powi(128) => Single::INFINITY.copy_sign(single).to_register(),
        () => single.to_register(),
    }
}

/// Converts to nearest.
fn converted<F: FloatConvert<T> + Value, T: Float + Value>(bits: u64) -> u64 {
    F::from_register(bits).convert_r(Round::NearestTiesToEven, &mut false).value.to_register()
}

/// Words of floats with exponents from 2^-3 to 1.
fn tame(ty: &str) -> Option<[u32; 2]> {
    Some(match ty {
        "f16" => [0xbfff_bfff, 0x3000_3000],
        "bf16" => [0xbfff_bfff, 0x3e00_3e00],
        "tf32" => [0xbfff_ffff, 0x3e00_0000],
        _ => return None,
    })
}

fn list(prefix: &str, registers: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = registers.map(|register| format!("%{prefix}{register}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// `mma` and `wmma.mma`.
fn products(rows: &mut Vec<Row>) {
    let product = |shape, types| Product {
        shape,
        types,
        saturates: false,
        differs: false,
        rounding: Round::NearestTiesToEven,
        is_wmma: false,
    };
    let mut add = |product: Product, layout: &str| {
        let narrow = product.types[0];
        of_words(rows, product.clone(), layout, None);
        if let Some(tame) = tame(narrow) {
            of_words(rows, product.clone(), layout, Some(tame));
        }
        match bits(narrow) {
            1 => of_words(rows, Product { differs: true, ..product }, layout, None),
            4 | 8 => of_words(rows, Product { saturates: true, ..product }, layout, None),
            _ => {}
        }
    };
    for k in [8, 16] {
        for types in [["f16", "f16", "f32", "f32"], ["f16"; 4], ["bf16", "bf16", "f32", "f32"]] {
            add(product(shape(16, 8, k), types), "row.col");
        }
        add(product(shape(16, 8, k / 2), ["tf32", "tf32", "f32", "f32"]), "row.col");
    }
    for [a, b] in [["s8", "s8"], ["s8", "u8"], ["u8", "s8"], ["u8", "u8"]] {
        for shape in [shape(8, 8, 16), shape(16, 8, 16), shape(16, 8, 32)] {
            add(product(shape, [a, b, "s32", "s32"]), "row.col");
        }
    }
    for [a, b] in [["s4", "s4"], ["s4", "u4"], ["u4", "s4"], ["u4", "u4"]] {
        for shape in [shape(8, 8, 32), shape(16, 8, 32), shape(16, 8, 64)] {
            add(product(shape, [a, b, "s32", "s32"]), "row.col");
        }
    }
    for shape in [shape(8, 8, 128), shape(16, 8, 128), shape(16, 8, 256)] {
        add(product(shape, ["b1", "b1", "s32", "s32"]), "row.col");
    }
    // The layouts in memory do not change what is in registers.
    let layouts = ["row.col", "col.row", "row.row", "col.col"];
    let mut next = layouts.iter().cycle();
    let mut wmma = |shape, types: [&'static str; 4]| {
        for _ in 0..2 {
            add(Product { is_wmma: true, ..product(shape, types) }, next.next().unwrap_or(&""));
        }
    };
    for shape in WMMA {
        for c in ["f16", "f32"] {
            wmma(shape, ["f16", "f16", c, "f16"]);
            wmma(shape, ["f16", "f16", c, "f32"]);
        }
        wmma(shape, ["bf16", "bf16", "f32", "f32"]);
        wmma(shape, ["s8", "s8", "s32", "s32"]);
        wmma(shape, ["u8", "u8", "s32", "s32"]);
    }
    wmma(shape(16, 16, 8), ["tf32", "tf32", "f32", "f32"]);
    let modes = [
        ("", Round::NearestTiesToEven),
        (".rn", Round::NearestTiesToEven),
        (".rz", Round::TowardZero),
        (".rm", Round::TowardNegative),
        (".rp", Round::TowardPositive),
    ];
    for (place, (mode, rounding)) in modes.into_iter().enumerate() {
        for shape in [shape(8, 8, 4), shape(16, 8, 4), shape(16, 8, 8), shape(16, 8, 16)] {
            of_doubles(rows, Product { rounding, ..product(shape, ["f64"; 4]) }, "row.col", mode);
        }
        let product = Product { rounding, is_wmma: true, ..product(shape(8, 8, 4), ["f64"; 4]) };
        of_doubles(rows, product, layouts[place % 4], mode);
    }
}

/// The shapes of most `wmma`.
const WMMA: [Shape; 3] =
    [Shape { m: 16, n: 16, k: 16 }, Shape { m: 32, n: 8, k: 16 }, Shape { m: 8, n: 32, k: 16 }];

/// The name of a product with its modifiers.
fn named(product: &Product, layout: &str, suffix: &str) -> String {
    let (shape, [a, b, c, d]) = (product.shape.name(), product.types);
    match product.is_wmma {
        true if a == "f16" => format!("wmma.mma.sync.aligned.{layout}.{shape}.{d}.{c}"),
        true => format!("wmma.mma.sync.aligned.{layout}.{shape}.{d}.{a}.{b}.{c}{suffix}"),
        false if suffix == ".satfinite" => {
            format!("mma.sync.aligned.{shape}.{layout}{suffix}.{d}.{a}.{b}.{c}")
        }
        false => format!("mma.sync.aligned.{shape}.{layout}.{d}.{a}.{b}.{c}{suffix}"),
    }
}

/// Adds a row of a product on [`words`].
fn of_words(rows: &mut Vec<Row>, product: Product, layout: &str, tame: Option<[u32; 2]>) {
    let results = product.shape.registers(Role::C, product.types[3]);
    let suffix = match product.types[0] {
        "b1" if product.differs => ".xor.popc",
        "b1" => ".and.popc",
        _ if product.saturates => ".satfinite",
        _ => "",
    };
    // Four registers of d, or two.
    let [x, y] = [[0, 1], [results - 2, results - 1]];
    let text = format!(
        "{}{} {}, {}, {}, {};\nmov.b64 %x, {{%d{}, %d{}}};\nmov.b64 %y, {{%d{}, %d{}}};",
        declare(tame),
        named(&product, layout, suffix),
        list("d", 0..results),
        product.fragment(Role::A, 8),
        product.fragment(Role::B, 8),
        product.fragment(Role::C, 8),
        x[0],
        x[1],
        y[0],
        y[1],
    );
    let held = Held::new(product.shape, Role::C, product.types[3]);
    rows.push(of_thread(
        text,
        |a: u64| (a, a),
        move |thread| {
            let warp: Vec<[u32; 8]> = thread.warp().iter().map(|sources| words(sources, tame)).collect();
            let values = |lane: usize, value: usize| u64::from(warp[lane][value % 8]);
            let pair = |[low, high]: [usize; 2]| {
                let word = |register| product.result(held.of(thread.lane(), register), values);
                word(low) | word(high) << 32
            };
            vec![pair(x), pair(y)]
        },
    ));
}

/// The source, its opposite, a part and its square.
fn doubles(sources: &[u64; 4]) -> [u64; 4] {
    let a = f64::from_bits(sources[0]);
    [a, -a, a * 0.3, a * a].map(f64::to_bits)
}

/// Adds a row of a product on [`doubles`].
fn of_doubles(rows: &mut Vec<Row>, product: Product, layout: &str, mode: &str) {
    let results = product.registers(Role::C);
    let [x, y] = [results / 2 - 1, results - 1];
    let text = format!(
        ".reg .b64 %w<4>, %d<4>;\nmov.b64 %w0, %a;\nxor.b64 %w1, %a, 0x8000000000000000;\n\
         mul.rn.f64 %w2, %a, 0d3FD3333333333333;\nmul.rn.f64 %w3, %a, %a;\n\
         {} {}, {}, {}, {};\nmov.b64 %x, %d{x};\nmov.b64 %y, %d{y};",
        named(&product, layout, mode),
        list("d", 0..results),
        product.fragment(Role::A, 4),
        product.fragment(Role::B, 4),
        product.fragment(Role::C, 4)
    );
    let held = Held::new(product.shape, Role::C, "f64");
    rows.push(of_thread(
        text,
        |a: Double| (a, a),
        move |thread| {
            let warp: Vec<[u64; 4]> = thread.warp().iter().map(doubles).collect();
            let values = |lane: usize, value: usize| warp[lane][value % 4];
            [x, y].map(|register| product.result(held.of(thread.lane(), register), values)).to_vec()
        },
    ));
}

/// Where the tile of a warp is: the space in the instruction, a lane's own 32 bytes of it, and PTX that makes
/// the tile's address `%u` generic.
const PLACES: [(&str, &str, &str); 4] = [
    (".global", "%global", ""),
    (".shared", "%shared", ""),
    (".shared::cta", "%shared", ""),
    ("", "%shared", "cvta.shared.u64 %u, %u;\n"),
];

/// Fills the warp's tile of 1,024 bytes with its words, and sets `%u` to its address.
fn filled((_, own, convert): (&str, &str, &str)) -> String {
    let space = own.replace('%', ".");
    format!(
        "{}st{space}.v4.b32 [{own}], {{%w0, %w1, %w2, %w3}};\n\
         st{space}.v4.b32 [{own}+16], {{%w4, %w5, %w6, %w7}};\n\
         mov.u32 %word, %laneid;\nmul.wide.u32 %t, %word, 32;\nsub.u64 %u, {own}, %t;\n\
         {convert}bar.warp.sync -1;\n",
        declare(None)
    )
}

/// An element of up to 64 bits of the filled tile.
fn in_tile(warp: &[[u64; 4]], at: usize, bits: usize) -> u64 {
    let byte = |at: usize| words(&warp[at / 32], None)[at % 32 / 4] >> (8 * (at % 4)) & 0xff;
    (0..bits / 8).rev().fold(0, |value, next| value << 8 | u64::from(byte(at + next)))
}

/// `wmma.load` and `wmma.store`.
fn tiles(rows: &mut Vec<Row>) {
    let mut places = PLACES.into_iter().cycle();
    let mut both = |shape: Shape, role: Role, ty: &'static str, all: bool| {
        for by_rows in [true, false] {
            for _ in 0..if all { 4 } else { 1 } {
                let place = places.next().unwrap_or(PLACES[0]);
                load(rows, shape, role, ty, by_rows, place);
                if role == Role::C {
                    store(rows, shape, ty, by_rows, place);
                }
            }
        }
        // The next shape starts at another place.
        places.next();
    };
    for shape in WMMA {
        for role in [Role::A, Role::B] {
            for ty in ["f16", "bf16", "s8", "u8"] {
                both(shape, role, ty, false);
            }
        }
        for ty in ["f16", "f32", "s32"] {
            both(shape, Role::C, ty, false);
        }
    }
    for role in [Role::A, Role::B, Role::C] {
        both(shape(16, 16, 8), role, if role == Role::C { "f32" } else { "tf32" }, true);
        both(shape(8, 8, 4), role, "f64", true);
    }
}

/// The modifiers of a tile, and the elements of a line.
fn modifiers(shape: Shape, role: Role, by_rows: bool) -> (String, usize) {
    let [rows, columns] = shape.size(role);
    let (layout, length) = if by_rows { ("row", columns) } else { ("col", rows) };
    (format!("sync.aligned.{layout}.{}", shape.name()), length)
}

fn load(
    rows: &mut Vec<Row>,
    shape: Shape,
    role: Role,
    ty: &'static str,
    by_rows: bool,
    place: (&str, &str, &str),
) {
    let (modifiers, length) = modifiers(shape, role, by_rows);
    let registers = shape.registers(role, ty);
    let shown = if role != Role::C && ty == "f16" { 8 } else { registers };
    let name = ["a", "b", "c"][role as usize];
    let load = |registers: String| {
        // Without a stride, lines follow one another.
        let stride = if shown == 8 { String::new() } else { format!(", {length}") };
        format!("{}wmma.load.{name}.{modifiers}{}.{ty} {registers}, [%u]{stride};\n", filled(place), place.0)
    };
    let held = Held::new(shape, role, ty);
    let register = move |thread: &Thread, register: usize| {
        held.of(thread.lane(), register).iter().fold(0, |word, &[row, column, place]| {
            let number = if by_rows { row * length + column } else { column * length + row };
            word | in_tile(thread.warp(), number * bits(ty) / 8, bits(ty)) << (place * bits(ty))
        })
    };
    let last = shown - 1;
    rows.push(if ty == "f64" {
        let text = load(list("q", 0..shown));
        let text = format!(".reg .b64 %q<2>;\n{text}mov.b64 %x, %q0;\nmov.b64 %y, %q{last};");
        of_thread(text, |a: u64| (a, a), move |thread| vec![register(thread, 0), register(thread, last)])
    } else {
        let text = load(list("d", 0..shown));
        let text =
            format!("{text}mov.b64 %x, {{%d0, %d{last}}};\nmov.b64 %y, {{%d{}, %d{}}};", last / 3, last / 2);
        of_thread(
            text,
            |a: u64| (a, a),
            move |thread| {
                let pair = |low, high| register(thread, low) | register(thread, high) << 32;
                vec![pair(0, last), pair(last / 3, last / 2)]
            },
        )
    });
}

fn store(rows: &mut Vec<Row>, shape: Shape, ty: &'static str, by_rows: bool, place: (&str, &str, &str)) {
    let (modifiers, length) = modifiers(shape, Role::C, by_rows);
    let registers = shape.registers(Role::C, ty);
    let (space, own, _) = place;
    let (prepare, fragment) = match ty {
        "f64" => (
            ".reg .b64 %q<2>;\nmov.b64 %q0, {%w0, %w1};\nmov.b64 %q1, {%w2, %w3};\n",
            list("q", 0..registers),
        ),
        _ => ("", list("w", 0..registers)),
    };
    let text = format!(
        "{}{prepare}wmma.store.d.{modifiers}{space}.{ty} [%u], {fragment}, {length};\nbar.warp.sync -1;\n\
         ld{}.v2.b64 {{%x, %y}}, [{own}];",
        filled(place),
        own.replace('%', ".")
    );
    rows.push(of_thread(
        text,
        |a: u64| (a, a),
        move |thread| {
            let byte = |at: usize| {
                let number = at * 8 / bits(ty);
                let [own_rows, columns] = shape.size(Role::C);
                if number >= own_rows * columns {
                    return in_tile(thread.warp(), at, 8);
                }
                let (line, along) = (number / length, number % length);
                let (row, column) = if by_rows { (line, along) } else { (along, line) };
                let [lane, register, place] = shape.place(Role::C, ty, row, column);
                // The registers are the lane's own words, as its part of the tile was.
                let at = 32 * lane + (register * per(ty) + place) * bits(ty) / 8 + at % (bits(ty) / 8);
                in_tile(thread.warp(), at, 8)
            };
            let word = |first: usize| (0..8).rev().fold(0, |word, next| word << 8 | byte(first + next));
            let first = 32 * thread.lane();
            vec![word(first), word(first + 8)]
        },
    ));
}

/// `ldmatrix`, `stmatrix` and `movmatrix`.
fn moves(rows: &mut Vec<Row>) {
    // Each lane gives the address of one of the tile's 64 rows of 16 bytes.
    let tile = |place| {
        format!(
            "{}mad.lo.u32 %word, %word, 11, 5;\nand.b32 %word, %word, 63;\n\
             mul.wide.u32 %t, %word, 16;\nadd.u64 %u, %u, %t;\n",
            filled(place)
        )
    };
    let row_of = |lane: usize| (lane * 11 + 5) % 64;
    let element =
        |thread: &Thread, row: usize, column: usize| in_tile(thread.warp(), 16 * row + 2 * column, 16);
    for (number, place) in PLACES.into_iter().skip(1).enumerate() {
        let space = place.0;
        for (count, trans) in [(1, false), (2, false), (4, false), (1, true), (2, true), (4, true)] {
            let suffix = if trans { ".trans" } else { "" };
            let registers = list("d", 0..count);
            let load = format!("ldmatrix.sync.aligned.m8n8.x{count}{suffix}{space}.b16 {registers}, [%u];");
            let register = move |thread: &Thread, register: usize| {
                let (group, member) = (thread.lane() / 4, thread.lane() % 4);
                let half = |part: usize| match trans {
                    true => element(thread, row_of(8 * register + 2 * member + part), group),
                    false => element(thread, row_of(8 * register + group), 2 * member + part),
                };
                half(0) | half(1) << 16
            };
            let last = count - 1;
            let text = format!("{}{load}\nmov.b64 %x, {{%d0, %d{last}}};", tile(place));
            rows.push(of_thread(
                text,
                |a: u64| a,
                move |thread| vec![register(thread, 0) | register(thread, last) << 32],
            ));

            // Rows that no lane stores keep their words.
            let registers = list("w", 0..count);
            let text = format!(
                "{}stmatrix.sync.aligned.m8n8.x{count}{suffix}{space}.b16 [%u], {registers};\n\
                 bar.warp.sync -1;\n\
                 ld.shared.v2.b64 {{%x, %y}}, [%shared{}];",
                tile(place),
                if number == 0 { "" } else { "+16" }
            );
            rows.push(of_thread(
                text,
                |a: u64| (a, a),
                move |thread| {
                    let row = 2 * thread.lane() + usize::from(number != 0);
                    let from = (0..8 * count).find(|&lane| row_of(lane) == row);
                    let half = |column: usize| match from {
                        None => element(thread, row, column),
                        Some(line) => {
                            let (line, register) = (line % 8, line / 8);
                            let (group, along) = if trans { (column, line) } else { (line, column) };
                            let word = words(&thread.warp()[4 * group + along / 2], None)[register];
                            u64::from(word >> (along % 2 * 16) & 0xffff)
                        }
                    };
                    let word =
                        |first: usize| (0..4).fold(0, |word, part| word | half(first + part) << (16 * part));
                    vec![word(0), word(4)]
                },
            ));
        }
    }
    rows.push(of_thread(
        "movmatrix.sync.aligned.m8n8.trans.b16 %x, %a;",
        |a: u32| a,
        |thread| {
            let (group, member) = (thread.lane() / 4, thread.lane() % 4);
            let half = |part: usize| {
                let word = thread.warp()[4 * (2 * member + part) + group / 2][0];
                word >> (group % 2 * 16) & 0xffff
            };
            vec![half(0) | half(1) << 16]
        },
    ));
}
