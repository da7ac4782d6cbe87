//! A request: what is reduced, by what, how and where to, with its types erased. The code that launches
//! requests is compiled once, with the library, and not for each operator and element type that a program
//! uses.

use crate::by_index::Tally;
use crate::{Element, Kernels, Op, Plan};
use gpu_reduce_kernels::agent::{Agent, in_parts, kernels, member, summed_from};
use gpu_reduce_kernels::columns::{self, Columns, PerThread};
use gpu_reduce_kernels::element::Dtype;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::kernels::{Family, Identity, Operator, Parameters};
use gpu_reduce_kernels::keys::Encode;
use gpu_reduce_kernels::op::tally::{OfTally, Tallied};
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::runs;
use gpu_reduce_kernels::segments::{self, SegmentBounds};
use gpu_reduce_kernels::shape::lines;
use gpu_reduce_kernels::slot;
use gpu_reduce_kernels::terms::{self, Range};
use gpu_reduce_kernels::words::{Rule, Rules};
use gpu_reduce_kernels::{deal, index};
use std::any::{TypeId, type_name};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a launch needs to know of the types of an operator and its input.
pub struct Types {
    /// The kernel of whole arrays; for keys, the kernel that finds runs.
    pub kernel: Identity,
    /// The types in words, for errors.
    pub name: fn() -> &'static str,
    /// The kernels that the operator's crate has compiled.
    pub own: Kernels,
    pub width: usize,
    /// Leaves that a lane has in flight in the kernel of short segments.
    pub slots: usize,
    /// Whether a block can fold several chunks of rows.
    pub folds_several: bool,
    /// How many items rows and segments must have on average for blocks to [sum](Agent::SUMMED_FROM) them in shared memory.
    pub summed_from: Option<u64>,
    /// Bytes of an element; of a pair, of the larger one.
    pub bytes: usize,
    /// Neighbouring columns that a thread folds as one, if it can: any columns, and short ones.
    pub beside: [usize; 2],
    /// Items of a column that a thread has in flight.
    pub loads: usize,
    /// Whether a thread folds several leaves of a column at a time.
    pub is_side_by_side: bool,
    /// Words of a slot for an accumulator.
    pub words: usize,
    /// Whether these words are a full slot.
    pub is_full: fn(&[AtomicU64]) -> bool,
    /// Whether the operator is [`EXACT`](Op::EXACT), so that the order does not matter.
    pub is_exact: bool,
    /// Whether parts of an array reduce as arrays of their own, and their accumulators combine.
    pub in_parts: bool,
    /// Whether the operator may depend on the first item: it has fields to keep it in.
    pub looks_at_first: bool,
    /// Which operator it is of those that share kernels.
    pub member: u32,
}

impl Types {
    /// Returns the types of operator `O` over input `P`: a constant.
    pub const fn of<O: Op<P::Item>, P: Input>() -> &'static Self {
        const {
            &Self {
                kernel: Identity::of::<O, P>(Family::Whole),
                name: type_name::<(O, P)>,
                own: kernels::<O, P::Item>(),
                width: width::<O, P::Item>(P::BYTES),
                slots: segments::slots::<O, P::Item>(width::<O, P::Item>(P::BYTES)),
                folds_several: lines::folds_several::<O, P::Item>(),
                summed_from: summed_from::<O, P::Item>(),
                bytes: P::BYTES,
                beside: columns::beside::<O, P>(),
                loads: columns::loads::<O, P::Item>(),
                is_side_by_side: columns::is_side_by_side::<O, P::Item>(),
                words: slot::words::<O::Accumulator>(),
                is_full: |words| O::agent().of_slot(|index| words[index].load(Ordering::Relaxed)).is_some(),
                is_exact: O::EXACT,
                in_parts: in_parts::<O, P::Item>(),
                looks_at_first: size_of::<O>() > 0,
                member: member::<O, P::Item>(),
            }
        }
    }

    /// Returns the plan of `len` items on one device.
    pub const fn plan_on_a_device(&self, len: u64, block: u32) -> Plan {
        Plan::on_a_device(len, self.width, block, self.is_exact)
    }

    /// Returns the operator at this address as a launch passes it.
    pub fn operator(&'static self, op: *const c_void) -> Operator {
        Operator { op: self.looks_at_first.then_some(op), member: &self.member }
    }

    /// Returns how columns are cut up. All arrays lie at multiples of `alignment` bytes, a power of two.
    pub fn cut_columns(&self, columns: &Columns, block: u32, alignment: usize) -> columns::Cut {
        let [of_word, of_line] = self.beside;
        // A column of more items, or bytes, has loads enough. Items that are folded in turn gain in columns of any length, if
        // there are so many that all of a GPU is busy.
        let is_short = columns.reduced <= 24 && columns.reduced * self.bytes as u64 <= 96;
        let many = if is_short { 1 << 14 } else { 1 << 16 };
        let is_of_line = (is_short || !self.is_side_by_side) && columns.count / of_line as u64 >= many;
        let divides = |beside: usize| columns.inner.is_multiple_of(beside as u64);
        let is_of_word = if columns::is_pair(self.bytes) {
            columns.reduced <= self.width as u64 * u64::from(block)
                && columns.count >= 1 << 16
                && alignment >= 8
        } else {
            // Blocks for nine to sixteen pairs of columns take longer than those for as many columns twice.
            let is_slower = of_word == 2 && (17..=32).contains(&columns.count);
            alignment >= 4 && !is_slower
        };
        let beside = if is_of_line && alignment >= 16 && divides(of_line) {
            of_line
        } else if is_of_word && divides(of_word) {
            of_word
        } else {
            1
        };
        // Columns of narrow items that are loaded as words may be long.
        let may_be_long = beside == of_word && !columns::is_pair(self.bytes);
        let per_thread = PerThread {
            beside,
            bytes: beside * self.bytes,
            words: beside * self.words,
            loads: self.loads,
            is_exact: self.is_exact,
            is_side_by_side: self.is_side_by_side,
            is_of_block: beside > 1 && self.is_side_by_side && !may_be_long,
        };
        columns::Cut::new(columns, self.width, block, per_thread)
    }

    /// Returns the types of the search for runs of keys: a constant.
    const fn of_keys<K: Element>() -> &'static Self {
        const {
            &Self {
                kernel: Identity::of_type(TypeId::of::<runs::Kernel<K>>()),
                name: type_name::<runs::Kernel<K>>,
                own: Kernels::NONE,
                width: 1,
                slots: 1,
                folds_several: false,
                summed_from: None,
                bytes: size_of::<K>(),
                beside: [1; 2],
                loads: 1,
                is_side_by_side: false,
                words: 1,
                is_full: |_| true,
                is_exact: true,
                in_parts: false,
                looks_at_first: false,
                member: 0,
            }
        }
    }
}

/// What a launch that sums by index needs to know of the types of an operator and its items.
pub struct TallyTypes {
    pub add: TypeId,
    pub rest: TypeId,
    pub finish: TypeId,
    /// The types in words, for errors.
    pub name: fn() -> &'static str,
    /// The kernel that moves items of this size.
    pub move_items: TypeId,
    /// Bytes of an item.
    pub bytes: usize,
    /// Words of 32 bits of a sum in a table.
    pub words: u32,
    /// Words of 64 bits of a sum for what is outside of the window; 0 if nothing is.
    pub rest_words: usize,
    /// Whether items are counted.
    pub is_counted: bool,
}

impl TallyTypes {
    /// Returns the types of an operator over items: a constant.
    pub const fn of<O: OfTally<T>, T: Element>() -> &'static Self {
        const { if O::COUNTS { Self::counted::<O, T>() } else { &Self::with::<O, T>(false) } }
    }

    /// As [`of`](Self::of), if the items must be counted anyway.
    pub const fn counted<O: OfTally<T>, T: Element>() -> &'static Self {
        const { &Self::with::<O, T>(true) }
    }

    const fn with<O: OfTally<T>, T: Element>(is_counted: bool) -> Self {
        Self {
            add: TypeId::of::<index::Add<T>>(),
            rest: TypeId::of::<index::Rest<T>>(),
            finish: TypeId::of::<index::Finished<O, T>>(),
            name: type_name::<index::Finished<O, T>>,
            move_items: match size_of::<T>() {
                1 => TypeId::of::<deal::Move<u8>>(),
                2 => TypeId::of::<deal::Move<u16>>(),
                4 => TypeId::of::<deal::Move<u32>>(),
                _ => TypeId::of::<deal::Move<u64>>(),
            },
            bytes: size_of::<T>(),
            words: index::words::<T>(is_counted),
            rest_words: <T::Wide as Tallied>::REST,
            is_counted,
        }
    }
}

/// The most items that a GPU deals or sorts: it counts them in 32 bits.
pub const MOST_ORDERED: usize = (1 << 31) - 1;

/// Items that are sorted by their index.
pub struct Sorting {
    /// Items of 1, 2, 4 or 8 bytes; null for their places, of 4 bytes.
    pub items: *const c_void,
    pub bytes: usize,
    pub indices: *const u32,
    pub index_words: u32,
    /// At least one item, and at most [`MOST_ORDERED`].
    pub len: usize,
    /// The number of indices, 2^32 at most.
    pub count: u64,
    /// Takes the sorted items.
    pub sorted: *mut c_void,
}

/// A reduction by index of sorted items on a GPU.
pub struct InOrder<'a> {
    pub operation: Operation<'a>,
    /// The address of each array's items (a pair has two arrays), and the bytes of an item.
    pub arrays: Vec<(u64, usize)>,
    pub indices: *const u32,
    pub index_words: u32,
    /// At most [`MOST_ORDERED`].
    pub len: usize,
    /// At least one index.
    pub count: usize,
    /// A place for each result.
    pub results: *mut c_void,
}

/// A reduction by index to words on a GPU.
pub struct ToWords {
    pub rules: Rules,
    pub items: *const c_void,
    pub indices: *const u32,
    pub index_words: u32,
    pub len: usize,
    pub count: usize,
    /// A place for each result, whose parts have `bytes` bytes each.
    pub results: *mut c_void,
    pub bytes: usize,
    /// The parts of the result of indices without items, if there is one.
    pub default: Option<[u64; 2]>,
}

/// Variances by index on a GPU.
pub struct Spread {
    /// The items, whose means are found first.
    pub items: Tally,
    pub dtype: Dtype,
    /// What is subtracted from the numbers of items.
    pub ddof: u64,
    /// Whether results are square roots.
    pub is_root: bool,
    /// A place for each result, an `f32` or `f64`.
    pub results: *mut c_void,
    pub result_bytes: usize,
}

/// Sums by index of terms that a GPU makes of items.
pub struct Terms {
    /// The sums; their items are the terms.
    pub sums: Tally,
    pub making: Making,
    /// Bytes of a result; if items are dropped, 4 or 8.
    pub result_bytes: usize,
}

/// How terms are made of items.
pub enum Making {
    /// Items that do not pass the test become 0, and so do items with the bits of `zero`.
    Pick {
        /// The kernel for items of this size.
        kernel: TypeId,
        items: *const c_void,
        zero: u64,
        rule: Rule,
        /// Whether items that do not pass are not counted. Then the results have 4 or 8 bytes.
        drops: bool,
    },
    /// Products of items at two addresses, which may be equal.
    Multiply { dtype: Dtype, items: [*const c_void; 2] },
}

impl Making {
    /// Picks the items for which a comparison holds.
    pub fn pick<T: Element>(range: Range<T>, items: *const c_void, zero: u64, drops: bool) -> Self {
        let kernel = match size_of::<T>() {
            1 => TypeId::of::<terms::Pick<u8>>(),
            2 => TypeId::of::<terms::Pick<u16>>(),
            4 => TypeId::of::<terms::Pick<u32>>(),
            _ => TypeId::of::<terms::Pick<u64>>(),
        };
        Self::Pick { kernel, items, zero, rule: range.rule(), drops }
    }
}

/// A column of keys on a GPU.
pub struct KeyColumn {
    pub keys: *const c_void,
    /// The kernel that encodes it.
    pub encode: TypeId,
    pub bytes: usize,
    pub is_float: bool,
}

impl KeyColumn {
    /// The column at an address.
    pub fn new<K: Element>(keys: *const K) -> Self {
        let is_float = matches!(K::DTYPE, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64);
        Self { keys: keys.cast(), encode: TypeId::of::<Encode<K>>(), bytes: size_of::<K>(), is_float }
    }
}

/// What is reduced: how the items of an input fall into reductions.
#[derive(Clone, Copy)]
pub enum Shape {
    /// All items, of which there are `len` and at least one. `head` is the input's [`head`](Input::head).
    Whole { len: u64, head: Option<u32> },
    /// Each segment.
    Segments(SegmentBounds),
    /// Each column.
    Columns(Columns),
    /// No reduction: the runs of keys are found.
    Runs(runs::Arguments<u8>),
}

/// An operator without its type, and BLOCK.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    pub types: &'static Types,
    pub op: *const c_void,
    /// The result of a segment or column that has no value; null for a whole array.
    pub default: *const c_void,
    /// Whether an empty segment gets `default`. If not, it is an error where the operator has no value for no
    /// items.
    pub has_default: bool,
    pub block: u32,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Operation<'a> {
    /// An operator over a whole array that lies behind `P`.
    pub fn whole<O: Op<P::Item>, P: Input>(op: &'a O, block: u32) -> Self {
        Self::of_types(Types::of::<O, P>(), (&raw const *op).cast(), block)
    }

    /// As [`whole`](Self::whole), with the types erased already.
    pub fn of_types(types: &'static Types, op: *const c_void, block: u32) -> Self {
        Self { types, op, default: null(), has_default: false, block, borrowed: PhantomData }
    }

    /// An operator over each of many segments or columns.
    pub fn each<O: Op<P::Item>, P: Input>(
        op: &'a O,
        (default, has_default): (&'a O::Output, bool),
        block: u32,
    ) -> Self {
        let default = (&raw const *default).cast();
        Self { default, has_default, ..Self::whole::<O, P>(op, block) }
    }

    /// The request to reduce all of `len` items.
    pub fn of_whole(self, input: &'a impl Input, len: u64) -> Request<'a> {
        self.request(input, Shape::Whole { len, head: input.head() }, null_mut::<()>())
    }

    /// The request to reduce an input, with the results of segments or columns on the device.
    pub fn request<V>(self, input: &'a impl Input, shape: Shape, results: *mut V) -> Request<'a> {
        let mut parameters = Parameters::NONE;
        input.parameters(&mut parameters);
        self.with_parameters(parameters, shape, results.cast())
    }

    /// As [`request`](Self::request), for an input that is given as kernel parameters.
    pub fn with_parameters(self, input: Parameters, shape: Shape, results: *mut c_void) -> Request<'a> {
        Request { by: self, input, shape, results }
    }
}

/// What is reduced, by what, how and where to.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub by: Operation<'a>,
    pub input: Parameters,
    pub shape: Shape,
    /// Where results go on the device; null if the host takes the result of a whole array.
    pub results: *mut c_void,
}

impl Request<'_> {
    /// The request to find the runs of keys, of which there are some.
    pub fn runs<K: Element>(arguments: runs::Arguments<K>) -> Self {
        let runs::Arguments { keys, len, heads, offsets, words, capacity, number, bits, state, area } =
            arguments;
        let (keys, heads) = (keys.cast(), heads.cast());
        let arguments =
            runs::Arguments { keys, len, heads, offsets, words, capacity, number, bits, state, area };
        let by = Operation {
            types: Types::of_keys::<K>(),
            op: null(),
            default: null(),
            has_default: false,
            block: runs::THREADS,
            borrowed: PhantomData,
        };
        Self { by, input: Parameters::NONE, shape: Shape::Runs(arguments), results: null_mut() }
    }
}
