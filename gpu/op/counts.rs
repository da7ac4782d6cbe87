//! What the operators that count have in common.

/// The operator over elements that counts those for which a predicate holds.
macro_rules! count {
    ($op:ty, $name:literal: |$this:ident, $element:ident| $predicate:expr) => {
        impl<T: Element> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = u64;
            type Output = u64;
            const EXACT: bool = true;
            const LARGE_BLOCK: u32 = 1024;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            fn parameters(&self) -> &[u8] {
                bytemuck::bytes_of(self)
            }

            #[inline(always)]
            fn identity(&self) -> u64 {
                0
            }

            #[inline(always)]
            fn lift(&self, $element: T, _: u64) -> u64 {
                let $this = self;
                let counts: bool = $predicate;
                counts.into()
            }

            #[inline(always)]
            fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u64 {
                let $this = self;
                load.into_iter().fold(0u32, |count, $element| count + u32::from($predicate)).into()
            }

            #[inline(always)]
            fn combine(&self, a: u64, b: u64) -> u64 {
                a + b
            }

            #[inline(always)]
            fn finish(&self, all: u64, _: u64) -> Option<u64> {
                Some(all)
            }
        }
    };
}
