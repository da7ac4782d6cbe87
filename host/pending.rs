//! Results that are not there yet.

use crate::Error;
use crate::cuda::Launched;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A result that a device is still computing.
///
/// [`Reduce::reduce_async`](crate::Reduce::reduce_async) and
/// [`Segments::reduce_async`](crate::Segments::reduce_async) return it. Wait for it, ask whether it is there,
/// or await it under any executor. It also gives the error of a launch that failed, or of the device.
/// Dropping it waits for nothing and discards the result.
///
/// It borrows the data until it is dropped. (If it is forgotten, by [`std::mem::forget`] say, and the data
/// are then written or freed, the reduction reads them meanwhile, but nobody gets its result.)
///
/// ```
/// use gpu_reduce::{Device, Max, Reduce, Sum};
///
/// let device = Device::default_device();
/// let x = device.upload(&[1.5f32, 2.5])?;
/// let stream = device.stream()?;
/// let (sum, largest) = (x.reduce_async::<Sum, 256>(&stream), x.reduce_async::<Max, 256>(&stream));
/// assert_eq!((sum.wait()?, largest.wait()?), (4.0, 2.5));
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[must_use = "the result is discarded otherwise"]
pub struct Pending<'a, V>(State<'a, V>);

enum State<'a, V> {
    Done(Result<V, Error>),
    Running(Box<dyn Work<V> + Send + 'a>),
    /// The future has returned the result.
    Taken,
}

/// Work whose result is of type `V`.
trait Work<V> {
    /// Whether the result, or an error, is there.
    fn is_done(&self) -> bool;

    /// Waits for the result.
    fn finish(self: Box<Self>) -> Result<V, Error>;
}

/// Work on devices, and what makes the result of the words that it leaves.
struct Launch<F>(Launched, F);

impl<V, F: FnOnce(&Launched) -> Result<V, Error>> Work<V> for Launch<F> {
    fn is_done(&self) -> bool {
        self.0.is_done().unwrap_or(true)
    }

    fn finish(self: Box<Self>) -> Result<V, Error> {
        let Self(launched, finish) = *self;
        launched.wait()?;
        finish(&launched)
    }
}

/// Two results that become one.
struct Join<'a, A, B, F>(Pending<'a, A>, Pending<'a, B>, F);

impl<V, A, B, F: FnOnce(A, B) -> V> Work<V> for Join<'_, A, B, F> {
    fn is_done(&self) -> bool {
        self.0.is_done() && self.1.is_done()
    }

    fn finish(self: Box<Self>) -> Result<V, Error> {
        let Self(a, b, join) = *self;
        // Both end before an error is returned.
        let (a, b) = (a.wait(), b.wait());
        Ok(join(a?, b?))
    }
}

impl<'a, V> Pending<'a, V> {
    /// A result that is there.
    pub(crate) fn done(result: Result<V, Error>) -> Self {
        Self(State::Done(result))
    }

    /// The result that `finish` makes of the words that the devices leave.
    pub(crate) fn new(
        launched: Launched,
        finish: impl FnOnce(&Launched) -> Result<V, Error> + Send + 'a,
    ) -> Self {
        Self(State::Running(Box::new(Launch(launched, finish))))
    }

    /// The result that `join` makes of this one and another.
    pub(crate) fn join<B: Send + 'a, W>(
        self,
        other: Pending<'a, B>,
        join: impl FnOnce(V, B) -> W + Send + 'a,
    ) -> Pending<'a, W>
    where
        V: Send + 'a,
    {
        Pending(State::Running(Box::new(Join(self, other, join))))
    }

    /// Waits for the result.
    ///
    /// # Errors
    ///
    /// Those of the blocking call, and [`Error::Launch`] if earlier work failed on the device.
    ///
    /// # Panics
    ///
    /// If it was awaited and has returned the result.
    pub fn wait(self) -> Result<V, Error> {
        match self.0 {
            State::Done(result) => result,
            State::Running(work) => work.finish(),
            State::Taken => panic!("the result has been taken"),
        }
    }

    /// Whether the result, or an error, is there: then [`wait`](Self::wait) returns at once.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            State::Done(_) | State::Taken => true,
            State::Running(work) => work.is_done(),
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

    /// A thread of the library wakes the task every 50 µs or so until the result is there.
    ///
    /// # Panics
    ///
    /// If it has returned the result.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Self::Output> {
        if !self.is_done() {
            wake_later(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Pending(std::mem::replace(&mut self.0, State::Taken)).wait())
    }
}

/// The tasks to wake.
#[derive(Default)]
struct Wakers {
    wakers: Mutex<Vec<Waker>>,
    is_some: Condvar,
}

/// The time until they are woken.
const PERIOD: Duration = Duration::from_micros(20);

/// Wakes a task after a while.
fn wake_later(waker: Waker) {
    static WAKERS: OnceLock<Option<&'static Wakers>> = OnceLock::new();
    let wakers = WAKERS.get_or_init(|| {
        let wakers: &'static Wakers = Box::leak(Box::default());
        let thread = std::thread::Builder::new().name("gpu_reduce wakes".into());
        thread.spawn(|| wakers.wake()).ok().map(|_| wakers)
    });
    match wakers {
        Some(wakers) => {
            wakers.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
            wakers.is_some.notify_one();
        }
        // Without a thread, the task polls all the time.
        None => waker.wake(),
    }
}

impl Wakers {
    fn wake(&self) {
        loop {
            let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            let are_none = |wakers: &mut Vec<Waker>| wakers.is_empty();
            let mut wakers =
                self.is_some.wait_while(wakers, are_none).unwrap_or_else(PoisonError::into_inner);
            let wakers = std::mem::take(&mut *wakers);
            std::thread::sleep(PERIOD);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
