//! A progress bar on stderr. It appears only on a terminal, and only if the work takes over a second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const DELAY: Duration = Duration::from_secs(1);

/// A bar over a number of bytes. Dropping it clears it.
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts a bar called `what` over `total` bytes. Nothing is drawn yet.
    pub fn new(what: &'static str, total: usize) -> Progress {
        Progress::styled(
            what,
            Some(total as u64),
            "{msg} {bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left",
        )
    }

    /// As [`new`](Self::new), if the total is unknown.
    #[allow(dead_code, reason = "not all programs use it")]
    pub fn endless(what: &'static str) -> Progress {
        Progress::styled(what, None, "{msg} {binary_bytes}")
    }

    fn styled(what: &'static str, total: Option<u64>, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        Progress(bar.with_style(style).with_message(what))
    }

    /// Sets the number of bytes done.
    pub fn set(&self, done: usize) {
        if self.0.is_hidden() && self.0.elapsed() > DELAY {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.set_position(done as u64);
    }
}
