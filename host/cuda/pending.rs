//! Results that the host takes later: an event says when they are there, and pinned memory holds them.

use super::driver::check_fork;
use super::modules::Compiled;
use super::queue::Queue;
use super::scratch::{Partials, pinned};
use super::stream::GpuStream;
use super::{Gpu, lock};
use crate::Error;
use crate::request::{Request, Shape};
use cust::error::CudaError;
use cust::event::{Event, EventFlags, EventStatus};
use cust::memory::LockedBuffer;
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use std::cell::Cell;
use std::mem::{ManuallyDrop, swap, take};

/// Pinned memory that a launch fills, and an event after it.
pub struct Outcome {
    event: Event,
    words: LockedBuffer<u64>,
    /// The partial results of segments. They are not the stream's, because bad offsets may leave them in a
    /// bad state.
    partials: Vec<Partials>,
    /// Whether the first word says what is wrong with segments.
    is_of_segments: bool,
    /// Whether the work is known to have ended. Asking the driver takes 1.3 µs.
    has_ended: Cell<bool>,
}

impl Outcome {
    /// Asks the driver whether the work has ended.
    fn is_ready(&self) -> bool {
        matches!(self.event.query(), Ok(EventStatus::Ready))
    }

    /// Drops partial results that bad offsets left behind. The work has ended, and the context is entered.
    fn drop_bad_partials(&mut self) {
        if self.is_of_segments && self.words[0] != Cut::NOTHING {
            self.partials.clear();
        }
    }
}

/// Words of an outcome at first.
const WORDS: usize = 16;

/// Work that is enqueued on one or several GPUs, and that the host may wait for.
pub struct Launched {
    first: Part,
    others: Vec<Part>,
}

/// Work that is enqueued on one GPU.
pub struct Part {
    gpu: &'static Gpu,
    /// The kernel that it launched, if any.
    kernel: Option<&'static Compiled>,
    outcome: ManuallyDrop<Outcome>,
}

impl Gpu {
    /// Returns an outcome with at least `words` words of this value: one whose work has ended, or a new one.
    fn outcome(&self, words: usize, value: u64) -> Result<Outcome, Error> {
        let mut outcomes = lock(&self.outcomes);
        let is_large_enough = |outcome: &Outcome| words <= outcome.words.len();
        let ended = outcomes.iter().rposition(|outcome| is_large_enough(outcome) && outcome.has_ended.get());
        // Of the others, the one that was given back first is the most likely to have ended.
        let oldest =
            || outcomes.iter().position(is_large_enough).filter(|&oldest| outcomes[oldest].is_ready());
        if let Some(spare) = ended.or_else(oldest) {
            let mut spare = outcomes.remove(spare);
            spare.drop_bad_partials();
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
    /// Enqueues a request for the host to take later: the words are the accumulator's slot of a whole array;
    /// or the first word says what is wrong with segments, as [`Cut::wrong`] does.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue`], until the work has ended; but the context need not be entered.
    pub unsafe fn launch(&self, request: &Request) -> Result<Launched, Error> {
        let words = match request.shape {
            Shape::Whole { .. } => (request.by.types.words, slot::EMPTY),
            Shape::Segments(_) | Shape::Columns(_) | Shape::Runs(_) => (1, Cut::NOTHING),
        };
        let part = self.launch_with_outcome(words, |gpu, queue, outcome| {
            outcome.is_of_segments = matches!(request.shape, Shape::Segments(_));
            let report = Some(outcome.words.as_mut_ptr());
            if !outcome.is_of_segments {
                // SAFETY: as the caller vouches; the outcome is kept until the work has ended.
                return unsafe { queue.enqueue(gpu, request, report) }.map(Some);
            }
            // The outcome's own partial results, which do not come from memory that the caller lent.
            let source = take(&mut queue.scratch.source);
            swap(&mut queue.scratch.partials, &mut outcome.partials);
            // SAFETY: as above.
            let kernel = unsafe { queue.enqueue(gpu, request, report) };
            swap(&mut queue.scratch.partials, &mut outcome.partials);
            queue.scratch.source = source;
            kernel.map(Some)
        });
        part.map(Launched::from)
    }

    /// Enqueues what `work` enqueues, which gets `words.0` words with the value `words.1` to report in, and
    /// returns the kernel that it launched.
    pub(super) fn launched(
        &self,
        words: (usize, u64),
        work: impl FnOnce(&'static Gpu, &mut Queue, *mut u64) -> Result<Option<&'static Compiled>, Error>,
    ) -> Result<Part, Error> {
        self.launch_with_outcome(words, |gpu, queue, outcome| work(gpu, queue, outcome.words.as_mut_ptr()))
    }

    fn launch_with_outcome(
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
            // Recorded if `work` failed, too, because it may have enqueued something.
            if let Err(error) = outcome.event.record(&queue.stream) {
                // The end of its use is unknown.
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
    /// At least one part.
    pub(super) fn of(mut parts: Vec<Part>) -> Self {
        Self { first: parts.remove(0), others: parts }
    }

    /// Joins the parts of at least one.
    pub fn together(all: Vec<Self>) -> Self {
        Self::of(
            all.into_iter().flat_map(|Self { first, others }| std::iter::once(first).chain(others)).collect(),
        )
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether all parts have ended.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.parts().try_fold(true, |is_done, part| Ok(is_done && part.is_done()?))
    }

    /// Waits until all parts have ended.
    pub fn wait(&self) -> Result<(), Error> {
        self.parts().map(Part::wait).fold(Ok(()), Result::and)
    }

    /// The words of the first part, after it has ended.
    pub fn words(&self) -> &[u64] {
        &self.first.outcome.words
    }

    /// The words of each part, after all have ended.
    pub fn words_of_parts(&self) -> impl Iterator<Item = &[u64]> {
        self.parts().map(|part| &part.outcome.words[..])
    }
}

impl Part {
    fn is_done(&self) -> Result<bool, Error> {
        let _entered = self.gpu.enter()?;
        let status = self.outcome.event.query().map_err(|error| self.failed(error))?;
        self.outcome.has_ended.set(status == EventStatus::Ready);
        Ok(self.outcome.has_ended.get())
    }

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
        // In a child of `fork` the outcome belongs to the parent.
        if check_fork(self.gpu).is_err() {
            return;
        }
        // SAFETY: taken once, here.
        let mut outcome = unsafe { ManuallyDrop::take(&mut self.outcome) };
        if outcome.has_ended.get()
            && let Ok(_entered) = self.gpu.enter()
        {
            outcome.drop_bad_partials();
        }
        // If its work has not ended, the next launch that wants an outcome asks whether it has.
        lock(&self.gpu.outcomes).push(outcome);
    }
}
