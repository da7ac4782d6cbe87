//! The table of kernels: every operator on every element type with every BLOCK, each an entry point of its own.

/// The BLOCKs that kernels are compiled for.
pub const BLOCKS: [u32; 6] = [32, 64, 128, 256, 512, 1024];

#[cfg(feature = "production")]
macro_rules! operators {
    ($($op:ident = $name:literal;)*) => {
        $( $crate::for_each_element! { entries! { $op $name } } )*
    };
}

#[cfg(feature = "production")]
macro_rules! entries {
    ({ $op:ident $name:literal } $($type:ident: $($row:ident)*;)*) => {
        $( entries! { @blocks $op $name $type 32 64 128 256 512 1024 } )*
    };
    (@blocks $op:ident $name:literal $type:ident $($block:literal)*) => {$(
        const _: () = {
            #[allow(unused_imports)]
            use crate::{bf16, f16, op, reduce};
            #[cuda_std::kernel(name = concat!($name, "_", stringify!($type), "_", $block))]
            pub unsafe fn entry(
                input: *const $type,
                len: u64,
                chunk: u64,
                slots: *mut u64,
                result: *mut u64,
            ) {
                let arguments = reduce::Arguments { input, len, chunk, slots, result };
                // SAFETY: the host launches it as `reduce` asks.
                unsafe { reduce::reduce::<op::$op, $type, $block>(arguments) }
            }
        };
    )*};
}

#[cfg(feature = "production")]
operators! {
    Sum = "sum";
    Prod = "prod";
    Min = "min";
    Max = "max";
}
