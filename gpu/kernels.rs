//! Which kernels are compiled, and how the host finds and launches them.
//!
//! An [`Identity`] says which kernel is meant: by the kernel's type, [`Kernel`], or by the types of an operator
//! and an input and by a [`Family`]. A crate's table, [`Kernels`], has the names of the kernels that the crate
//! has compiled. [`Arguments`] lists a launch's parameters for the driver.

use crate::Op;
use crate::agent::member;
use core::any::TypeId;
use core::ffi::c_void;
use core::marker::PhantomData;
pub use gpu_reduce_ptx::Ptx;
#[cfg(not(target_arch = "nvptx64"))]
use std::{borrow::ToOwned, string::String, vec, vec::Vec};

/// A kernel as a type: its family, its operator and its input. Each BLOCK has an entry point of its own.
pub trait Kernel: 'static {
    /// The arguments of a launch.
    type Arguments: Arguments;
}

/// A kernel as a type: which one, `K`, and the arguments `A` of a launch.
pub struct Named<K, A>(PhantomData<(K, A)>);

impl<K: 'static, A: Arguments + 'static> Kernel for Named<K, A> {
    type Arguments = A;
}

/// The arguments that a kernel is launched with.
pub trait Arguments: Copy {
    /// Adds the address of each of the kernel's parameters, in order. Addresses after the kernel's last
    /// parameter are ignored.
    fn parameters(&self, parameters: &mut Parameters);
}

/// The addresses of a kernel's parameters, as the driver takes them.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    addresses: [*mut c_void; 20],
    len: usize,
    known: [Known; 10],
    known_count: usize,
}

/// A word of 8 bytes, or a parameter of 4, that has few values. The driver compiles the kernel for each, with the value as a
/// constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    /// The parameter's number.
    pub parameter: u8,
    /// The bytes of the parameter before the word.
    pub byte: u8,
    /// The word.
    pub value: u64,
}

impl Known {
    const NONE: Self = Self { parameter: 0, byte: 0, value: 0 };
}

impl Parameters {
    /// No parameters.
    pub const NONE: Self =
        Self { addresses: [core::ptr::null_mut(); 20], len: 0, known: [Known::NONE; 10], known_count: 0 };

    /// Returns the parameters of `arguments`, which must not move as long as these are used.
    pub fn of(arguments: &impl Arguments) -> Self {
        let mut parameters = Self::NONE;
        arguments.parameters(&mut parameters);
        parameters
    }

    /// Adds a parameter.
    ///
    /// # Panics
    ///
    /// After the twentieth.
    pub fn push<V: Copy>(&mut self, value: &V) {
        self.push_address((&raw const *value).cast());
    }

    /// Adds the parameter of any type at an address.
    ///
    /// # Panics
    ///
    /// After the twentieth.
    pub fn push_address(&mut self, address: *const c_void) {
        self.addresses[self.len] = address.cast_mut();
        self.len += 1;
    }

    /// Adds an operator, if it has fields, and which one it is of those that share kernels.
    ///
    /// # Panics
    ///
    /// After the twentieth, or after the tenth word that is known.
    pub fn push_operator(&mut self, Operator { op, member }: Operator) {
        if let Some(op) = op {
            self.push_address(op);
        }
        self.knows(0, u64::from(*member));
        self.push(member);
    }

    /// Names a word of the next parameter that has few values: the bytes before it, and its value.
    ///
    /// # Panics
    ///
    /// After the tenth word.
    pub fn knows(&mut self, byte: usize, value: u64) {
        self.known[self.known_count] = Known { parameter: self.len as u8, byte: byte as u8, value };
        self.known_count += 1;
    }

    /// Returns the addresses.
    pub fn as_slice(&self) -> &[*mut c_void] {
        &self.addresses[..self.len]
    }

    /// Returns the words whose values the compiler may take for constants. A kernel that is compiled so has no code for other
    /// values.
    pub fn known(&self) -> &[Known] {
        &self.known[..self.known_count]
    }
}

/// An operator, as a launch passes it.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// The operator's address, if it has fields.
    pub op: Option<*const c_void>,
    /// Which one it is of those that share kernels. Kernels that are not shared have no such parameter.
    pub member: &'static u32,
}

impl Operator {
    /// The operator at this address, which must stay there until the launch.
    pub fn of<O: Op<I>, I: Copy + 'static>(op: &O) -> Self {
        let address = (size_of::<O>() > 0).then_some((&raw const *op).cast());
        Self { op: address, member: const { &member::<O, I>() } }
    }
}

/// Implements [`Arguments`] for a struct whose fields are the kernel's parameters: `arguments! { [GENERICS]
/// TYPE: FIELD FIELD … }`.
macro_rules! arguments {
    ([$($generics:tt)*] $type:ty: $($field:ident)*) => {
        impl<$($generics)*> $crate::kernels::Arguments for $type {
            fn parameters(&self, parameters: &mut $crate::kernels::Parameters) {
                $( parameters.push(&self.$field); )*
            }
        }
    };
}
pub(crate) use arguments;

/// The kernels that a crate has compiled. Its operators name them as [`Op::KERNELS`].
#[cfg_attr(target_arch = "nvptx64", allow(dead_code))] // the host looks kernels up
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    entries: &'static [&'static [Entry]],
    ptx: &'static [&'static Ptx],
}

/// The kernels of an operator and an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// [`reduce::Kernel`](crate::reduce::Kernel), of whole arrays.
    Whole,
    /// [`reduce::RowKernel`](crate::reduce::RowKernel).
    Row,
    /// [`reduce::GroupsKernel`](crate::reduce::GroupsKernel).
    Groups,
    /// [`segments::Kernel`](crate::segments::Kernel).
    Segments,
    /// [`reduce_short_rows`](crate::shape::short_rows::reduce_short_rows).
    ShortRows,
    /// [`reduce_rows`](crate::shape::whole_rows::reduce_rows).
    Rows,
    /// [`reduce_larger`](crate::shape::larger::reduce_larger).
    Larger,
    /// [`reduce_lines`](crate::shape::lines::reduce_lines).
    Lines,
    /// [`reduce_spans`](crate::shape::spans::reduce_spans).
    Spans,
    /// [`chunks::Kernel`](crate::chunks::Kernel).
    Chunks,
    /// [`columns::Kernel`](crate::columns::Kernel).
    Columns,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Family {
    const ALL: [Self; 11] = [
        Self::Whole,
        Self::Row,
        Self::Groups,
        Self::Segments,
        Self::ShortRows,
        Self::Rows,
        Self::Larger,
        Self::Lines,
        Self::Spans,
        Self::Chunks,
        Self::Columns,
    ];

    /// What the names of its entry points have after the row's name.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Row => "_row",
            Self::Groups => "_groups",
            Self::Segments => "_segments",
            Self::ShortRows => "_short",
            Self::Rows => "_rows",
            Self::Larger => "_larger",
            Self::Lines => "_lines",
            Self::Spans => "_spans",
            Self::Chunks => "_chunks",
            Self::Columns => "_columns",
        }
    }
}

/// Says which kernel is meant.
#[cfg_attr(target_arch = "nvptx64", allow(dead_code))] // the host looks kernels up
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The type of the kernel, or the types of an operator and its input.
    of: TypeId,
    /// Which kernel of the operator.
    family: Option<Family>,
}

impl Identity {
    /// The kernel of this type.
    pub const fn of_type(kernel: TypeId) -> Self {
        Self { of: kernel, family: None }
    }

    /// A kernel of an operator and an input.
    pub const fn of<O: 'static, P: 'static>(family: Family) -> Self {
        Self { of: TypeId::of::<(O, P)>(), family: Some(family) }
    }

    /// Another kernel of the same operator and input. A kernel that is of no operator stays.
    pub const fn with(self, family: Family) -> Self {
        match self.family {
            None => self,
            Some(_) => Self { of: self.of, family: Some(family) },
        }
    }
}

/// The entry points of one kernel, or of an operator and an input, named `NAME_BLOCK`. (A table has a type
/// for all kernels of an operator and an input: a `TypeId` is 16 bytes, which do not compress.)
#[cfg_attr(target_arch = "nvptx64", allow(dead_code))] // the host looks kernels up
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    of: TypeId,
    name: &'static str,
    /// The name of those that other types do not share: of spans, and of some operators' columns.
    alone: &'static str,
    /// Whether they are of an operator, and then whether there is a [`RowKernel`](crate::reduce::RowKernel);
    /// if not, the kernel of whole arrays takes its place.
    has_row: Option<bool>,
}

impl Entry {
    /// Names the entry points of kernel `K`.
    pub const fn new<K: Kernel>(name: &'static str) -> Self {
        Self { of: TypeId::of::<K>(), name, alone: name, has_row: None }
    }

    /// Names the entry points of each [`Family`] for an operator and an input: `alone` if other types do not share them, `name` for the
    /// others.
    pub const fn of<O: 'static, P: 'static>(name: &'static str, alone: &'static str, has_row: bool) -> Self {
        Self { of: TypeId::of::<(O, P)>(), name, alone, has_row: Some(has_row) }
    }

    /// Returns the names that the entry points of a kernel may have, if it is one of these.
    #[cfg(not(target_arch = "nvptx64"))]
    fn names_of(&self, kernel: Identity) -> Vec<String> {
        match (kernel.family, self.has_row) {
            _ if kernel.of != self.of => vec![],
            (None, None) => vec![self.name.into()],
            (Some(family), Some(has_row)) => self.names_in(family, has_row),
            _ => vec![],
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn names_in(&self, family: Family, has_row: bool) -> Vec<String> {
        let is_whole = family == Family::Row && !has_row;
        let suffix = if is_whole { "" } else { family.suffix() };
        let names = match family {
            Family::Spans => &[self.alone][..],
            // Some operators have kernels of columns for each type, others for two types.
            Family::Columns => &[self.alone, self.name],
            _ => &[self.name],
        };
        names.iter().map(|name| [name, suffix].concat()).collect()
    }
}

impl Kernels {
    /// No kernels.
    pub const NONE: Self = Self { entries: &[], ptx: &[] };

    /// The kernels of these tables; [`kernels!`](crate::kernels!) makes them.
    ///
    /// # Safety
    ///
    /// In the PTX, the entry points under an entry's name are those of the entry's kernel, and take its
    /// arguments.
    pub const unsafe fn new(entries: &'static [&'static [Entry]], ptx: &'static [&'static Ptx]) -> Self {
        Self { entries, ptx }
    }

    /// Returns whether there are no kernels.
    pub const fn is_none(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the name and the PTX of a kernel, if it was compiled.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn find(&self, kernel: Identity) -> Option<(String, &'static Ptx)> {
        let mut names = self.entries.iter().copied().flatten().flat_map(|entry| entry.names_of(kernel));
        names.find_map(|name| self.ptx_of(&name).map(|ptx| (name, ptx)))
    }

    /// Returns the PTX of the kernel of this name, if it was compiled.
    #[cfg(not(target_arch = "nvptx64"))]
    fn ptx_of(&self, name: &str) -> Option<&'static Ptx> {
        self.ptx.iter().copied().find(|ptx| ptx.has(name))
    }

    /// Returns the names of all kernels in the table, compiled or not. Of several that a kernel may have, it is the compiled one.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn names(&self) -> impl Iterator<Item = String> {
        let name_of = |names: Vec<String>| {
            let compiled = names.iter().find(|name| self.ptx_of(name).is_some());
            compiled.or(names.last()).cloned()
        };
        let names = move |entry: &Entry| match entry.has_row {
            None => vec![entry.name.to_owned()],
            Some(has_row) => {
                let names = Family::ALL.map(|family| entry.names_in(family, has_row));
                names.into_iter().filter_map(name_of).collect()
            }
        };
        self.entries.iter().copied().flatten().flat_map(names)
    }
}

/// Fails to compile if a GPU cannot reduce items of type `I` by the operator. [`kernels!`](crate::kernels!) calls it for
/// each row.
#[doc(hidden)]
pub const fn check_row<O: Op<I>, I: Copy + 'static>() {
    assert!(
        size_of::<O::Accumulator>() <= MOST_ACCUMULATOR_BYTES,
        "an accumulator has more than 1,536 bytes: 32 of them must fit in a block's shared memory"
    );
}

/// The bytes of an accumulator, at most: 32 fill the 48 KiB of shared memory that a block has without being asked for.
const MOST_ACCUMULATOR_BYTES: usize = 1536;

/// The entry points of the kernels for whole inputs, for an operator of one input or of two: one for each
/// BLOCK, and `@groups` one for groups of partial results. [`kernels!`](crate::kernels!) and the library's own
/// table use it.
#[doc(hidden)]
#[macro_export]
macro_rules! reduce_entries {
    ($row:tt $($block:literal)*) => {
        $(
            $crate::reduce_entries! { @whole $row $block }
            $crate::with_inputs! { reduce_entries ["_row_" reduce_row $block] $row }
        )*
    };
    (@whole $row:tt $block:literal) => {
        $crate::with_inputs! { reduce_entries ["_" reduce $block] $row }
    };
    (@groups $row:tt) => {
        $crate::with_inputs! { reduce_entries ["_groups_" reduce_groups 1024] $row }
    };
    (
        @kernel [$suffix:literal $kernel:ident $block:literal]
        [$name:expr $(; $shared:ident $member:ident => $value:expr)?] $op:ty, $item:ty, $input:ty, $($parameter:ident $first:ident: $type:ty),*
    ) => {
        const _: () = {
            #[$crate::cuda_std::kernel(name = concat!($name, $suffix, $block))]
            #[allow(improper_ctypes_definitions, clippy::too_many_arguments)]
            pub unsafe fn entry(
                $($parameter: $type,)*
                chunk: u32,
                before: u32,
                len: u64,
                slots: *mut u64,
                result: $crate::reduce::Target<<$op as $crate::Op<$item>>::Output>,
                $($first: $type,)*
                op: $op,
                $($member: u32,)?
            ) {
                const WIDTH: usize = $crate::op::width::<$op, $item>(<$input as $crate::input::Input>::BYTES);
                let (input, first) = (($($parameter),*), ($($first),*));
                $( let op = { let $shared = op; $value }; )?
                let arguments =
                    $crate::reduce::Arguments { input, chunk, before, len, slots, result, first, op };
                // SAFETY: the host launches it as `reduce` asks.
                unsafe { $crate::reduce::$kernel::<_, $input, $block, WIDTH>(arguments) }
            }
        };
    };
}

/// Calls `$callback! { @kernel $kernel [NAME] OPERATOR, ITEM, INPUT, PARAMETER FIRST: TYPE, … }` for an
/// operator of one input or of two: a parameter for each array, and one for its first item. If operators or types share
/// the kernel, it is `[NAME; OP MEMBER => VALUE]`: VALUE is the operator that the kernel folds by, made of the parameters
/// OP, an operator, and MEMBER, which says which of them it is.
#[doc(hidden)]
#[macro_export]
macro_rules! with_inputs {
    ($callback:ident $kernel:tt { $name:tt $op:ty, $item:ty }) => {
        $crate::$callback! { @kernel $kernel $name $op, $item, *const $item, input first: *const $item }
    };
    ($callback:ident $kernel:tt { $name:tt $op:ty, $a:ty, $b:ty }) => {
        $crate::$callback! {
            @kernel $kernel $name $op, ($a, $b), (*const $a, *const $b),
            a first_a: *const $a, b first_b: *const $b
        }
    };
}

/// The entry point of the kernel of `segments`, of `spans` or of `columns`, or the entry points of the kernels of `rows`, for an operator of one input
/// or of two.
#[doc(hidden)]
#[macro_export]
macro_rules! shape_entries {
    (segments $($row:tt)*) => {
        $crate::with_inputs! {
            shape_entries [segments "_segments_0" SegmentBounds reduce_segments WIDTH SLOTS] { $($row)* }
        }
    };
    (spans $($row:tt)*) => {
        $crate::with_inputs! { shape_entries [spans "_spans_0" SegmentBounds reduce_spans WIDTH] { $($row)* } }
    };
    (rows $($row:tt)*) => {
        $crate::with_inputs! {
            shape_entries [short_rows "_short_0" SegmentBounds reduce_short_rows WIDTH] { $($row)* }
        }
        $crate::with_inputs! { shape_entries [whole_rows "_rows_0" SegmentBounds reduce_rows WIDTH] { $($row)* } }
        $crate::with_inputs! { shape_entries [larger "_larger_0" SegmentBounds reduce_larger WIDTH] { $($row)* } }
        $crate::with_inputs! { shape_entries [lines "_lines_0" SegmentBounds reduce_lines WIDTH] { $($row)* } }
        $crate::with_inputs! { shape_entries [chunks "_chunks_0" SegmentBounds reduce_chunks WIDTH] { $($row)* } }
    };
    (columns $($row:tt)*) => {
        $crate::with_inputs! { shape_entries [columns "_columns_0" Columns reduce_columns LOADS] { $($row)* } }
    };
    (
        @kernel [$shape:ident $suffix:literal $of:ident $kernel:ident $($constant:ident)*]
        [$name:expr $(; $shared:ident $member:ident => $value:expr)?] $op:ty, $item:ty, $input:ty, $($parameter:ident $first:ident: $type:ty),*
    ) => {
        #[allow(dead_code)]
        const _: () = {
            const WIDTH: usize = $crate::op::width::<$op, $item>(<$input as $crate::input::Input>::BYTES);
            const SLOTS: usize = $crate::segments::slots::<$op, $item>(WIDTH);
            const LOADS: usize = $crate::columns::loads::<$op, $item>();
            #[$crate::cuda_std::kernel(name = concat!($name, $suffix))]
            #[allow(improper_ctypes_definitions)]
            pub unsafe fn entry(
                $($parameter: $type,)*
                shape: $crate::shape::$shape::$of,
                cut: $crate::shape::$shape::Cut,
                results: *mut <$op as $crate::Op<$item>>::Output,
                default: <$op as $crate::Op<$item>>::Output,
                op: $op,
                $($member: u32,)?
            ) {
                let input = ($($parameter),*);
                $( let op = { let $shared = op; $value }; )?
                let arguments = $crate::shape::Arguments { input, shape, cut, results, default, op };
                // SAFETY: the host launches it as the kernel asks.
                unsafe { $crate::shape::$shape::$kernel::<_, $input, $($constant),*>(arguments) }
            }
        };
    };
}

/// The table of a crate's own kernels: a row is `NAME: OPERATOR, ITEM;`, or `NAME: OPERATOR, ITEM, ITEM;` for
/// an operator of two inputs. It makes the entry points, one for each BLOCK, and `KERNELS`, the table to name
/// in each operator (`const KERNELS: Kernels = crate::KERNELS;`). The crate's build script compiles them:
///
/// ```ignore
/// fn main() {
///     cuda_builder::CudaBuilder::new(".").embed().unwrap();
/// }
/// ```
#[allow(clippy::needless_doctest_main)]
#[macro_export]
macro_rules! kernels {
    ($($name:ident: $op:ty, $($item:ty),+;)*) => {
        const _: () = {
            use $crate::reduce_entries;
            $( const _: () = $crate::kernels::check_row::<$op, ($($item),+)>(); )*
            $( $crate::for_each_block! { reduce_entries! { [stringify!($name)] $op, $($item),+ } } )*
            $(
                $crate::reduce_entries! { @groups { [stringify!($name)] $op, $($item),+ } }
                $crate::shape_entries! { segments [stringify!($name)] $op, $($item),+ }
                $crate::shape_entries! { spans [stringify!($name)] $op, $($item),+ }
                $crate::shape_entries! { rows [stringify!($name)] $op, $($item),+ }
                $crate::shape_entries! { columns [stringify!($name)] $op, $($item),+ }
            )*
        };

        /// The kernels that this crate has compiled.
        #[cfg(target_arch = "nvptx64")]
        pub const KERNELS: $crate::Kernels = $crate::Kernels::NONE;

        /// The kernels that this crate has compiled.
        #[cfg(not(target_arch = "nvptx64"))]
        pub const KERNELS: $crate::Kernels = {
            use $crate::kernels::{Entry, Ptx};
            const ENTRIES: &[Entry] = &[$(
                Entry::of::<$op, $crate::input_of!($($item),+)>(stringify!($name), stringify!($name), true),
            )*];
            // SAFETY: the entry points are those above, which the crate's build script has compiled.
            unsafe { $crate::Kernels::new(&[ENTRIES], include!(concat!(env!("OUT_DIR"), "/kernels.rs"))) }
        };
    };
}

/// The type of an input, of one array or of two.
#[doc(hidden)]
#[macro_export]
macro_rules! input_of {
    ($item:ty) => { *const $item };
    ($first:ty, $second:ty) => { (*const $first, *const $second) };
}
