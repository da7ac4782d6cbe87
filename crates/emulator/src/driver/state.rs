//! What the driver knows: contexts, the objects that belong to them, faults.

use super::context::Context;
use super::device::MOST;
use super::function::Function;
use super::graph::{Capture, Executable, Graph};
use super::memory::Allocation;
use super::module::Module;
use super::order::Order;
use super::stream::{Event, Stream};
use super::{Answer, MEMORY, error};
use crate::fault::Fault;
use cust_raw::CUresult;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Set while a host function of a stream runs in this thread: it must not call the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
pub struct State {
    pub initialised: bool,
    /// The handle given out last.
    last: usize,
    /// The devices' primary contexts, by the devices' numbers.
    pub primaries: Vec<Primary>,
    /// Whether devices can access each other's memory.
    pub peer_access: bool,
    /// What comes before what; only where there are several devices.
    pub order: Option<Order>,
    /// The contexts that live, by handle.
    pub contexts: HashMap<usize, Context>,
    modules: Table<Arc<Module>>,
    functions: Table<Function>,
    streams: Table<Stream>,
    events: Table<Event>,
    graphs: Table<Graph>,
    executables: Table<Executable>,
    /// Those that have not ended.
    pub captures: Vec<Capture>,
    /// By their first byte's address.
    pub allocations: HashMap<u64, Allocation>,
    faults: Vec<Fault>,
}

/// A device's primary context, which lives while it is retained.
#[derive(Default)]
pub struct Primary {
    /// Its handle, the same for the program's life.
    pub handle: usize,
    pub retained: u32,
    pub flags: u32,
}

/// An object and the context that it belongs to.
pub struct Owned<T> {
    pub context: usize,
    pub object: T,
}

type Table<T> = HashMap<usize, Owned<T>>;

/// What a handle can stand for.
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
    // No call that panics leaves the tables half changed.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, for any function that needs the driver initialised.
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
        for _ in 0..settings.devices.clamp(1, MOST) {
            let handle = state.new_handle();
            state.primaries.push(Primary { handle, ..Primary::default() });
        }
        state.order = (state.primaries.len() > 1).then(Order::default);
    }
}

/// Runs a stream's host function, which must not call the driver.
pub fn host_function(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

impl State {
    /// A number that no other handle of this program has, nor any of the streams that have fixed numbers.
    pub fn new_handle(&mut self) -> usize {
        self.last += 16;
        self.last
    }

    /// That this context lives, and that no kernel of it failed.
    pub fn usable(&self, context: usize) -> Answer {
        match self.contexts.get(&context) {
            None => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
            Some(Context { fault: Some(code), .. }) => Err(*code),
            Some(_) => Ok(()),
        }
    }

    pub fn add<T: Object>(&mut self, context: usize, object: T) -> usize {
        let handle = self.new_handle();
        T::table(self).insert(handle, Owned { context, object });
        handle
    }

    /// The object behind a handle, if its context is usable.
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

    /// The handle of a module's kernel that was asked for before.
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

    /// Ends a context with all that belongs to it. The device must be idle.
    pub fn destroy(&mut self, context: usize) {
        self.contexts.remove(&context);
        for other in self.contexts.values_mut() {
            other.peers.retain(|&peer| peer != context);
        }
        self.host_waits_for_all(context);
        if let Some(order) = &mut self.order {
            order.forget(context);
        }
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

    /// Reports a fault, and makes each later call of the context fail.
    pub fn record(&mut self, context: usize, fault: Fault) {
        eprintln!("{fault}");
        if let Some(context) = self.contexts.get_mut(&context) {
            context.fault.get_or_insert(error::code(fault.code()));
        }
        self.faults.push(fault);
    }
}

/// Gives back the memory of a module's variables.
fn release(module: Arc<Module>) {
    // The last reference: only launches hold others, and the device is idle.
    if let Some(module) = Arc::into_inner(module) {
        module.loaded.unload(&MEMORY);
    }
}

/// Takes the faults that checks have found in kernels, and replays of graphs, since the last call, in the order of the launches, and lets
/// the contexts they stopped go on.
///
/// A fault stops its context, as on a GPU: the launch still returns success, and every later call of the context
/// returns the fault's code ([`Fault::code`]). A GPU's context has to be reset then, and is lost with all its
/// memory. Here this call also lifts the stop, so that one test can plant a fault and the next one run; memory has the
/// contents that the kernel left.
pub fn take_faults() -> Vec<Fault> {
    let mut state = lock();
    for context in state.contexts.values_mut() {
        context.fault = None;
    }
    std::mem::take(&mut state.faults)
}
