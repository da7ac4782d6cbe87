//! What comes before what, where there are several devices: by streams, events and what the host waits for. Work has ended
//! when the call that asked for it returns; races across devices are found by what the program has ordered.
//!
//! All threads of the host count as one, because the driver does not see what they tell each other: what any of them has
//! waited for comes before all that is asked for afterwards. That can hide a race, and never invents one.

use super::Answer;
use super::graph::Lane;
use super::state::State;
use crate::fault::Work;
use crate::history::{Clock, Compared, Moment, Touch, compare};
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
    /// The order, and a stream as it is known there; `None` where there is one device.
    fn ordered(&mut self, stream: CUstream) -> Answer<Option<(&mut Order, Queue, bool)>> {
        if self.order.is_none() {
            return Ok(None);
        }
        let queue = (self.stream_context(stream)?, self.lane(stream)?);
        let blocking = self.blocking(stream)?;
        Ok(self.order.as_mut().map(|order| (order, queue, blocking)))
    }

    /// The next piece of work in a stream, which begins now; `None` where there is one device.
    pub fn begin_work(&mut self, stream: CUstream) -> Answer<Option<Moment>> {
        Ok(self.ordered(stream)?.map(|(order, queue, blocking)| order.work(queue, blocking)))
    }

    /// [`begin_work`](Self::begin_work) of what also waits for all work of these contexts, and all of theirs that follows
    /// for it.
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

    /// What is done when a stream has come to its end as it is now.
    pub fn done_in(&mut self, stream: CUstream) -> Answer<Clock> {
        let ordered = self.ordered(stream)?;
        Ok(ordered.map_or_else(Clock::default, |(order, queue, blocking)| order.reach(queue, blocking)))
    }

    /// Makes a stream's next work come after this.
    pub fn stream_waits(&mut self, stream: CUstream, done: &Clock) -> Answer {
        if let Some((order, queue, blocking)) = self.ordered(stream)? {
            order.line(queue, blocking).clock.join(done);
        }
        Ok(())
    }

    /// Makes all that is asked for from now on come after this.
    pub fn host_waits(&mut self, done: &Clock) {
        if let Some(order) = &mut self.order {
            order.host.join(done);
        }
    }

    /// The host waits for a stream.
    pub fn host_waits_for(&mut self, stream: CUstream) -> Answer {
        let done = self.done_in(stream)?;
        self.host_waits(&done);
        Ok(())
    }

    /// The host waits for all streams of a context.
    pub fn host_waits_for_all(&mut self, context: usize) {
        if let Some(order) = &mut self.order {
            let done = order.all(context);
            order.host.join(&done);
        }
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
