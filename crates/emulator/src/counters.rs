//! Counts of what a launch did.

use std::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of what a launch did.
        ///
        /// The counts of a launch do not depend on the number of CPU threads, unless its blocks wait for each
        /// other: how often they poll depends on the threads.
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
    /// Instructions that warps issued, including those whose guard is false in all lanes.
    warp_instructions,
    /// Active lanes with a true guard, summed over those instructions: at most 32 times
    /// [`warp_instructions`](Self::warp_instructions).
    lane_instructions,
    /// Branches that warps issued.
    branches,
    /// Branches that diverged: lanes of one warp went different ways.
    divergent_branches,
    /// Completed block barriers (`bar`, `barrier`), summed over blocks.
    barriers,
    /// Warp instructions that loaded from shared memory.
    shared_load_requests,
    /// Warp instructions that stored to shared memory.
    shared_store_requests,
    /// Extra passes of shared loads due to bank conflicts.
    shared_load_conflicts,
    /// Extra passes of shared stores due to bank conflicts.
    shared_store_conflicts,
    /// Warp instructions that loaded from global memory.
    global_load_requests,
    /// 32-byte sectors that those loads touched, each counted once per instruction.
    global_load_sectors,
    /// Warp instructions that stored to global memory.
    global_store_requests,
    /// 32-byte sectors that those stores touched, each counted once per instruction.
    global_store_sectors,
    /// Warp instructions that were `atom` or `red` on global memory.
    global_atomic_requests,
    /// Warp instructions that were `atom` or `red` on shared memory.
    shared_atomic_requests,
    /// Active lanes summed over both kinds of atomics.
    atomic_operations,
}
