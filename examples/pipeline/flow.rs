//! Moves the pieces of a file through the slots.

use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::thread;

use gpu_reduce::Element;

use super::error::Error;
use super::input::{Cut, Input};
use super::slot::Slot;

/// Pieces to read at a time: while the last threads finish one piece, the others start the next.
const READERS: usize = 2;

/// Reads pieces into slots, enqueues their work and waits for it, in the file's order; returns the slots.
///
/// Each slot goes in a circle: a reader fills it, `enqueue` enqueues its work, `finish` waits for it, and a
/// reader gets it again. `finish` starts when half of the slots are enqueued. With four slots, two are read
/// while one is copied and another waits to be copied; with one slot, each step waits for the one before.
pub fn flow<T: Element>(
    input: &Input,
    cut: Cut,
    slots: Vec<Slot<T>>,
    mut enqueue: impl FnMut(&mut Slot<T>) -> Result<(), Error>,
    mut finish: impl FnMut(&mut Slot<T>) -> Result<(), Error>,
) -> Result<Vec<Slot<T>>, Error> {
    let readers = READERS.min(slots.len());
    let most_running = slots.len().div_ceil(2);
    thread::scope(|scope| {
        let start_reader = |_| {
            let (give_empty, empty) = channel::<(Slot<T>, usize)>();
            let (give_full, full) = channel();
            scope.spawn(move || {
                for (mut slot, piece) in empty {
                    let read = read(input, cut, piece, &mut slot).map(|()| slot);
                    // The receiver is gone after an error.
                    if give_full.send(read).is_err() {
                        break;
                    }
                }
            });
            (give_empty, full)
        };
        let (empty, full): (Vec<_>, Vec<_>) = (0..readers).map(start_reader).unzip();
        let mut pieces = 0..cut.pieces();
        let mut done = Vec::new();
        // Readers get pieces in turn, so that they arrive in order.
        let mut give = |slot| match pieces.next() {
            Some(piece) => {
                empty[piece % readers].send((slot, piece)).expect("the reader runs until its channel closes")
            }
            None => done.push(slot),
        };
        slots.into_iter().for_each(&mut give);
        let mut running = VecDeque::new();
        for piece in 0..cut.pieces() {
            let mut slot = full[piece % readers].recv().expect("the reader returns every slot")?;
            enqueue(&mut slot)?;
            running.push_back(slot);
            if running.len() >= most_running
                && let Some(mut slot) = running.pop_front()
            {
                finish(&mut slot)?;
                give(slot);
            }
        }
        for mut slot in running {
            finish(&mut slot)?;
            give(slot);
        }
        Ok(done)
    })
}

/// Reads a piece into a slot.
fn read<T: Element>(input: &Input, cut: Cut, piece: usize, slot: &mut Slot<T>) -> Result<(), Error> {
    input.read(cut.start(piece), slot.fill(cut.len(piece))?)
}
