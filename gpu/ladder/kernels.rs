//! The table of the ladder's kernels: every rung with every operator on every type and BLOCK, the least with its index on
//! every type and BLOCK, and the merge of every element type; each an entry point of its own.

macro_rules! rungs {
    ({} $($kernel:ident: $name:ident;)*) => { $(
        rungs! { @operators $kernel $name }
    )* };
    (@operators $($row:tt)*) => {
        rungs! { @types $($row)* Sum "sum" }
        rungs! { @types $($row)* Prod "prod" }
        rungs! { @types $($row)* Min "min" }
        rungs! { @types $($row)* Max "max" }
    };
    (@types $($row:tt)*) => {
        rungs! { @blocks $($row)* i32 }
        rungs! { @blocks $($row)* i64 }
        rungs! { @blocks $($row)* f32 }
        rungs! { @blocks $($row)* f64 }
    };
    (@blocks $($row:tt)*) => {
        rungs! { @entry $($row)* 32 }
        rungs! { @entry $($row)* 64 }
        rungs! { @entry $($row)* 128 }
        rungs! { @entry $($row)* 256 }
        rungs! { @entry $($row)* 512 }
        rungs! { @entry $($row)* 1024 }
    };
    (@entry $kernel:ident $name:ident $op:ident $op_name:literal $type:ident $block:literal) => {
        const _: () = {
            use crate::{Op, ladder::{self, Kernel, Pass}, op};
            #[cuda_std::kernel(name = concat!(stringify!($name), "_", $op_name, "_", stringify!($type), "_", $block))]
            pub unsafe fn entry(input: *const $type, len: u64, output: *mut <op::$op as Op<$type>>::Accumulator) {
                // SAFETY: the host launches it as `run` asks.
                unsafe { ladder::$kernel::run::<op::$op, $type, $block>(Pass { input, len, output }) }
            }
        };
    };
}

crate::for_each_rung! { rungs! {} }

macro_rules! argmin {
    ($($type:ident: $($block:literal)*;)*) => {$($(
        const _: () = {
            use crate::{Element, ladder::ArgMin};
            #[cuda_std::kernel(name = concat!("argmin_halving_", stringify!($type), "_", $block))]
            pub unsafe fn entry(
                input: *const $type,
                indices: *const u64,
                len: u64,
                keys_out: *mut <$type as Element>::Key,
                indices_out: *mut u64,
            ) {
                // SAFETY: the host launches it as `run` asks.
                unsafe { ArgMin { input, indices, len, keys_out, indices_out }.run::<$block>() }
            }
        };
    )*)*};
}

argmin! {
    i32: 32 64 128 256 512 1024;
    i64: 32 64 128 256 512 1024;
    f32: 32 64 128 256 512 1024;
    f64: 32 64 128 256 512 1024;
}

macro_rules! merge {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        const _: () = {
            #[allow(unused_imports)]
            use crate::{bf16, f16, ladder::{MERGE_BLOCK, Merge}};
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
                // SAFETY: the host launches it as `run` asks.
                unsafe {
                    Merge { input, origins, bounds, lists, width, output, origins_out }.run::<MERGE_BLOCK>()
                }
            }
        };
    )*};
}

crate::for_each_element! { merge! {} }
