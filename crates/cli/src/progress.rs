//! A progress bar on stderr that appears only where the work takes over a second, and only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const DELAY: Duration = Duration::from_secs(1);

/// A bar over a number of bytes; it is cleared when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts the work called `what` on `total` bytes. Nothing is drawn yet.
    pub fn new(what: &'static str, total: usize) -> Progress {
        Progress::styled(
            what,
            Some(total as u64),
            "{msg} {bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left",
        )
    }

    /// As [`new`](Self::new), on bytes of which nobody knows how many there will be.
    #[allow(dead_code, reason = "each program uses its part")]
    pub fn endless(what: &'static str) -> Progress {
        Progress::styled(what, None, "{msg} {binary_bytes}")
    }

    fn styled(what: &'static str, total: Option<u64>, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("a constant template that is valid");
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        Progress(bar.with_style(style).with_message(what))
    }

    /// Says that `done` bytes of the total are done.
    pub fn set(&self, done: usize) {
        if self.0.is_hidden() && self.0.elapsed() > DELAY {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.set_position(done as u64);
    }
}
