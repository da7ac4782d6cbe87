//! Loops compiled for the processor that runs them.

/// Calls `work`, compiled for AVX-512 or AVX2 and the instructions that count bits if the processor has them.
///
/// Only what is inlined into `work` is compiled so.
#[inline(always)]
pub fn with_simd<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt")]
        fn for_avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        fn for_avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                // SAFETY: the processor has the features that the function needs.
                return unsafe { for_avx512(work) };
            }
            // SAFETY: the processor has the features that the function needs.
            return unsafe { for_avx2(work) };
        }
    }
    work()
}
