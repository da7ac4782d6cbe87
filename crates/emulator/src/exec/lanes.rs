//! A warp's registers, and operations that run lane by lane.

use std::fmt;

/// Lanes per warp.
pub const LANES: usize = 32;
/// The mask of all lanes.
pub const ALL: u32 = u32::MAX;

/// A bank of registers: all those of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bank {
    /// 8 and 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
    /// Predicates.
    Predicate,
}

/// One register of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register {
    pub bank: Bank,
    pub index: u32,
}

/// A warp's registers: each register has a value per lane.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    pub half: Vec<[u16; LANES]>,
    pub word: Vec<[u32; LANES]>,
    pub double: Vec<[u64; LANES]>,
    /// One bit per lane.
    pub predicate: Vec<u32>,
}

impl Registers {
    /// All zero.
    pub fn new(counts: &Counts) -> Self {
        Registers {
            half: vec![[0; LANES]; counts.half as usize],
            word: vec![[0; LANES]; counts.word as usize],
            double: vec![[0; LANES]; counts.double as usize],
            predicate: vec![0; counts.predicate as usize],
        }
    }

    /// The value in each lane, zero-extended. A predicate is 0 or 1.
    pub fn wide(&self, register: Register) -> [u64; LANES] {
        let index = register.index as usize;
        match register.bank {
            Bank::Half => each(|lane| u64::from(self.half[index][lane])),
            Bank::Word => each(|lane| u64::from(self.word[index][lane])),
            Bank::Double => self.double[index],
            Bank::Predicate => each(|lane| u64::from(self.predicate[index] >> lane & 1)),
        }
    }

    /// Sets the lanes of the mask to the low bits of `values`, as many as the register has.
    pub fn set_wide(&mut self, register: Register, values: &[u64; LANES], mask: u32) {
        let index = register.index as usize;
        match register.bank {
            Bank::Half => blend(&mut self.half[index], &each(|lane| values[lane] as u16), mask),
            Bank::Word => blend(&mut self.word[index], &each(|lane| values[lane] as u32), mask),
            Bank::Double => blend(&mut self.double[index], values, mask),
            Bank::Predicate => {
                self.set_predicate(register.index, collect(|lane| values[lane] != 0), mask);
            }
        }
    }

    /// Sets a register in all lanes.
    pub fn splat(&mut self, register: Register, value: u64) {
        self.set_wide(register, &[value; LANES], ALL);
    }

    fn set_predicate(&mut self, index: u32, bits: u32, mask: u32) {
        let predicate = &mut self.predicate[index as usize];
        *predicate = *predicate & !mask | bits & mask;
    }
}

/// The number of registers in each bank.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub half: u32,
    pub word: u32,
    pub double: u32,
    pub predicate: u32,
}

impl Counts {
    /// Adds a register.
    pub fn add(&mut self, bank: Bank) -> Register {
        let count = match bank {
            Bank::Half => &mut self.half,
            Bank::Word => &mut self.word,
            Bank::Double => &mut self.double,
            Bank::Predicate => &mut self.predicate,
        };
        *count += 1;
        Register { bank, index: *count - 1 }
    }
}

/// Sets the lanes of the mask. Not inlined: one copy per width instead of one per operation.
#[inline(never)]
fn blend<T: Copy>(target: &mut [T; LANES], values: &[T; LANES], mask: u32) {
    if mask == ALL {
        *target = *values;
    } else {
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                target[lane] = values[lane];
            }
        }
    }
}

/// A value for each lane. `array::from_fn` would compile to several functions per operation.
#[inline(always)]
fn each<R: Raw>(f: impl Fn(usize) -> R) -> [R; LANES] {
    let mut values = [R::default(); LANES];
    let mut lane = 0;
    while lane < LANES {
        values[lane] = f(lane);
        lane += 1;
    }
    values
}

/// The mask of the lanes for which `test` holds.
#[inline(always)]
pub fn collect(test: impl Fn(usize) -> bool) -> u32 {
    let (mut mask, mut lane) = (0, 0);
    while lane < LANES {
        mask |= u32::from(test(lane)) << lane;
        lane += 1;
    }
    mask
}

/// The lanes of a mask, in order.
pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// The type that holds the bits of a bank's registers.
pub trait Raw: Copy + Default + Send + Sync + 'static {
    const BANK: Bank;
    fn bank(registers: &Registers) -> &[[Self; LANES]];
    fn bank_mut(registers: &mut Registers) -> &mut [[Self; LANES]];
}

macro_rules! raw {
    ($($raw:ident $bank:ident $field:ident,)*) => {$(
        impl Raw for $raw {
            const BANK: Bank = Bank::$bank;
            fn bank(registers: &Registers) -> &[[Self; LANES]] {
                &registers.$field
            }
            fn bank_mut(registers: &mut Registers) -> &mut [[Self; LANES]] {
                &mut registers.$field
            }
        }
    )*};
}

raw! { u16 Half half, u32 Word word, u64 Double double, }

/// A type that a register's bits can be read as.
pub trait Value: Copy + Send + Sync + 'static {
    type Raw: Raw;
    fn from_raw(raw: Self::Raw) -> Self;
    fn to_raw(self) -> Self::Raw;
}

macro_rules! values {
    ($($value:ident $raw:ident $from:expr, $to:expr;)*) => {$(
        impl Value for $value {
            type Raw = $raw;
            #[inline(always)]
            fn from_raw(raw: $raw) -> Self {
                ($from)(raw)
            }
            #[inline(always)]
            fn to_raw(self) -> $raw {
                ($to)(self)
            }
        }
    )*};
}

values! {
    u16 u16 |raw| raw, |value| value;
    i16 u16 |raw| raw as i16, |value| value as u16;
    u32 u32 |raw| raw, |value| value;
    i32 u32 |raw| raw as i32, |value| value as u32;
    u64 u64 |raw| raw, |value| value;
    i64 u64 |raw| raw as i64, |value| value as u64;
    f32 u32 f32::from_bits, f32::to_bits;
    f64 u64 f64::from_bits, f64::to_bits;
}

/// The register indices of an instruction, destinations first.
pub type Operands = [u32; 8];

/// Runs an instruction. Not a `dyn Fn`, whose vtable would hold a second copy of each closure for `FnOnce`.
pub trait Run: Send + Sync {
    /// Runs the instruction for the lanes of a mask.
    fn run(&self, registers: &mut Registers, operands: &Operands, mask: u32);
}

impl<F: Fn(&mut Registers, &Operands, u32) + Send + Sync> Run for F {
    fn run(&self, registers: &mut Registers, operands: &Operands, mask: u32) {
        self(registers, operands, mask);
    }
}

/// An instruction that runs in each lane independently.
pub struct Lanes {
    /// The banks of the operands. The first `destinations` are written, and may also be read.
    pub banks: Vec<Bank>,
    pub destinations: usize,
    pub run: Box<dyn Run>,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("banks", &self.banks).finish_non_exhaustive()
    }
}

impl Lanes {
    fn new(
        destinations: &[Bank],
        sources: &[Bank],
        run: impl Fn(&mut Registers, &Operands, u32) + Send + Sync + 'static,
    ) -> Lanes {
        Self::of(destinations, sources, Box::new(run))
    }

    fn of(destinations: &[Bank], sources: &[Bank], run: Box<dyn Run>) -> Lanes {
        Lanes { banks: [destinations, sources].concat(), destinations: destinations.len(), run }
    }
}

#[inline(always)]
fn read<V: Value>(registers: &Registers, index: u32) -> &[V::Raw; LANES] {
    &V::Raw::bank(registers)[index as usize]
}

#[inline(always)]
fn write<V: Value>(registers: &mut Registers, index: u32, values: &[V::Raw; LANES], mask: u32) {
    blend(&mut V::Raw::bank_mut(registers)[index as usize], values, mask);
}

const fn bank<V: Value>() -> Bank {
    <V::Raw as Raw>::BANK
}

/// `d = f(a)`.
pub fn unary<A: Value, D: Value>(f: impl Fn(A) -> D + Send + Sync + 'static) -> Lanes {
    Lanes::new(&[bank::<D>()], &[bank::<A>()], move |registers, o, mask| {
        let a = read::<A>(registers, o[1]);
        let d = each(|lane| f(A::from_raw(a[lane])).to_raw());
        write::<D>(registers, o[0], &d, mask);
    })
}

/// `d = f(a, b)`.
pub fn binary<A: Value, B: Value, D: Value>(f: impl Fn(A, B) -> D + Send + Sync + 'static) -> Lanes {
    Lanes::new(&[bank::<D>()], &[bank::<A>(), bank::<B>()], move |registers, o, mask| {
        let (a, b) = (read::<A>(registers, o[1]), read::<B>(registers, o[2]));
        let d = each(|lane| f(A::from_raw(a[lane]), B::from_raw(b[lane])).to_raw());
        write::<D>(registers, o[0], &d, mask);
    })
}

/// `d = f(a, b, c)`.
pub fn ternary<A: Value, B: Value, C: Value, D: Value>(
    f: impl Fn(A, B, C) -> D + Send + Sync + 'static,
) -> Lanes {
    let sources = [bank::<A>(), bank::<B>(), bank::<C>()];
    Lanes::new(&[bank::<D>()], &sources, move |registers, o, mask| {
        let (a, b, c) = (read::<A>(registers, o[1]), read::<B>(registers, o[2]), read::<C>(registers, o[3]));
        let d = each(|lane| f(A::from_raw(a[lane]), B::from_raw(b[lane]), C::from_raw(c[lane])).to_raw());
        write::<D>(registers, o[0], &d, mask);
    })
}

/// `d = f(a, b, c, e)`.
pub fn quaternary<A: Value, B: Value, C: Value, E: Value, D: Value>(
    f: impl Fn(A, B, C, E) -> D + Send + Sync + 'static,
) -> Lanes {
    let sources = [bank::<A>(), bank::<B>(), bank::<C>(), bank::<E>()];
    Lanes::new(&[bank::<D>()], &sources, move |registers, o, mask| {
        let (a, b) = (read::<A>(registers, o[1]), read::<B>(registers, o[2]));
        let (c, e) = (read::<C>(registers, o[3]), read::<E>(registers, o[4]));
        let d = each(|lane| {
            f(A::from_raw(a[lane]), B::from_raw(b[lane]), C::from_raw(c[lane]), E::from_raw(e[lane])).to_raw()
        });
        write::<D>(registers, o[0], &d, mask);
    })
}

/// `d, carry = f(a, b, c, carry)`: operands d, carry out, a, b, c, carry in. With two sources there is no c.
pub fn carrying<V: Value>(
    sources: usize,
    f: impl Fn([V; 3], bool) -> (V, bool) + Send + Sync + 'static,
) -> Lanes {
    let banks = [vec![bank::<V>(); sources], vec![Bank::Predicate]].concat();
    Lanes::new(&[bank::<V>(), Bank::Predicate], &banks, move |registers, o, mask| {
        let value = |operand: usize, lane: usize| {
            V::from_raw(read::<V>(registers, o[2 + operand.min(sources - 1)])[lane])
        };
        let carry = registers.predicate[o[2 + sources] as usize];
        let (mut d, mut carries) = ([V::Raw::default(); LANES], 0);
        for (lane, d) in d.iter_mut().enumerate() {
            let operands = [value(0, lane), value(1, lane), value(2, lane)];
            let (value, carry) = f(operands, carry >> lane & 1 != 0);
            *d = value.to_raw();
            carries |= u32::from(carry) << lane;
        }
        write::<V>(registers, o[0], &d, mask);
        registers.set_predicate(o[1], carries, mask);
    })
}

/// A comparison: true for any of the chosen outcomes, or for none of them if `negated`. NaN is neither less,
/// equal nor greater.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    pub less: bool,
    pub equal: bool,
    pub greater: bool,
    pub negated: bool,
}

impl Relation {
    /// The lanes in which the relation holds between a and b.
    #[inline(always)]
    fn lanes<R: Copy, V: PartialOrd>(self, a: &[R; LANES], b: &[R; LANES], value: impl Fn(R) -> V) -> u32 {
        let mut bits = 0;
        for (a, b, wanted) in [(a, b, self.less), (b, a, self.greater)] {
            if wanted && self.equal {
                bits |= collect(|lane| value(a[lane]) <= value(b[lane]));
            } else if wanted {
                bits |= collect(|lane| value(a[lane]) < value(b[lane]));
            }
        }
        if self.equal && !self.less && !self.greater {
            bits = collect(|lane| value(a[lane]) == value(b[lane]));
        }
        if self.negated { !bits } else { bits }
    }
}

/// The destination of a comparison, whose result is combined with predicate c by a [`Join`].
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// Operands p, q, a, b, c: p takes the joined result, q the joined opposite.
    Predicates,
    /// Operands d, a, b, c: d is this value where the joined result is true, else 0.
    Value(u32),
    /// Like `Value`, with 16 bits.
    Half(u16),
    /// Operands d, a, b, c, packed: the lower half of d is this value where the joined result is true, the
    /// upper half where the second joined result is.
    Halves(u16),
}

/// Combines the lanes of a comparison with a predicate.
pub type Join = fn(u32, u32) -> u32;

impl Outcome {
    /// Builds the comparison. `test` returns the lanes where it holds for registers a and b, and those where
    /// its opposite holds.
    fn of<V: Value>(
        self,
        join: Join,
        test: impl Fn(&[V::Raw; LANES], &[V::Raw; LANES]) -> [u32; 2] + Send + Sync + 'static,
    ) -> Lanes {
        let sources = [bank::<V>(), bank::<V>(), Bank::Predicate];
        let destinations: &[Bank] = match self {
            Outcome::Predicates => &[Bank::Predicate; 2],
            Outcome::Value(_) | Outcome::Halves(_) => &[Bank::Word],
            Outcome::Half(_) => &[Bank::Half],
        };
        let first = destinations.len();
        Lanes::new(destinations, &sources, move |registers, o, mask| {
            let [bits, opposite] = test(read::<V>(registers, o[first]), read::<V>(registers, o[first + 1]));
            let c = registers.predicate[o[first + 2] as usize];
            self.set(registers, o, [join(bits, c), join(opposite, c)], mask);
        })
    }

    /// Writes the two joined results.
    fn set(self, registers: &mut Registers, o: &Operands, [bits, opposite]: [u32; 2], mask: u32) {
        match self {
            Outcome::Predicates => {
                registers.set_predicate(o[1], opposite, mask);
                registers.set_predicate(o[0], bits, mask);
            }
            Outcome::Value(value) => {
                let d = each(|lane| if bits >> lane & 1 != 0 { value } else { 0 });
                write::<u32>(registers, o[0], &d, mask);
            }
            Outcome::Half(value) => {
                let d = each(|lane| if bits >> lane & 1 != 0 { value } else { 0 });
                write::<u16>(registers, o[0], &d, mask);
            }
            Outcome::Halves(value) => {
                let half = |bits: u32, lane: usize| if bits >> lane & 1 != 0 { u32::from(value) } else { 0 };
                let d = each(|lane| half(bits, lane) | half(opposite, lane) << 16);
                write::<u32>(registers, o[0], &d, mask);
            }
        }
    }
}

/// `f(a) relation f(b)`.
pub fn compare<A: Value, V: PartialOrd>(
    relation: Relation,
    outcome: Outcome,
    join: Join,
    f: impl Fn(A) -> V + Send + Sync + 'static,
) -> Lanes {
    outcome.of::<A>(join, move |a, b| {
        let bits = relation.lanes(a, b, |raw| f(A::from_raw(raw)));
        [bits, !bits]
    })
}

/// `f(a) relation f(b)` for the lower halves of a and b; the upper halves take the place of the opposite.
pub fn compare_halves<V: PartialOrd>(
    relation: Relation,
    outcome: Outcome,
    join: Join,
    f: impl Fn(u16) -> V + Send + Sync + 'static,
) -> Lanes {
    outcome.of::<u32>(join, move |a, b| {
        let halves = |shift: u32| relation.lanes(a, b, |raw| f((raw >> shift) as u16));
        [halves(0), halves(16)]
    })
}

/// `p = f(a)`.
pub fn test<A: Value>(f: impl Fn(A) -> bool + Send + Sync + 'static) -> Lanes {
    Lanes::new(&[Bank::Predicate], &[bank::<A>()], move |registers, o, mask| {
        let a = read::<A>(registers, o[1]);
        let bits = collect(|lane| f(A::from_raw(a[lane])));
        registers.set_predicate(o[0], bits, mask);
    })
}

/// `d = p ? a : b`: operands d, a, b, p.
pub fn select<V: Value>() -> Lanes {
    Lanes::new(&[bank::<V>()], &[bank::<V>(), bank::<V>(), Bank::Predicate], |registers, o, mask| {
        let (a, b) = (read::<V>(registers, o[1]), read::<V>(registers, o[2]));
        let p = registers.predicate[o[3] as usize];
        let d = each(|lane| if p >> lane & 1 != 0 { a[lane] } else { b[lane] });
        write::<V>(registers, o[0], &d, mask);
    })
}

/// `p = f(q, r)`, one bit per lane.
pub fn logic(f: fn(u32, u32) -> u32) -> Lanes {
    Lanes::new(&[Bank::Predicate], &[Bank::Predicate; 2], move |registers, o, mask| {
        let bits = f(registers.predicate[o[1] as usize], registers.predicate[o[2] as usize]);
        registers.set_predicate(o[0], bits, mask);
    })
}

/// `p = f(q)`, one bit per lane.
pub fn logic_not(f: fn(u32) -> u32) -> Lanes {
    Lanes::new(&[Bank::Predicate], &[Bank::Predicate], move |registers, o, mask| {
        let bits = f(registers.predicate[o[1] as usize]);
        registers.set_predicate(o[0], bits, mask);
    })
}

/// `d = f(a, …)` between registers of any width.
pub fn convert<const N: usize>(
    to: Bank,
    from: [Bank; N],
    f: impl Fn([u64; N]) -> u64 + Send + Sync + 'static,
) -> Lanes {
    Lanes::new(&[to], &from, move |registers, o, mask| {
        let mut sources = [[0; LANES]; N];
        for place in 0..N {
            sources[place] = registers.wide(Register { bank: from[place], index: o[1 + place] });
        }
        let d = each(|lane| {
            let mut operands = [0; N];
            for place in 0..N {
                operands[place] = sources[place][lane];
            }
            f(operands)
        });
        registers.set_wide(Register { bank: to, index: o[0] }, &d, mask);
    })
}

/// `d = {a, b, …}`: packs the parts, least significant first.
pub fn pack(whole: Bank, part: Bank, parts: usize, bits: u32) -> Lanes {
    Lanes::new(&[whole], &vec![part; parts], move |registers, o, mask| {
        let mut d = [0; LANES];
        for (place, &index) in o[1..=parts].iter().enumerate() {
            let value = registers.wide(Register { bank: part, index });
            for lane in 0..LANES {
                d[lane] |= (value[lane] & low(bits)) << (place as u32 * bits);
            }
        }
        registers.set_wide(Register { bank: whole, index: o[0] }, &d, mask);
    })
}

/// `{d, e, …} = a`: the inverse of [`pack`].
pub fn unpack(whole: Bank, part: Bank, parts: usize, bits: u32) -> Lanes {
    Lanes::new(&vec![part; parts], &[whole], move |registers, o, mask| {
        let a = registers.wide(Register { bank: whole, index: o[parts] });
        for (place, &index) in o[..parts].iter().enumerate() {
            let value = each(|lane| a[lane] >> (place as u32 * bits) & low(bits));
            registers.set_wide(Register { bank: part, index }, &value, mask);
        }
    })
}

/// A mask of the low `bits` bits.
pub fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}
