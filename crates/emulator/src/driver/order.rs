//! What comes before what, where there are several devices: by streams, events and what the host waits for. Work has ended
//! when the call that asked for it returns; races across devices are found by what the program has ordered.
//!
//! All threads of the host count as one, because the driver does not see what they tell each other: what any of them has
//! waited for comes before all that is asked for afterwards. That can hide a race, and never invents one.

use super::Answer;
use super::graph::Lane;
use super::state::State;
use crate::fault::Work;
use crate::history::{Clock, Moment, Touch, compare};
use cust_raw::CUstream;
use std::collections::HashMap;

/// A context, and a stream of it; `None` for the legacy stream.
type Queue = (usize, Option<Lane>);

#[derive(Default)]
pub struct Order {
    queues: HashMap<Queue, Line>,
    /// What comes before all work of a context that is yet to come.
    contexts: HashMap<usize, Clock>,
    /// What the host has waited for.
    host: Clock,
    /// Streams so far.
    count: usize,
}

/// A stream's part in the order.
struct Line {
    number: usize,
    /// Whether it and the legacy stream wait for each other.
    blocking: bool,
    /// What comes before its next work.
    clock: Clock,
}

impl Order {
    fn line(&mut self, queue: Queue, blocking: bool) -> &mut Line {
        let count = &mut self.count;
        self.queues.entry(queue).or_insert_with(|| {
            let number = *count;
            *count += 1;
            Line { number, blocking, clock: Clock::default() }
        })
    }

    /// What comes before the next work of a stream.
    fn reach(&mut self, queue: Queue, blocking: bool) -> Clock {
        let mut clock = self.line(queue, blocking).clock.clone();
        let (context, lane) = queue;
        // The legacy stream, and those that it and they wait for.
        for (&(of, other), line) in &self.queues {
            if of == context && blocking && line.blocking && (lane.is_none() || other.is_none()) {
                clock.join(&line.clock);
            }
        }
        if let Some(before) = self.contexts.get(&context) {
            clock.join(before);
        }
        clock
    }

    /// A piece of work in a stream.
    fn work(&mut self, queue: Queue, blocking: bool) -> Moment {
        let mut clock = self.reach(queue, blocking);
        clock.join(&self.host);
        let line = self.line(queue, blocking);
        clock.advance(line.number);
        line.clock = clock.clone();
        Moment { stream: line.number, clock }
    }

    /// All work of a context so far.
    fn all(&self, context: usize) -> Clock {
        let mut clock = self.contexts.get(&context).cloned().unwrap_or_default();
        let lines = self.queues.iter().filter(|((of, _), _)| *of == context);
        lines.for_each(|(_, line)| clock.join(&line.clock));
        clock
    }

    /// The context is gone.
    pub fn forget(&mut self, context: usize) {
        self.queues.retain(|&(of, _), _| of != context);
        self.contexts.remove(&context);
    }
}

impl State {
    fn queue(&mut self, stream: CUstream) -> Answer<(Queue, bool)> {
        let queue = (self.stream_context(stream)?, self.lane(stream)?);
        Ok((queue, self.blocking(stream)?))
    }

    /// The next piece of work in a stream, which begins now; `None` where there is one device.
    pub fn begin_work(&mut self, stream: CUstream) -> Answer<Option<Moment>> {
        if self.order.is_none() {
            return Ok(None);
        }
        let (queue, blocking) = self.queue(stream)?;
        Ok(self.order.as_mut().map(|order| order.work(queue, blocking)))
    }

    /// [`begin_work`](Self::begin_work) of what also waits for all work of these contexts, and all of theirs that follows
    /// for it.
    pub fn begin_between(&mut self, stream: CUstream, contexts: [usize; 3]) -> Answer<Option<Moment>> {
        let (queue, blocking) = self.queue(stream)?;
        let Some(order) = &mut self.order else { return Ok(None) };
        let before = contexts.map(|context| order.all(context));
        let line = order.line(queue, blocking);
        before.iter().for_each(|clock| line.clock.join(clock));
        let moment = order.work(queue, blocking);
        for context in contexts {
            order.contexts.entry(context).or_default().join(&moment.clock);
        }
        Ok(Some(moment))
    }

    /// What is done when a stream has come to its end as it is now.
    pub fn done_in(&mut self, stream: CUstream) -> Answer<Clock> {
        if self.order.is_none() {
            return Ok(Clock::default());
        }
        let (queue, blocking) = self.queue(stream)?;
        Ok(self.order.as_mut().map_or_else(Clock::default, |order| order.reach(queue, blocking)))
    }

    /// Makes a stream's next work come after this.
    pub fn stream_waits(&mut self, stream: CUstream, done: &Clock) -> Answer {
        if self.order.is_none() {
            return Ok(());
        }
        let (queue, blocking) = self.queue(stream)?;
        self.order.iter_mut().for_each(|order| order.line(queue, blocking).clock.join(done));
        Ok(())
    }

    /// Makes all that is asked for from now on come after this.
    pub fn host_waits(&mut self, done: &Clock) {
        self.order.iter_mut().for_each(|order| order.host.join(done));
    }

    /// The host waits for a stream.
    pub fn host_waits_for(&mut self, stream: CUstream) -> Answer {
        let done = self.done_in(stream)?;
        self.host_waits(&done);
        Ok(())
    }

    /// The host waits for all streams of a context.
    pub fn host_waits_for_all(&mut self, context: usize) {
        let done = self.order.as_ref().map(|order| order.all(context));
        done.iter().for_each(|done| self.host_waits(done));
    }

    /// Looks for races of work that has run in a stream of the context with what ran on other devices; false where there
    /// is one, which stops the context.
    pub fn end_work(
        &mut self,
        context: usize,
        work: Work,
        moment: Moment,
        touches: Vec<Touch>,
    ) -> Answer<bool> {
        if !crate::settings().checks {
            return Ok(true);
        }
        let stream = moment.stream;
        let compared = compare(&self.memory_of(context)?, work, moment, touches);
        if compared.seen {
            self.host_waits(&compared.clock);
        }
        if let Some(order) = &mut self.order {
            let line = order.queues.values_mut().find(|line| line.number == stream);
            line.into_iter().for_each(|line| line.clock.join(&compared.clock));
        }
        let well = compared.race.is_none();
        compared.race.into_iter().for_each(|race| self.record(context, race));
        Ok(well)
    }
}
