//! Results that are on their way.

use crate::Error;
use crate::cuda::Launched;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A result that is on its way, of [`Reduce::launch`](crate::Reduce::launch) or [`Segments::launch`](crate::Segments::launch): to be waited for, asked
/// for, or awaited, under whatever executor. A launch that failed, and an error of the device that shows later, are what it gives then. Dropped, it
/// waits for nothing, and nobody has the result.
///
/// The data are borrowed until it is dropped. (Who forgets it, and writes to the data or frees them, has done so while they are read: nobody has the
/// result of that.)
///
/// ```
/// use gpu_reduce::{Device, Max, Reduce, Sum};
///
/// let device = Device::default_device();
/// let x = device.upload(&[1.5f32, 2.5])?;
/// let stream = device.stream()?;
/// let (sum, largest) = (x.launch::<Sum, 256>(&stream), x.launch::<Max, 256>(&stream));
/// assert_eq!((sum.wait()?, largest.wait()?), (4.0, 2.5));
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[must_use = "it is the result"]
pub struct Pending<'a, V>(State<'a, V>, PhantomData<&'a ()>);

enum State<'a, V> {
    Done(Result<V, Error>),
    Running(Launched, Finish<'a, V>),
    /// The future has given it.
    Given,
}

/// Makes the result of what the devices have left.
type Finish<'a, V> = Box<dyn FnOnce(&Launched) -> Result<V, Error> + Send + 'a>;

impl<'a, V> Pending<'a, V> {
    /// A result that is there.
    pub(crate) fn done(result: Result<V, Error>) -> Self {
        Self(State::Done(result), PhantomData)
    }

    /// What `finish` will make of what the device leaves.
    pub(crate) fn new(
        launched: Launched,
        finish: impl FnOnce(&Launched) -> Result<V, Error> + Send + 'a,
    ) -> Self {
        Self(State::Running(launched, Box::new(finish)), PhantomData)
    }

    /// Waits for the result.
    ///
    /// # Errors
    ///
    /// What the blocking call would have, and [`Error::Launch`] of what failed before it on the device.
    ///
    /// # Panics
    ///
    /// Where it was awaited, and has been given.
    pub fn wait(self) -> Result<V, Error> {
        match self.0 {
            State::Done(result) => result,
            State::Running(launched, finish) => {
                launched.wait()?;
                finish(&launched)
            }
            State::Given => panic!("the result has been given"),
        }
    }

    /// Whether the result, or an error, is there, so that nothing waits for it.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Done(_) | State::Given => true,
            State::Running(launched, _) => launched.is_done().unwrap_or(true),
        }
    }
}

impl<V> From<Error> for Pending<'_, V> {
    fn from(error: Error) -> Self {
        Self::done(Err(error))
    }
}

impl<V> fmt::Debug for Pending<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Pending").field("is_done", &self.is_done()).finish()
    }
}

impl<V> Unpin for Pending<'_, V> {}

impl<V> Future for Pending<'_, V> {
    type Output = Result<V, Error>;

    /// Who polls is woken some 50 µs later, again and again, by a thread of the library's, until the result is there.
    ///
    /// # Panics
    ///
    /// Where it has given the result.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Self::Output> {
        if !self.is_done() {
            wake_later(context.waker().clone());
            return Poll::Pending;
        }
        let state = std::mem::replace(&mut self.0, State::Given);
        Poll::Ready(Pending(state, PhantomData).wait())
    }
}

/// Those who wait for something.
#[derive(Default)]
struct Waiting {
    wakers: Mutex<Vec<Waker>>,
    some: Condvar,
}

/// How long they wait before they look again.
const PERIOD: Duration = Duration::from_micros(20);

/// Wakes somebody after a while.
fn wake_later(waker: Waker) {
    static WAITING: OnceLock<Option<&'static Waiting>> = OnceLock::new();
    let waiting = WAITING.get_or_init(|| {
        let waiting: &'static Waiting = Box::leak(Box::default());
        let thread = std::thread::Builder::new().name("gpu_reduce wakes".into());
        thread.spawn(|| waiting.wake()).ok().map(|_| waiting)
    });
    match waiting {
        Some(waiting) => {
            waiting.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
            waiting.some.notify_one();
        }
        // Without a thread, whoever waits looks all the time.
        None => waker.wake(),
    }
}

impl Waiting {
    fn wake(&self) {
        loop {
            let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            let none = |wakers: &mut Vec<Waker>| wakers.is_empty();
            let mut wakers = self.some.wait_while(wakers, none).unwrap_or_else(PoisonError::into_inner);
            let wakers = std::mem::take(&mut *wakers);
            std::thread::sleep(PERIOD);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
