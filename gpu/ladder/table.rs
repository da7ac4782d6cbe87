//! The table of the ladder's kernels, an entry point each: every rung with every operator on every type and
//! BLOCK, the least element with its index on every type and BLOCK, and the merge of every element type.

use super::ArgMin;
#[cfg(not(target_arch = "nvptx64"))]
use super::Rung;
#[cfg(not(target_arch = "nvptx64"))]
use crate::kernels::{Entry, Kernels, Ptx};
use crate::{Op, for_each_element, for_each_rung, op};
#[allow(unused_imports)]
use crate::{bf16, f16, for_each_block, ladder};

/// The operators and types of the ladder: calls `$callback! { { ARGUMENTS } ROW ROW … }`, a row being
/// `OPERATOR NAME TYPE;`.
macro_rules! for_each_case {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            Sum sum i32; Sum sum i64; Sum sum f32; Sum sum f64;
            Prod prod i32; Prod prod i64; Prod prod f32; Prod prod f64;
            Min min i32; Min min i64; Min min f32; Min min f64;
            Max max i32; Max max i64; Max max f32; Max max f64;
        }
    };
}

macro_rules! rungs {
    ({} $($kernel:ident: $name:ident;)*) => {
        #[cfg(target_arch = "nvptx64")]
        const _: () = { $( for_each_case! { rungs! { @cases $kernel $name } } )* };

        #[cfg(not(target_arch = "nvptx64"))]
        const RUNGS: &[&[Entry]] = &[$( for_each_case! { entries! { $kernel $name } } ),*];
    };
    ({ @cases $kernel:ident $name:ident } $($op:ident $op_name:ident $type:ident;)*) => {
        $( for_each_block! { rungs! { @case $kernel $name $op $op_name $type } } )*
    };
    ({ @case $kernel:ident $name:ident $op:ident $op_name:ident $type:ident } $($block:literal)*) => {$(
        const _: () = {
            #[cuda_std::kernel(name = concat!(stringify!($name), "_", stringify!($op_name), "_", stringify!($type), "_", $block))]
            pub unsafe fn entry(input: *const $type, len: u64, output: *mut <op::$op as Op<$type>>::Accumulator) {
                use crate::ladder::{self, Kernel, Pass};
                // SAFETY: the host launches it as `run` asks.
                unsafe { ladder::$kernel::run::<op::$op, $type, $block>(Pass { input, len, output }) }
            }
        };
    )*};
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! entries {
    ({ $kernel:ident $name:ident } $($op:ident $op_name:ident $type:ident;)*) => {
        &[$(
            Entry::new::<Rung<super::$kernel, op::$op, $type, <op::$op as Op<$type>>::Accumulator>>(
                concat!(stringify!($name), "_", stringify!($op_name), "_", stringify!($type)),
            )
        ),*]
    };
}

for_each_rung! { rungs! {} }

macro_rules! argmin {
    ($($type:ident)*) => {
        #[cfg(target_arch = "nvptx64")]
        const _: () = { $( for_each_block! { argmin! { @type $type } } )* };

        #[cfg(not(target_arch = "nvptx64"))]
        const ARGMIN: &[Entry] = &[$(
            Entry::new::<ArgMin<$type>>(concat!("argmin_halving_", stringify!($type)))
        ),*];
    };
    ({ @type $type:ident } $($block:literal)*) => {$(
        const _: () = {
            #[cuda_std::kernel(name = concat!("argmin_halving_", stringify!($type), "_", $block))]
            pub unsafe fn entry(
                input: *const $type,
                indices: *const u64,
                len: u64,
                keys_out: *mut <$type as crate::Element>::Key,
                indices_out: *mut u64,
            ) {
                // SAFETY: the host launches it as `run` asks.
                unsafe { ArgMin { input, indices, len, keys_out, indices_out }.run::<$block>() }
            }
        };
    )*};
}

argmin! { i32 i64 f32 f64 }

macro_rules! merge {
    ({} $($type:ident: $($row:ident)*;)*) => {
        $(const _: () = {
            #[cuda_std::kernel(name = concat!("merge_", stringify!($type), "_32"))]
            pub unsafe fn entry(
                input: *const $type,
                origins: *const u32,
                bounds: *const u64,
                lists: u64,
                width: u64,
                output: *mut $type,
                origins_out: *mut u32,
            ) {
                use ladder::{MERGE_BLOCK, Merge};
                // SAFETY: the host launches it as `run` asks.
                unsafe {
                    Merge { input, origins, bounds, lists, width, output, origins_out }.run::<MERGE_BLOCK>()
                }
            }
        };)*

        #[cfg(not(target_arch = "nvptx64"))]
        const MERGE: &[Entry] = &[$(
            Entry::new::<ladder::Merge<$type>>(concat!("merge_", stringify!($type)))
        ),*];
    };
}

for_each_element! { merge! {} }

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! merge_aliases {
    ({} $($type:ident: $other:ident;)*) => {
        const MERGE_ALIASES: &[Entry] = &[$(
            Entry::new::<ladder::Merge<$type>>(concat!("merge_", stringify!($other)))
        ),*];
    };
}

#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { merge_aliases! {} }

/// The classic kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub const KERNELS: &[Kernels] = {
    const PTX: &[&Ptx] = &[&crate::ptx::ladder::ladder];
    // SAFETY: `ptx/` is compiled from the entry points above.
    unsafe { &[Kernels::new(RUNGS, PTX), Kernels::new(&[ARGMIN, MERGE, MERGE_ALIASES], PTX)] }
};
