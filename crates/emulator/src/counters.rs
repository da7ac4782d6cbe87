//! What a launch did, counted.

use std::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a launch did. The same launch counts the same, however many CPU threads ran it, unless its blocks wait for
        /// each other: how often they look then depends on the threads.
        ///
        /// Instructions are PTX instructions; a GPU runs the machine instructions that they compile to.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Blocks run.
    blocks,
    /// Warps run.
    warps,
    /// Instructions that warps issued, those that no lane's guard let through included.
    warp_instructions,
    /// Lanes active in those instructions, and let through by their guards, summed: at most 32 times [`warp_instructions`](Self::warp_instructions).
    lane_instructions,
    /// Branches that warps issued.
    branches,
    /// Branches that sent lanes of one warp different ways.
    divergent_branches,
    /// Block barriers (`bar`, `barrier`) completed, summed over blocks.
    barriers,
    /// Warp instructions that loaded from shared memory.
    shared_load_requests,
    /// Warp instructions that stored to shared memory.
    shared_store_requests,
    /// Extra passes that bank conflicts cost shared loads.
    shared_load_conflicts,
    /// Extra passes that bank conflicts cost shared stores.
    shared_store_conflicts,
    /// Warp instructions that loaded from global memory.
    global_load_requests,
    /// 32-byte sectors that those loads touched, each counted once an instruction.
    global_load_sectors,
    /// Warp instructions that stored to global memory.
    global_store_requests,
    /// 32-byte sectors that those stores touched, each counted once an instruction.
    global_store_sectors,
    /// Warp instructions `atom` and `red` on global memory.
    global_atomic_requests,
    /// Warp instructions `atom` and `red` on shared memory.
    shared_atomic_requests,
    /// Lanes active in the atomics of both kinds.
    atomic_operations,
}
