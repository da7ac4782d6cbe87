//! The driver's state: contexts, the objects that belong to them, and faults.

use super::context::Context;
use super::device::MOST;
use super::function::Function;
use super::graph::{Capture, Executable, Graph};
use super::memory::Allocation;
use super::module::Module;
use super::order::Order;
use super::pool::Pool;
use super::stream::{Event, Stream};
use super::{Answer, MEMORY, error};
use crate::fault::Fault;
use cust_raw::CUresult;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Whether this thread is running a stream's host function, which must not call the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
pub struct State {
    pub initialised: bool,
    /// The last handle given out.
    last: usize,
    /// The devices' primary contexts, by device number.
    pub primaries: Vec<Primary>,
    /// Whether devices can access each other's memory.
    pub peer_access: bool,
    /// The order of work.
    pub order: Order,
    /// The live contexts, by handle.
    pub contexts: HashMap<usize, Context>,
    modules: Table<Arc<Module>>,
    functions: Table<Function>,
    streams: Table<Stream>,
    events: Table<Event>,
    graphs: Table<Graph>,
    executables: Table<Executable>,
    /// The captures that have not ended.
    pub captures: Vec<Capture>,
    /// Allocations by the address of their first byte.
    pub allocations: HashMap<u64, Allocation>,
    /// Memory pools by handle.
    pub pools: HashMap<usize, Pool>,
    faults: Vec<Fault>,
    notes: Vec<Fault>,
}

/// A device's primary context, which is live while it is retained.
#[derive(Default)]
pub struct Primary {
    /// Its handle, which never changes.
    pub handle: usize,
    pub retained: u32,
    pub flags: u32,
    /// The pool that the device has from the start.
    pub default_pool: usize,
    /// The pool that streams allocate from, unless a call names another.
    pub pool: usize,
}

/// An object and the context that it belongs to.
pub struct Owned<T> {
    pub context: usize,
    pub object: T,
}

type Table<T> = HashMap<usize, Owned<T>>;

/// A type of objects behind handles.
pub trait Object: Sized {
    fn table(state: &mut State) -> &mut Table<Self>;
}

macro_rules! objects {
    ($($table:ident: $type:ty,)*) => {
        $(impl Object for $type {
            fn table(state: &mut State) -> &mut Table<Self> {
                &mut state.$table
            }
        })*
    };
}

objects! {
    modules: Arc<Module>,
    functions: Function,
    streams: Stream,
    events: Event,
    graphs: Graph,
    executables: Executable,
}

fn lock() -> MutexGuard<'static, State> {
    // The tables stay consistent if a call panics.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the state; fails if the driver is not initialised, or in a host function.
pub fn state() -> Answer<MutexGuard<'static, State>> {
    if IN_HOST_FUNCTION.get() {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let state = lock();
    if state.initialised { Ok(state) } else { Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) }
}

pub fn initialise() {
    let mut state = lock();
    if !state.initialised {
        let settings = crate::settings();
        state.initialised = true;
        state.peer_access = settings.peer_access;
        for device in 0..settings.devices.clamp(1, MOST) {
            let (handle, pool) = (state.new_handle(), state.add_pool(device as usize));
            state.primaries.push(Primary { handle, pool, default_pool: pool, ..Primary::default() });
        }
    }
}

/// Runs a stream's host function, which must not call the driver.
pub fn host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

impl State {
    /// Returns a new handle, different from all others and from the fixed stream handles 0, 1 and 2.
    pub fn new_handle(&mut self) -> usize {
        self.last += 16;
        self.last
    }

    /// Fails unless this context is live and no kernel of it has failed.
    pub fn usable(&self, context: usize) -> Answer {
        match self.contexts.get(&context) {
            None => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            Some(Context { fault: Some(code), .. }) => Err(*code),
            Some(_) => Ok(()),
        }
    }

    /// Adds a memory pool of a device. Returns its handle.
    pub fn add_pool(&mut self, device: usize) -> usize {
        let handle = self.new_handle();
        self.pools.insert(handle, Pool::new(device));
        handle
    }

    pub fn add<T: Object>(&mut self, context: usize, object: T) -> usize {
        let handle = self.new_handle();
        T::table(self).insert(handle, Owned { context, object });
        handle
    }

    /// Returns the object behind a handle; fails if its context is not usable.
    pub fn get<T: Object>(&mut self, handle: usize) -> Answer<&mut Owned<T>> {
        let context = T::table(self).get(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.context;
        self.usable(context)?;
        T::table(self).get_mut(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub fn remove<T: Object>(&mut self, handle: usize) -> Answer<T> {
        self.get::<T>(handle)?;
        let owned = T::table(self).remove(&handle);
        owned.map(|owned| owned.object).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Returns the handle of a module's kernel, if it already has one.
    pub fn known_function(&self, module: usize, name: &str) -> Option<usize> {
        let functions = self.functions.iter();
        let mut known = functions.filter(|(_, f)| f.object.module == module && f.object.name == name);
        known.next().map(|(&handle, _)| handle)
    }

    /// Removes a module, its functions and its variables. The device must be idle.
    pub fn unload(&mut self, module: usize) -> Answer {
        let code = self.remove::<Arc<Module>>(module)?;
        self.functions.retain(|_, function| function.object.module != module);
        release(code);
        Ok(())
    }

    /// Destroys a context and everything that belongs to it. The device must be idle.
    pub fn destroy(&mut self, context: usize) {
        self.contexts.remove(&context);
        for other in self.contexts.values_mut() {
            other.peers.retain(|&peer| peer != context);
        }
        self.host_waits_for_all(context);
        self.order.forget(context);
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        self.functions.retain(|_, function| function.context != context);
        self.graphs.retain(|_, graph| graph.context != context);
        self.executables.retain(|_, executable| executable.context != context);
        self.captures.retain(|capture| capture.context != context);
        for (_, module) in self.modules.extract_if(|_, module| module.context == context) {
            release(module.object);
        }
        for (address, allocation) in self.allocations.extract_if(|_, a| a.context == context) {
            allocation.release(address);
        }
    }

    /// Prints a fault, and makes every later call of the context fail.
    pub fn record(&mut self, context: usize, fault: Fault) {
        eprintln!("{fault}");
        if let Some(context) = self.contexts.get_mut(&context) {
            context.fault.get_or_insert(error::code(fault.code()));
        }
        self.faults.push(fault);
    }

    /// Prints and keeps notes, unless it has kept the same ones of another launch.
    pub fn note(&mut self, notes: Vec<Fault>) {
        for note in notes {
            let is_known = |known: &Fault| known.kernel == note.kernel && known.is_at_lines_of(&note);
            if !self.notes.iter().any(is_known) {
                eprintln!("{note}");
                self.notes.push(note);
            }
        }
    }
}

/// Frees the memory of a module's variables.
fn release(module: Arc<Module>) {
    // This is the last reference: only launches hold others, and the device is idle.
    if let Some(module) = Arc::into_inner(module) {
        module.loaded.unload(&MEMORY);
    }
}

/// Takes the faults since the last call, and lets the stopped contexts continue.
///
/// The faults of launches, copies, memsets and replays of graphs come in the order in which these ran.
///
/// A fault stops its context, as on a GPU: the launch still returns success, and every later call of the
/// context returns the fault's code ([`Fault::code`]). On a GPU, the context would then have to be reset and
/// would lose all its memory. Here, this call makes the context usable again, so that one test can plant a
/// fault and the next can run. Memory keeps the contents that the kernel left.
///
/// [`take_notes`] returns the notes.
pub fn take_faults() -> Vec<Fault> {
    let mut state = lock();
    for context in state.contexts.values_mut() {
        context.fault = None;
    }
    std::mem::take(&mut state.faults)
}

/// Takes the notes since the last call: races by the letter of the PTX ISA that libraries rely on
/// ([`Level::Note`](crate::fault::Level::Note)).
///
/// A note stops nothing. Two instructions of a kernel have one note, however many threads and launches race
/// there.
pub fn take_notes() -> Vec<Fault> {
    std::mem::take(&mut lock().notes)
}
