//! What is enqueued for the host to have later: an event says when, and a word of pinned memory or some more hold what comes of it.

use super::driver::check_fork;
use super::modules::Compiled;
use super::stream::{GpuStream, Partials, Queue, pinned};
use super::{Gpu, lock};
use crate::Error;
use crate::call::{Call, ColumnsCall, SegmentsCall};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};
use cust::memory::LockedBuffer;
use gpu_reduce_kernels::reduce::Target;
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use std::cell::Cell;
use std::mem::{ManuallyDrop, swap, take};

/// What a launch leaves for the host.
pub struct Outcome {
    /// When it is there.
    event: Event,
    /// What a kernel fills.
    words: LockedBuffer<u64>,
    /// Of segments, their partial results: not their stream's, where what bad offsets leave behind would be in the way of others.
    partials: Vec<Partials>,
    /// Whether the first word says what is wrong with segments.
    is_of_segments: bool,
    /// Whether its work is known to have ended: to ask takes the driver 1.3 µs.
    has_ended: Cell<bool>,
}

impl Outcome {
    /// Whether its work has ended, as the driver says.
    fn asks(&self) -> bool {
        matches!(self.event.query(), Ok(EventStatus::Ready))
    }

    /// Once its work has ended, frees what that has left as it must not be. The context is entered.
    fn leave_nothing_wrong(&mut self) {
        if self.is_of_segments && self.words[0] != Cut::NOTHING {
            self.partials.clear();
        }
    }
}

/// Words of an outcome from the start.
const WORDS: usize = 16;

/// Work that is enqueued, and that the host may wait for: on a GPU, or a part on each of several.
pub struct Launched {
    first: Part,
    others: Vec<Part>,
}

/// Work on a GPU.
pub struct Part {
    gpu: &'static Gpu,
    /// What it launched, if it did.
    kernel: Option<&'static Compiled>,
    outcome: ManuallyDrop<Outcome>,
}

impl Gpu {
    /// An outcome with so many words, each of this value: one whose work has ended, or a new one.
    fn outcome(&self, words: usize, value: u64) -> Result<Outcome, Error> {
        let mut outcomes = lock(&self.outcomes);
        let does = |outcome: &Outcome| words <= outcome.words.len();
        let ended = outcomes.iter().rposition(|outcome| does(outcome) && outcome.has_ended.get());
        // Or that which was left first.
        let left = || outcomes.iter().position(does).filter(|&left| outcomes[left].asks());
        if let Some(spare) = ended.or_else(left) {
            let mut spare = outcomes.remove(spare);
            spare.leave_nothing_wrong();
            spare.words.as_mut_slice().fill(value);
            return Ok(Outcome { is_of_segments: false, has_ended: Cell::new(false), ..spare });
        }
        drop(outcomes);
        let event = Event::new(EventFlags::DISABLE_TIMING);
        let event = event.map_err(|error| self.failed("creating an event", error))?;
        let words = pinned(self, words.max(WORDS), value)?;
        Ok(Outcome { event, words, partials: Vec::new(), is_of_segments: false, has_ended: Cell::new(false) })
    }
}

impl GpuStream {
    /// Enqueues a reduction.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue`](super::stream::Queue::enqueue), but for the context, until what is returned has been waited for.
    pub unsafe fn launch(&self, call: &Call) -> Result<Launched, Error> {
        // SAFETY: as the caller vouches.
        let part = self.launched((call.of.words, slot::EMPTY), |gpu, queue, words| unsafe {
            queue.enqueue(gpu, call, Target::host(words.cast())).map(Some)
        });
        part.map(Launched::from)
    }

    /// Enqueues the reduction of each of some segments; the first word is what is wrong.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue_segments`](super::stream::Queue::enqueue_segments), but for the context, until what is returned has been waited for.
    pub unsafe fn launch_segments(&self, call: &SegmentsCall) -> Result<Launched, Error> {
        let part = self.launched_with((1, Cut::NOTHING), |gpu, queue, outcome| {
            outcome.is_of_segments = true;
            // What an outcome keeps is not the caller's.
            let source = take(&mut queue.scratch.source);
            swap(&mut queue.scratch.partials, &mut outcome.partials);
            // SAFETY: as the caller vouches.
            let kernel = unsafe { queue.enqueue_segments(gpu, call, Some(outcome.words.as_mut_ptr())) };
            swap(&mut queue.scratch.partials, &mut outcome.partials);
            queue.scratch.source = source;
            kernel.map(Some)
        });
        part.map(Launched::from)
    }

    /// Enqueues the reduction of each column; nothing can be wrong with them.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue_columns`](super::stream::Queue::enqueue_columns), but for the context, until what is returned has been waited for.
    pub unsafe fn launch_columns(&self, call: &ColumnsCall) -> Result<Launched, Error> {
        // SAFETY: as the caller vouches.
        let launch = |gpu, queue: &mut Queue, _| unsafe { queue.enqueue_columns(gpu, call).map(Some) };
        self.launched((1, Cut::NOTHING), launch).map(Launched::from)
    }

    /// Enqueues what `work` does, which has so many words of this value for what comes of it, and says what it has launched.
    pub(super) fn launched(
        &self,
        words: (usize, u64),
        work: impl FnOnce(&'static Gpu, &mut Queue, *mut u64) -> Result<Option<&'static Compiled>, Error>,
    ) -> Result<Part, Error> {
        self.launched_with(words, |gpu, queue, outcome| work(gpu, queue, outcome.words.as_mut_ptr()))
    }

    fn launched_with(
        &self,
        (words, value): (usize, u64),
        work: impl FnOnce(&'static Gpu, &mut Queue, &mut Outcome) -> Result<Option<&'static Compiled>, Error>,
    ) -> Result<Part, Error> {
        self.enter(|gpu, queue| {
            if queue.is_capturing {
                return Err(Error::Capture);
            }
            let mut outcome = gpu.outcome(words, value)?;
            let kernel = work(gpu, queue, &mut outcome);
            // Also where it failed, because a part of it may be enqueued.
            if let Err(error) = outcome.event.record(&queue.stream) {
                // Nobody knows when nothing uses it any more.
                std::mem::forget(outcome);
                return Err(gpu.failed("recording an event", error));
            }
            match kernel {
                Ok(kernel) => Ok(Part { gpu, kernel, outcome: ManuallyDrop::new(outcome) }),
                Err(error) => {
                    lock(&gpu.outcomes).push(outcome);
                    Err(error)
                }
            }
        })
    }
}

impl From<Part> for Launched {
    fn from(first: Part) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl Launched {
    /// Some parts, at least one.
    pub(super) fn of(mut parts: Vec<Part>) -> Self {
        Self { first: parts.remove(0), others: parts }
    }

    /// Several, at least one, as one.
    pub fn together(all: Vec<Self>) -> Self {
        Self::of(
            all.into_iter().flat_map(|Self { first, others }| std::iter::once(first).chain(others)).collect(),
        )
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.parts().try_fold(true, |is_done, part| Ok(is_done && part.is_done()?))
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> Result<(), Error> {
        self.parts().map(Part::wait).fold(Ok(()), Result::and)
    }

    /// What has come of it, after it has ended.
    pub fn words(&self) -> &[u64] {
        &self.first.outcome.words
    }

    /// What has come of each part.
    pub fn words_of_parts(&self) -> impl Iterator<Item = &[u64]> {
        self.parts().map(|part| &part.outcome.words[..])
    }
}

impl Part {
    /// Whether it has ended.
    fn is_done(&self) -> Result<bool, Error> {
        let _entered = self.gpu.enter()?;
        let status = self.outcome.event.query().map_err(|error| self.failed(error))?;
        self.outcome.has_ended.set(status == EventStatus::Ready);
        Ok(self.outcome.has_ended.get())
    }

    /// Waits until it has ended.
    fn wait(&self) -> Result<(), Error> {
        let _entered = self.gpu.enter()?;
        self.outcome.event.synchronize().map_err(|error| self.failed(error))?;
        self.outcome.has_ended.set(true);
        Ok(())
    }

    fn failed(&self, error: CudaError) -> Error {
        match self.kernel {
            Some(kernel) => self.gpu.launch_failed(kernel.name(), error),
            None => self.gpu.failed("copying from the device", error),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A child of the process that launched has nothing of it: the outcome is left to that.
        if check_fork(self.gpu).is_err() {
            return;
        }
        // SAFETY: taken once, here.
        let mut outcome = unsafe { ManuallyDrop::take(&mut self.outcome) };
        if outcome.has_ended.get()
            && let Ok(_entered) = self.gpu.enter()
        {
            outcome.leave_nothing_wrong();
        }
        // Otherwise who takes it next asks whether its work has ended.
        lock(&self.gpu.outcomes).push(outcome);
    }
}
