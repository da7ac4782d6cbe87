//! Kernel launches.

use super::device::{BLOCK_LIMITS, GRID_LIMITS};
use super::function::Function;
use super::graph;
use super::state::state;
use super::{Answer, Running, api, require, running};
use crate::counters::Counters;
use crate::exec::{self, Findings, Launch};
use crate::fault::Work;
use crate::history::Moment;
use crate::program::Kernel;
use cust_raw::{CUfunction, CUresult, CUstream};
use std::cell::{Cell, RefCell};
use std::ffi::{c_uint, c_void};

// Keys of the `extra` argument, which passes all parameters in one buffer.
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;

thread_local! {
    static LAST: RefCell<Option<(String, Counters)>> = const { RefCell::new(None) };
    static SUM: Cell<Option<Counters>> = const { Cell::new(None) };
}

/// Returns the name and the counters of this thread's last launch.
///
/// `None` before the first launch, and after a launch with a fault.
pub fn last_counters() -> Option<(String, Counters)> {
    LAST.with_borrow(Clone::clone)
}

/// Returns the summed counters of this thread's launches since its last call.
///
/// Leaves out launches with a fault.
///
/// ```
/// assert_eq!(emulator::take_counters(), emulator::Counters::default());
/// ```
pub fn take_counters() -> Counters {
    SUM.take().unwrap_or_default()
}

/// Fails unless a launch is within the limits of the device and the kernel.
fn check(kernel: &Kernel, max_dynamic: u32, launch: &Launch) -> Answer {
    let within = |sizes: [u32; 3], limits: [u32; 3]| {
        sizes.iter().zip(limits).all(|(&size, limit)| (1..=limit).contains(&size))
    };
    require(within(launch.grid, GRID_LIMITS) && within(launch.block, BLOCK_LIMITS))?;
    // No overflow: each is at most 1024.
    require(launch.block.iter().product::<u32>() <= kernel.max_threads)?;
    require(kernel.required_threads.is_none_or(|required| required == launch.block))?;
    require(launch.dynamic_shared <= max_dynamic)
}

/// A launch that a stream captured, with a copy of the parameters' values.
#[derive(Clone)]
pub struct Captured {
    /// The function's handle.
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    is_cooperative: bool,
    params: Vec<u8>,
}

impl Captured {
    /// Runs it as captured; false if it has a fault.
    pub fn run(&self, moment: Moment, device: &Running) -> Answer<bool> {
        let (context, function) = {
            let mut state = state()?;
            let owned = state.get::<Function>(self.function)?;
            (owned.context, owned.object.clone())
        };
        let Captured { grid, block, dynamic_shared, is_cooperative, ref params, .. } = *self;
        let resident = function.resident(block, dynamic_shared)?;
        let launch = Launch { grid, block, dynamic_shared, resident, workspace: 0, params };
        run(context, &function, &launch, is_cooperative, moment, device)
    }
}

/// Bytes of a cooperative launch's workspace: cooperative groups have their size in it, and then the grid's
/// barrier.
const WORKSPACE: u64 = 64;

/// Runs a kernel in this thread and keeps its counters or its fault; false if it has a fault.
fn run(
    context: usize,
    function: &Function,
    launch: &Launch,
    is_cooperative: bool,
    moment: Moment,
    _device: &Running,
) -> Answer<bool> {
    let (code, kernel) = (function.code(), function.kernel()?);
    let memory = state()?.memory_of(context)?;
    let mut launch = *launch;
    if is_cooperative {
        launch.workspace = memory.allocate(WORKSPACE).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        memory.write(launch.workspace, &[0; WORKSPACE as usize]).expect("it was just allocated");
    }
    let mut findings = Findings { touches: Some(Vec::new()), ..Findings::default() };
    let settings = crate::settings();
    let result = exec::run(&code.program, &code.loaded, kernel, &launch, &memory, &settings, &mut findings);
    if is_cooperative {
        memory.free(launch.workspace);
    }
    let Findings { notes, touches } = findings;
    if !notes.is_empty() {
        state()?.note(notes);
    }
    let touches = touches.unwrap_or_default();
    let (result, well) = match result {
        Ok(counters) => {
            let work = Work::Kernel(kernel.name.clone());
            (Some(counters), state()?.end_work(context, work, moment, touches)?)
        }
        Err(fault) => {
            state()?.record(context, *fault);
            (None, false)
        }
    };
    let counted = result.filter(|_| well).map(|counters| {
        let mut sum = SUM.take().unwrap_or_default();
        sum += counters;
        SUM.set(Some(sum));
        (kernel.name.clone(), counters)
    });
    LAST.with_borrow_mut(|last| *last = counted);
    Ok(well)
}

/// Returns the bytes of a launch's parameters.
///
/// # Safety
///
/// `each` is null or points to an array with the address of each parameter. `extra` is null or a list of keys
/// and values that [`packed`] can read.
unsafe fn parameters(kernel: &Kernel, each: *mut *mut c_void, extra: *mut *mut c_void) -> Answer<Vec<u8>> {
    if !extra.is_null() {
        require(each.is_null())?;
        // Like the NVIDIA driver, accepts fewer bytes than the parameters have. A kernel that reads past them
        // is at fault.
        // SAFETY: the caller's promise.
        return Ok(unsafe { packed(extra, kernel.param_bytes)? }.to_vec());
    }
    require(!each.is_null() || kernel.params.is_empty())?;
    let mut bytes = vec![0; kernel.param_bytes];
    for (index, param) in kernel.params.iter().enumerate() {
        // SAFETY: by the caller's promise, there are as many addresses as parameters.
        let value: *const u8 = unsafe { each.add(index).read() }.cast();
        require(!value.is_null())?;
        // SAFETY: by the caller's promise, the parameter's value is at its address.
        unsafe { value.copy_to_nonoverlapping(bytes[param.offset..][..param.size].as_mut_ptr(), param.size) };
    }
    Ok(bytes)
}

/// Returns the buffer of an `extra` list; fails if it is longer than `most` bytes.
///
/// # Safety
///
/// The list ends in `EXTRA_END`; the buffer and the size that it points to are valid for reads.
unsafe fn packed<'a>(mut extra: *mut *mut c_void, most: usize) -> Answer<&'a [u8]> {
    let (mut buffer, mut size) = (std::ptr::null(), 0);
    loop {
        // SAFETY: by the caller's promise, there is a key, and a value after every key but `EXTRA_END`.
        let (key, value) = unsafe {
            let key = extra.read().addr();
            if key == EXTRA_END {
                break;
            }
            (key, extra.add(1).read())
        };
        match key {
            EXTRA_POINTER => buffer = value.cast_const().cast::<u8>(),
            EXTRA_SIZE => {
                require(!value.is_null())?;
                // SAFETY: the caller's promise.
                size = unsafe { value.cast::<usize>().read_unaligned() };
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: the key was not `EXTRA_END`, so another follows.
        extra = unsafe { extra.add(2) };
    }
    require(!buffer.is_null())?;
    if size > most {
        return Err(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(buffer, size) })
}

/// Launches a kernel, or captures the launch.
///
/// # Safety
///
/// As for [`parameters`].
pub(super) unsafe fn launch(
    function: CUfunction,
    [grid, block]: [[u32; 3]; 2],
    dynamic_shared: u32,
    stream: CUstream,
    (each, extra): (*mut *mut c_void, *mut *mut c_void),
    is_cooperative: bool,
) -> Answer {
    let device = running();
    let handle = function.addr();
    let (context, function) = {
        let mut state = state()?;
        let owned = state.get::<Function>(handle)?;
        let (context, function) = (owned.context, owned.object.clone());
        if state.stream_context(stream)? != context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        (context, function)
    };
    let kernel = function.kernel()?;
    let launch = Launch { grid, block, dynamic_shared, resident: 0, workspace: 0, params: &[] };
    check(kernel, function.max_dynamic, &launch)?;
    let resident = function.resident(block, dynamic_shared)?;
    if is_cooperative && grid.iter().map(|&blocks| u64::from(blocks)).product::<u64>() > resident {
        return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    // SAFETY: the caller's promise.
    let params = unsafe { parameters(kernel, each, extra) }?;
    let captured =
        || Captured { function: handle, grid, block, dynamic_shared, is_cooperative, params: params.clone() };
    let moment = {
        let mut state = state()?;
        if state.capture(stream, || Ok(graph::Work::Launch(captured())))? {
            return Ok(());
        }
        state.begin_work(stream)?
    };
    let launch = Launch { resident, params: &params, ..launch };
    run(context, &function, &launch, is_cooperative, moment, &device).map(drop)
}

api! {
    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared: c_uint,
        stream: CUstream,
        each: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let sizes = [[grid_x, grid_y, grid_z], [block_x, block_y, block_z]];
        launch(function, sizes, dynamic_shared, stream, (each, extra), false)
    }

    fn cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared: c_uint,
        stream: CUstream,
        each: *mut *mut c_void,
    ) {
        let sizes = [[grid_x, grid_y, grid_z], [block_x, block_y, block_z]];
        launch(function, sizes, dynamic_shared, stream, (each, std::ptr::null_mut()), true)
    }
}
