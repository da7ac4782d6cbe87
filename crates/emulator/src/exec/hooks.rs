//! What the interpreter tells of the instructions that it runs.
//!
//! The interpreter runs instructions, and checks what it needs to run them: bounds, alignment, the lanes of
//! barriers and collectives. The counters ([`counting`](super::counting)) and all other checks, each a
//! module of [`checks`](super::checks), implement [`Hooks`]. A new check is such a module, and a place in
//! [`Checks`].

use crate::{
    counters::Counters,
    fault::Fault,
    history::Touch,
    program::{
        bulk::Group,
        code::{Collective, Load, Order, Scope},
    },
};

use super::{
    access::{Request, Values},
    bulk::{Place, Transfer},
    checks::{Checks, races::Log},
    counting::Counting,
    grid::Grid,
    lanes::LANES,
    matrix,
    reports::Reports,
    site::Site,
    warp::Warp,
};

/// The hooks of all launches: the counters, and the checks if they are on.
pub type Installed<'g> = (Counting, Option<Checks<'g>>);

/// What hooks say of a block that has ended.
#[derive(Default)]
pub struct Done<'g> {
    pub counters: Counters,
    /// The accesses and events for the search for races.
    pub log: Option<Log<'g>>,
}

/// What the blocks of a launch leave to the search at its end.
pub struct Left<'a, 'g> {
    /// The logs of its blocks.
    pub logs: Vec<Log<'g>>,
    pub reports: &'a mut Reports,
    /// Takes the memory that the launch accessed, if that is wanted.
    pub touches: Option<&'a mut Vec<Touch>>,
}

/// What orders the accesses of threads, or makes accesses apart from them.
pub enum Event<'a> {
    /// Lanes of the warp come to a block barrier.
    Arrive {
        barrier: usize,
    },
    /// The warp passes a block barrier that is complete.
    Pass {
        barrier: usize,
    },
    /// These lanes pass a barrier of their warp.
    WarpBarrier {
        lanes: u32,
        /// Whether they are all lanes that have not exited.
        whole: bool,
    },
    Fence(Scope),
    Exit {
        lanes: u32,
        at: u32,
    },
    /// `cp.async`, after its accesses: each lane has copied `bytes` to its address in shared memory.
    Copy {
        lanes: u32,
        to: &'a [u64; LANES],
        bytes: u32,
        at: u32,
    },
    /// `cp.async.commit_group`.
    Commit {
        lanes: u32,
    },
    /// `cp.async.wait_group` for all groups but the last, or `cp.async.wait_all`.
    Wait {
        groups: Option<u32>,
        lanes: u32,
    },
    Bulk(Bulk<'a>),
    Mbarrier(Mbarrier<'a>),
}

/// An event of bulk copies.
pub enum Bulk<'a> {
    Begin(&'a Transfer),
    /// A piece's bytes move next. Its two accesses have been told of; nobody tells what follows them.
    Move(&'a Transfer, Place),
    /// A copy to global memory has moved all its bytes.
    End(&'a Transfer),
    Group {
        group: Group,
        lanes: u32,
        at: u32,
    },
}

/// An event at mbarriers in shared memory.
pub enum Mbarrier<'a> {
    /// `mbarrier.init`, before its stores.
    Init {
        addresses: &'a [u64; LANES],
        lanes: u32,
        at: u32,
    },
    /// `mbarrier.init`, after its stores.
    Begin {
        addresses: &'a [u64; LANES],
        lanes: u32,
    },
    /// A lane operates on the mbarrier, whose word is valid.
    Use {
        lane: usize,
        address: u64,
        at: u32,
    },
    /// `mbarrier.inval`.
    Invalidate {
        lane: usize,
        address: u64,
        at: u32,
    },
    Arrive {
        lane: usize,
        address: u64,
        order: Order,
    },
    /// The phase waits for the copies (`cp.async`) that a lane began.
    Attach {
        lane: usize,
        address: u64,
    },
    /// The phase waits for a bulk copy to shared memory, which has moved its bytes.
    Land {
        address: u64,
        transfer: &'a Transfer,
    },
    /// The phase is complete.
    Turn {
        address: u64,
    },
    /// A lane has seen that a phase is complete.
    Seen {
        lane: usize,
        address: u64,
        order: Order,
    },
}

/// Defines [`Hooks`], and implements it for pairs of hooks, and for hooks that may be absent.
macro_rules! hooks {
    (
        told { $($(#[$tell_doc:meta])* fn $tell:ident($($told:ident: $told_type:ty),*);)* }
        asked { $($(#[$ask_doc:meta])* fn $ask:ident($($asked:ident: $asked_type:ty),*);)* }
    ) => {
        /// A module that follows the instructions of a block. Each method is an event; by default nothing
        /// happens. An error ends the launch.
        pub trait Hooks<'g>: Sized {
            fn new(grid: &'g Grid<'g>) -> Self;

            /// Whether [`instruction`](Self::instruction) must be called. Once it must, it must until the
            /// block ends.
            #[inline(always)]
            fn follows(&self) -> bool {
                false
            }

            /// All blocks of a launch have ended, without a fault.
            fn end_launch(_grid: &'g Grid<'g>, _left: &mut Left<'_, 'g>) -> Result<(), Box<Fault>> {
                Ok(())
            }

            $($(#[$tell_doc])*
            #[inline(always)]
            fn $tell(&mut self, $($told: $told_type),*) {
                $(_ = $told;)*
            })*

            $($(#[$ask_doc])*
            #[inline(always)]
            fn $ask(&mut self, $($asked: $asked_type),*) -> Result<(), Box<Fault>> {
                $(_ = $asked;)*
                Ok(())
            })*
        }

        impl<'g, A: Hooks<'g>, B: Hooks<'g>> Hooks<'g> for (A, B) {
            fn new(grid: &'g Grid<'g>) -> Self {
                (A::new(grid), B::new(grid))
            }

            #[inline(always)]
            fn follows(&self) -> bool {
                self.0.follows() || self.1.follows()
            }

            fn end_launch(grid: &'g Grid<'g>, left: &mut Left<'_, 'g>) -> Result<(), Box<Fault>> {
                A::end_launch(grid, left)?;
                B::end_launch(grid, left)
            }

            $(#[inline(always)]
            fn $tell(&mut self, $($told: $told_type),*) {
                self.0.$tell($($told),*);
                self.1.$tell($($told),*);
            })*

            $(#[inline(always)]
            fn $ask(&mut self, $($asked: $asked_type),*) -> Result<(), Box<Fault>> {
                self.0.$ask($($asked),*)?;
                self.1.$ask($($asked),*)
            })*
        }

        impl<'g, H: Hooks<'g>> Hooks<'g> for Option<H> {
            fn new(grid: &'g Grid<'g>) -> Self {
                grid.settings.checks.then(|| H::new(grid))
            }

            #[inline(always)]
            fn follows(&self) -> bool {
                self.as_ref().is_some_and(H::follows)
            }

            fn end_launch(grid: &'g Grid<'g>, left: &mut Left<'_, 'g>) -> Result<(), Box<Fault>> {
                if grid.settings.checks { H::end_launch(grid, left) } else { Ok(()) }
            }

            $(#[inline(always)]
            fn $tell(&mut self, $($told: $told_type),*) {
                if let Some(hooks) = self {
                    hooks.$tell($($told),*);
                }
            })*

            $(#[inline(always)]
            fn $ask(&mut self, $($asked: $asked_type),*) -> Result<(), Box<Fault>> {
                match self {
                    Some(hooks) => hooks.$ask($($asked),*),
                    None => Ok(()),
                }
            })*
        }
    };
}

hooks! {
    // Events that are never a fault.
    told {
        /// A block starts.
        fn begin_block(site: &Site<'g>);
        /// A block has ended, without a fault.
        fn end_block(done: &mut Done<'g>);
        /// A path of a warp begins to run.
        fn resume(site: &Site<'g>, warp: &Warp);
        /// A path has issued instructions, and these active lanes in sum.
        fn issued(instructions: u64, lanes: u64);
        /// A warp branches.
        fn branched(diverges: bool);
        /// All threads have come to a block barrier, and its warps have passed it.
        fn complete(barrier: usize);
        /// An instruction is about to access memory: all its lanes, by the addresses that it names.
        fn begin(request: &Request);
        /// Comes before an access: what it releases needs its place in the order of all events before other
        /// threads can see the access.
        fn release(site: &Site<'g>, request: &Request, scope: Scope);
        /// Comes after an access: what it acquires needs its place after what it saw.
        fn acquire(site: &Site<'g>, request: &Request, scope: Scope);
        /// An access to one memory has been made.
        fn after(site: &mut Site<'g>, warp: &Warp, request: &Request);
        /// A load has set its registers.
        fn loaded(site: &Site<'g>, warp: &Warp, load: &Load, at: u32);
        /// A store has been made.
        fn stored(warp: &Warp);
    }
    // Events that can be one.
    asked {
        /// An instruction is about to run: the lanes of its path, and those that its guard selects.
        fn instruction(site: &mut Site<'g>, warp: &Warp, lanes: [u32; 2], at: u32);
        /// An access to one memory is about to be made. It is aligned and within bounds. `values` are those
        /// of a store.
        fn before(site: &mut Site<'g>, warp: &Warp, request: &Request, values: &Values);
        /// Something happens that orders accesses.
        fn order(site: &mut Site<'g>, warp: &Warp, event: &Event);
        /// Lanes have shuffled. Those in `outside` got the value of a lane that does not take part.
        fn shuffled(site: &mut Site<'g>, warp: &Warp, collective: &Collective, outside: u32, at: u32);
        /// A matrix instruction has got this far.
        fn matrix(site: &mut Site<'g>, warp: &Warp, step: &matrix::Step, at: u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The barriers that a block has completed. It follows the block from the first one on.
    #[derive(Default)]
    struct Barriers(Vec<usize>);

    impl<'g> Hooks<'g> for Barriers {
        fn new(_grid: &'g Grid<'g>) -> Self {
            Barriers::default()
        }

        fn follows(&self) -> bool {
            !self.0.is_empty()
        }

        fn complete(&mut self, barrier: usize) {
            self.0.push(barrier);
        }
    }

    #[test]
    fn an_event_reaches_all_hooks_that_are_present() {
        let mut hooks = (Barriers::default(), (None::<Barriers>, Some(Barriers::default())));
        hooks.branched(true);
        assert!(!hooks.follows());
        hooks.complete(3);
        hooks.complete(1);
        assert_eq!((hooks.0.0, hooks.1.1.map(|barriers| barriers.0)), (vec![3, 1], Some(vec![3, 1])));

        let mut last = (Barriers::default(), Some(Barriers(vec![2])));
        assert!(last.follows());
        last.1 = None;
        assert!(!last.follows());
    }
}
