//! What is compiled: a kernel's identity is its type, and a crate's table says under which names it has compiled which.

use core::any::TypeId;
use core::ffi::c_void;
use core::marker::PhantomData;
pub use gpu_reduce_ptx::Ptx;

/// A kernel, as a type: its family with the operator and the input that it is for. Each BLOCK has an entry point of its own.
pub trait Kernel: 'static {
    /// What a launch is given.
    type Arguments: Arguments;
}

/// A kernel as a type: which one, `K`, and what a launch of it is given.
pub struct Named<K, A>(PhantomData<(K, A)>);

impl<K: 'static, A: Arguments + 'static> Kernel for Named<K, A> {
    type Arguments = A;
}

/// What a kernel is launched with.
pub trait Arguments: Copy {
    /// Where each of the kernel's parameters lies, in order; what follows the last that it has is ignored.
    fn parameters(&self, parameters: &mut Parameters);
}

/// Where a launch finds the kernel's parameters, as the driver takes it.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    addresses: [*mut c_void; 16],
    len: usize,
}

impl Parameters {
    /// None.
    pub const NONE: Self = Self { addresses: [core::ptr::null_mut(); 16], len: 0 };

    /// The parameters of `arguments`, which stay where they are as long as these are used.
    pub fn of(arguments: &impl Arguments) -> Self {
        let mut parameters = Self::NONE;
        arguments.parameters(&mut parameters);
        parameters
    }

    /// Adds one.
    ///
    /// # Panics
    ///
    /// After the sixteenth.
    pub fn push<V: Copy>(&mut self, value: &V) {
        self.push_address((&raw const *value).cast());
    }

    /// Adds one, of whatever type, that lies there.
    ///
    /// # Panics
    ///
    /// After the sixteenth.
    pub fn push_address(&mut self, address: *const c_void) {
        self.addresses[self.len] = address.cast_mut();
        self.len += 1;
    }

    /// Their addresses.
    pub fn as_slice(&self) -> &[*mut c_void] {
        &self.addresses[..self.len]
    }
}

/// Implements [`Arguments`] for a struct whose fields are the kernel's parameters: `arguments! { [GENERICS] TYPE: FIELD FIELD … }`.
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

/// The kernels that a crate has compiled. Its operators name them as [`Op::KERNELS`](crate::Op::KERNELS).
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    entries: &'static [&'static [Entry]],
    ptx: &'static [Ptx],
}

/// The entry points of one kernel, named `NAME_BLOCK`.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    kernel: TypeId,
    name: &'static str,
}

impl Entry {
    /// The entry points of kernel `K` are named so.
    pub const fn new<K: Kernel>(name: &'static str) -> Self {
        Self { kernel: TypeId::of::<K>(), name }
    }
}

impl Kernels {
    /// No kernels.
    pub const NONE: Self = Self { entries: &[], ptx: &[] };

    /// The kernels of these tables; [`kernels!`](crate::kernels!) makes them.
    ///
    /// # Safety
    ///
    /// What the PTX has under an entry's name are the entry points of the entry's kernel, and take what its arguments say.
    pub const unsafe fn new(entries: &'static [&'static [Entry]], ptx: &'static [Ptx]) -> Self {
        Self { entries, ptx }
    }

    /// Whether there are none.
    pub const fn is_none(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name and the PTX of the kernel of this type, if it was compiled.
    pub fn find(&self, kernel: TypeId) -> Option<(&'static str, &'static Ptx)> {
        let name = self.entries.iter().copied().flatten().find(|entry| entry.kernel == kernel)?.name;
        Some((name, self.ptx.iter().find(|ptx| ptx.has(name))?))
    }

    /// The names of all kernels in the table, compiled or not.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().copied().flatten().map(|entry| entry.name)
    }
}

/// The entry points of the production kernel for one operator and item, a name and a BLOCK each; or for an operator of two
/// inputs. What [`kernels!`](crate::kernels!) and the library's own table are made of.
#[doc(hidden)]
#[macro_export]
macro_rules! reduce_entries {
    ($row:tt $($block:literal)*) => {
        $(
            $crate::reduce_entries! { @entry ["_" reduce $block] $row }
            $crate::reduce_entries! { @entry ["_row_" reduce_row $block] $row }
        )*
    };
    (@entry $kernel:tt { [$name:expr] $op:ty, $item:ty }) => {
        $crate::reduce_entries! {
            @kernel $kernel [$name] $op, $item, *const $item, (input: *const $item) => input, (first: *const $item) => first
        }
    };
    (@entry $kernel:tt { [$name:expr] $op:ty, $first:ty, $second:ty }) => {
        $crate::reduce_entries! {
            @kernel $kernel [$name] $op, ($first, $second), (*const $first, *const $second),
            (a: *const $first, b: *const $second) => (a, b), (first_a: *const $first, first_b: *const $second) => (first_a, first_b)
        }
    };
    (
        @kernel [$suffix:literal $kernel:ident $block:literal] [$name:expr] $op:ty, $item:ty, $input:ty,
        ($($parameter:ident: $type:ty),*) => $value:expr, ($($of_first:ident: $type_of_first:ty),*) => $first:expr
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
                $($of_first: $type_of_first,)*
                op: $op,
            ) {
                const WIDTH: usize = $crate::op::width::<$op, $item>(<$input as $crate::input::Input>::BYTES);
                let arguments = $crate::reduce::Arguments { input: $value, chunk, before, len, slots, result, first: $first, op };
                // SAFETY: the host launches it as `reduce` asks.
                unsafe { $crate::reduce::$kernel::<$op, $input, $block, WIDTH>(arguments) }
            }
        };
    };
}

/// The entry point of the kernel of `segments`, of `rows` or of `columns` for an operator of one input, or of two.
#[doc(hidden)]
#[macro_export]
macro_rules! shape_entries {
    (segments $($row:tt)*) => {
        $crate::shape_entries! { @row [segments "_segments_0" Segments reduce_segments WIDTH SLOTS] $($row)* }
    };
    (rows $($row:tt)*) => {
        $crate::shape_entries! { @row [rows "_rows_0" Segments reduce_rows WIDTH] $($row)* }
    };
    (columns $($row:tt)*) => {
        $crate::shape_entries! { @row [columns "_columns_256" Columns reduce_columns LOADS] $($row)* }
    };
    (@row $kernel:tt [$name:expr] $op:ty, $item:ty) => {
        $crate::shape_entries! { @kernel $kernel [$name] $op, $item, *const $item, (input: *const $item) => input }
    };
    (@row $kernel:tt [$name:expr] $op:ty, $first:ty, $second:ty) => {
        $crate::shape_entries! {
            @kernel $kernel [$name] $op, ($first, $second), (*const $first, *const $second),
            (first: *const $first, second: *const $second) => (first, second)
        }
    };
    (
        @kernel [$shape:ident $suffix:literal $type:ident $kernel:ident $($constant:ident)*] [$name:expr] $op:ty, $item:ty, $input:ty,
        ($($parameter:ident: $of:ty),*) => $value:expr
    ) => {
        #[allow(dead_code)]
        const _: () = {
            const WIDTH: usize = $crate::op::width::<$op, $item>(<$input as $crate::input::Input>::BYTES);
            const SLOTS: usize = $crate::segments::slots::<$op, $item>(WIDTH);
            const LOADS: usize = $crate::columns::loads::<$op, $item>();
            #[$crate::cuda_std::kernel(name = concat!($name, $suffix))]
            #[allow(improper_ctypes_definitions)]
            pub unsafe fn entry(
                $($parameter: $of,)*
                shape: $crate::$shape::$type,
                cut: $crate::$shape::Cut,
                results: *mut <$op as $crate::Op<$item>>::Output,
                default: <$op as $crate::Op<$item>>::Output,
                op: $op,
            ) {
                let arguments = $crate::shape::Arguments { input: $value, shape, cut, results, default, op };
                // SAFETY: the host launches it as the kernel asks.
                unsafe { $crate::$shape::$kernel::<$op, $input, $($constant),*>(arguments) }
            }
        };
    };
}

/// The table of a crate's own kernels: a row is `NAME: OPERATOR, ITEM;`, or `NAME: OPERATOR, ITEM, ITEM;` for an operator of two
/// inputs. It makes the entry points, one for each BLOCK, and `KERNELS`, the table to name in each operator
/// (`const KERNELS: Kernels = crate::KERNELS;`). The crate's build script compiles them:
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
            $( $crate::for_each_block! { reduce_entries! { [stringify!($name)] $op, $($item),+ } } )*
            $(
                $crate::shape_entries! { segments [stringify!($name)] $op, $($item),+ }
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
                Entry::new::<$crate::reduce_kernel!(reduce::Kernel, $op, $($item),+)>(stringify!($name)),
                Entry::new::<$crate::reduce_kernel!(reduce::RowKernel, $op, $($item),+)>(concat!(stringify!($name), "_row")),
                Entry::new::<$crate::reduce_kernel!(segments::Kernel, $op, $($item),+)>(concat!(stringify!($name), "_segments")),
                Entry::new::<$crate::reduce_kernel!(rows::Kernel, $op, $($item),+)>(concat!(stringify!($name), "_rows")),
                Entry::new::<$crate::reduce_kernel!(columns::Kernel, $op, $($item),+)>(concat!(stringify!($name), "_columns")),
            )*];
            // SAFETY: the entry points are those above, which the crate's build script has compiled.
            unsafe { $crate::Kernels::new(&[ENTRIES], include!(concat!(env!("OUT_DIR"), "/kernels.rs"))) }
        };
    };
}

/// The type that is a kernel of an operator for one item, or two.
#[doc(hidden)]
#[macro_export]
macro_rules! reduce_kernel {
    ($family:ident::$kernel:ident, $op:ty, $item:ty) => { $crate::$family::$kernel<$op, *const $item> };
    ($family:ident::$kernel:ident, $op:ty, $first:ty, $second:ty) => { $crate::$family::$kernel<$op, (*const $first, *const $second)> };
}
