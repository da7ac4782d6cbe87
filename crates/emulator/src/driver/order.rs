//! The order of work, by streams, events and what the host waits for.
//!
//! Work always ends before the call that enqueues it returns. To find races between streams, this module
//! keeps the order that the program asked for instead.
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
    /// The number of entries in the clocks.
    count: usize,
    /// Entries of destroyed streams, for new streams. The host has waited for all their work.
    free: Vec<usize>,
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
        let (count, free) = (&mut self.count, &mut self.free);
        self.queues.entry(queue).or_insert_with(|| {
            let number = free.pop().unwrap_or_else(|| {
                *count += 1;
                *count - 1
            });
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

    /// Drops the streams of a destroyed context, whose work the host has waited for.
    pub fn forget(&mut self, context: usize) {
        let gone = self.queues.extract_if(|&(of, _), _| of == context);
        self.free.extend(gone.map(|(_, line)| line.number));
        self.contexts.remove(&context);
    }

    /// Drops a destroyed stream, unless others may still have to wait for its work.
    pub fn end(&mut self, context: usize, lane: Lane) {
        let queue = (context, Some(lane));
        if self.queues.get(&queue).is_some_and(|line| line.clock.is_within(&self.host))
            && let Some(line) = self.queues.remove(&queue)
        {
            self.free.push(line.number);
        }
    }
}

impl State {
    /// Returns the order, with a stream's key and whether it is blocking.
    fn ordered(&mut self, stream: CUstream) -> Answer<(&mut Order, Queue, bool)> {
        let queue = (self.stream_context(stream)?, self.lane(stream)?);
        let blocking = self.blocking(stream)?;
        Ok((&mut self.order, queue, blocking))
    }

    /// Begins the next piece of work in a stream.
    pub fn begin_work(&mut self, stream: CUstream) -> Answer<Moment> {
        let (order, queue, blocking) = self.ordered(stream)?;
        Ok(order.work(queue, blocking))
    }

    /// Begins work that waits for all work of these contexts, whose later work waits for it.
    pub fn begin_between(&mut self, stream: CUstream, contexts: [usize; 3]) -> Answer<Moment> {
        let (order, queue, blocking) = self.ordered(stream)?;
        let before = contexts.map(|context| order.all(context));
        let line = order.line(queue, blocking);
        before.iter().for_each(|clock| line.clock.join(clock));
        let moment = order.work(queue, blocking);
        for context in contexts {
            order.contexts.entry(context).or_default().join(&moment.clock);
        }
        Ok(moment)
    }

    /// Returns the work that is done once all current work of a stream is done.
    pub fn done_in(&mut self, stream: CUstream) -> Answer<Clock> {
        let (order, queue, blocking) = self.ordered(stream)?;
        Ok(order.reach(queue, blocking))
    }

    /// Orders a stream's later work after `done`.
    pub fn stream_waits(&mut self, stream: CUstream, done: &Clock) -> Answer {
        let (order, queue, blocking) = self.ordered(stream)?;
        order.line(queue, blocking).clock.join(done);
        Ok(())
    }

    /// Orders all later work after `done`, because the host waits for it.
    pub fn host_waits(&mut self, done: &Clock) {
        self.order.host.join(done);
    }

    /// Orders all later work after a stream's current work, because the host waits for the stream.
    pub fn host_waits_for(&mut self, stream: CUstream) -> Answer {
        let done = self.done_in(stream)?;
        self.host_waits(&done);
        Ok(())
    }

    /// Orders all later work after a context's current work, because the host waits for the context.
    pub fn host_waits_for_all(&mut self, context: usize) {
        let done = self.order.all(context);
        self.order.host.join(&done);
    }

    /// Compares finished work of a context with earlier work.
    ///
    /// Returns false if there is a race, and stops the context.
    pub fn end_work(
        &mut self,
        context: usize,
        work: Work,
        moment: Moment,
        touches: Vec<Touch>,
    ) -> Answer<bool> {
        let settings = crate::settings();
        if !settings.checks {
            return Ok(true);
        }
        let stream = moment.stream;
        let Compared { clock, seen, race } = compare(&self.memory_of(context)?, work, moment, touches);
        if seen {
            self.host_waits(&clock);
        }
        if let Some(line) = self.order.queues.values_mut().find(|line| line.number == stream) {
            line.clock.join(&clock);
        }
        let race = race.filter(|race| !settings.allows(race));
        let well = race.is_none();
        if let Some(race) = race {
            self.record(context, race);
        }
        Ok(well)
    }
}
