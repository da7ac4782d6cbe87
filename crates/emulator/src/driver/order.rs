//! The order of work on several devices, by streams, events and what the host waits for.
//!
//! Work always ends before the call that enqueues it returns. To find races across devices, this module keeps
//! the order that the program asked for instead.
//!
//! All threads of the host count as one, because the driver does not see how they synchronise: work that any
//! of them has waited for comes before all work enqueued later. That can hide a race, but never invents one.

use super::Answer;
use super::graph::Lane;
use super::state::State;
use crate::fault::Work;
use crate::history::{Clock, Compared, Moment, Touch, compare};
use cust_raw::CUstream;
use std::collections::HashMap;

/// A context and one of its streams; `None` for the legacy stream.
type Queue = (usize, Option<Lane>);

#[derive(Default)]
pub struct Order {
    queues: HashMap<Queue, Line>,
    /// For each context, the work that comes before all its later work.
    contexts: HashMap<usize, Clock>,
    /// The work that the host has waited for.
    host: Clock,
    /// The number of streams seen so far.
    count: usize,
}

/// The state of a stream.
struct Line {
    /// Its entry in the clocks.
    number: usize,
    /// Whether it and the legacy stream wait for each other.
    blocking: bool,
    /// The work that comes before its next work.
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

    /// Returns the work that comes before the next work of a stream, without what the host has waited for.
    fn reach(&mut self, queue: Queue, blocking: bool) -> Clock {
        let mut clock = self.line(queue, blocking).clock.clone();
        let (context, lane) = queue;
        // The legacy stream and the blocking streams of its context wait for each other.
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

    /// Adds a piece of work to a stream.
    fn work(&mut self, queue: Queue, blocking: bool) -> Moment {
        let mut clock = self.reach(queue, blocking);
        clock.join(&self.host);
        let line = self.line(queue, blocking);
        clock.advance(line.number);
        line.clock = clock.clone();
        Moment { stream: line.number, clock }
    }

    /// Returns all work of a context so far.
    fn all(&self, context: usize) -> Clock {
        let mut clock = self.contexts.get(&context).cloned().unwrap_or_default();
        let lines = self.queues.iter().filter(|((of, _), _)| *of == context);
        lines.for_each(|(_, line)| clock.join(&line.clock));
        clock
    }

    /// Drops the streams of a destroyed context.
    pub fn forget(&mut self, context: usize) {
        self.queues.retain(|&(of, _), _| of != context);
        self.contexts.remove(&context);
    }
}

impl State {
    /// Returns the order, with a stream's key and whether it is blocking; `None` if there is one device.
    fn ordered(&mut self, stream: CUstream) -> Answer<Option<(&mut Order, Queue, bool)>> {
        if self.order.is_none() {
            return Ok(None);
        }
        let queue = (self.stream_context(stream)?, self.lane(stream)?);
        let blocking = self.blocking(stream)?;
        Ok(self.order.as_mut().map(|order| (order, queue, blocking)))
    }

    /// Begins the next piece of work in a stream; `None` if there is one device.
    pub fn begin_work(&mut self, stream: CUstream) -> Answer<Option<Moment>> {
        Ok(self.ordered(stream)?.map(|(order, queue, blocking)| order.work(queue, blocking)))
    }

    /// Begins work that waits for all work of these contexts, whose later work waits for it.
    ///
    /// Otherwise as [`begin_work`](Self::begin_work).
    pub fn begin_between(&mut self, stream: CUstream, contexts: [usize; 3]) -> Answer<Option<Moment>> {
        let Some((order, queue, blocking)) = self.ordered(stream)? else { return Ok(None) };
        let before = contexts.map(|context| order.all(context));
        let line = order.line(queue, blocking);
        before.iter().for_each(|clock| line.clock.join(clock));
        let moment = order.work(queue, blocking);
        for context in contexts {
            order.contexts.entry(context).or_default().join(&moment.clock);
        }
        Ok(Some(moment))
    }

    /// Returns the work that is done once all current work of a stream is done.
    pub fn done_in(&mut self, stream: CUstream) -> Answer<Clock> {
        let ordered = self.ordered(stream)?;
        Ok(ordered.map_or_else(Clock::default, |(order, queue, blocking)| order.reach(queue, blocking)))
    }

    /// Orders a stream's later work after `done`.
    pub fn stream_waits(&mut self, stream: CUstream, done: &Clock) -> Answer {
        if let Some((order, queue, blocking)) = self.ordered(stream)? {
            order.line(queue, blocking).clock.join(done);
        }
        Ok(())
    }

    /// Orders all later work after `done`, because the host waits for it.
    pub fn host_waits(&mut self, done: &Clock) {
        if let Some(order) = &mut self.order {
            order.host.join(done);
        }
    }

    /// Orders all later work after a stream's current work, because the host waits for the stream.
    pub fn host_waits_for(&mut self, stream: CUstream) -> Answer {
        let done = self.done_in(stream)?;
        self.host_waits(&done);
        Ok(())
    }

    /// Orders all later work after a context's current work, because the host waits for the context.
    pub fn host_waits_for_all(&mut self, context: usize) {
        if let Some(order) = &mut self.order {
            let done = order.all(context);
            order.host.join(&done);
        }
    }

    /// Compares finished work of a context with the work of other devices.
    ///
    /// Returns false if there is a race, and stops the context.
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
        let Compared { clock, seen, race } = compare(&self.memory_of(context)?, work, moment, touches);
        if seen {
            self.host_waits(&clock);
        }
        let mut lines = self.order.iter_mut().flat_map(|order| order.queues.values_mut());
        if let Some(line) = lines.find(|line| line.number == stream) {
            line.clock.join(&clock);
        }
        let well = race.is_none();
        if let Some(race) = race {
            self.record(context, race);
        }
        Ok(well)
    }
}
