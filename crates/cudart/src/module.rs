//! The program's fat binaries, and their kernels and variables by the addresses that stand for them on the
//! host.

use crate::error::{
    Answer, Code, INVALID_FUNCTION, INVALID_SYMBOL, INVALID_VALUE, NOT_FOUND, api, check, keep, put,
};
use crate::runtime;
use cust_raw::{
    CUdeviceptr, CUfunction, CUmodule, CUstreamCaptureMode, cuMemGetAddressRange_v2, cuModuleGetFunction,
    cuModuleGetGlobal_v2, cuModuleLoadFatBinary, cuModuleUnload, cuThreadExchangeStreamCaptureMode,
};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An address on the host, or a handle of the driver.
type Number = usize;

/// A name in the module of a fat binary.
#[derive(Clone)]
struct Name {
    binary: Number,
    name: CString,
}

struct Binary {
    /// Where the fat binary is.
    image: Number,
    /// `__managed__` variables, and where the program looks for the address of each.
    managed: Vec<(CString, Number)>,
    /// Its module on each device that has used it, or why it could not be loaded.
    modules: BTreeMap<c_int, Answer<Number>>,
}

#[derive(Default)]
struct Registry {
    last: Number,
    binaries: HashMap<Number, Binary>,
    kernels: HashMap<Number, Name>,
    variables: HashMap<Number, Name>,
    /// The driver's functions of kernels that were used, by device and by the kernel's address.
    functions: HashMap<(c_int, Number), Number>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn with_registry<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry: MutexGuard<'_, _> = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    work(registry.get_or_insert_default())
}

impl Registry {
    /// Returns the module of a fat binary on a device, whose context is current; loads it first if need be.
    fn module(&mut self, binary: Number, device: c_int) -> Answer<CUmodule> {
        let binary = self.binaries.get_mut(&binary).ok_or(INVALID_VALUE)?;
        if let Some(&module) = binary.modules.get(&device) {
            return module.map(ptr::without_provenance_mut);
        }
        let mut module = ptr::null_mut();
        // The first launch may be in a capture, which must not forbid this.
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the program has registered the fat binary at this address; `mode` is valid for reads and
        // writes.
        let loaded = unsafe {
            check(cuThreadExchangeStreamCaptureMode(&mut mode))?;
            let loaded =
                cuModuleLoadFatBinary(&mut module, ptr::with_exposed_provenance::<c_void>(binary.image));
            check(cuThreadExchangeStreamCaptureMode(&mut mode))?;
            check(loaded)
        };
        if loaded.is_err() {
            let message = emulator::last_load_error().unwrap_or_default();
            eprintln!("the program's kernels cannot be loaded: {message}");
        }
        binary.modules.insert(device, loaded.map(|()| module.addr()));
        loaded?;
        for (name, place) in &binary.managed {
            let place = ptr::with_exposed_provenance_mut::<*mut c_void>(*place);
            let (address, _) = variable(module, name)?;
            // SAFETY: the program has registered the place, which has an address for each variable.
            unsafe { place.write(ptr::with_exposed_provenance_mut(address as usize)) };
        }
        Ok(module)
    }

    fn function(&mut self, kernel: Number, device: c_int) -> Answer<CUfunction> {
        if let Some(&function) = self.functions.get(&(device, kernel)) {
            return Ok(ptr::without_provenance_mut(function));
        }
        let Name { binary, name } = self.kernels.get(&kernel).cloned().ok_or(INVALID_FUNCTION)?;
        let module = self.module(binary, device)?;
        let mut function = ptr::null_mut();
        // SAFETY: `function` is valid for writes, and the name ends in a zero byte.
        let found = check(unsafe { cuModuleGetFunction(&mut function, module, name.as_ptr()) });
        found.map_err(|code| if code == NOT_FOUND { INVALID_FUNCTION } else { code })?;
        self.functions.insert((device, kernel), function.addr());
        Ok(function)
    }
}

/// Returns the address and the size of a module's variable.
fn variable(module: CUmodule, name: &CStr) -> Answer<(CUdeviceptr, usize)> {
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: both are valid for writes, and the name ends in a zero byte.
    let found = check(unsafe { cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name.as_ptr()) });
    found.map_err(|code| if code == NOT_FOUND { INVALID_SYMBOL } else { code })?;
    Ok((address, bytes))
}

/// Returns the driver's function for a kernel on the thread's device.
pub fn function(kernel: *const c_void) -> Answer<CUfunction> {
    let device = runtime::enter()?;
    with_registry(|registry| registry.function(kernel.addr(), device))
}

/// Returns the address and the size of a variable on the thread's device.
///
/// `symbol` is the address of the variable on the host; for a `__managed__` variable, its address everywhere.
pub fn symbol(symbol: *const c_void) -> Answer<(CUdeviceptr, usize)> {
    let device = runtime::enter()?;
    with_registry(|registry| {
        if let Some(Name { binary, name }) = registry.variables.get(&symbol.addr()).cloned() {
            return variable(registry.module(binary, device)?, &name);
        }
        let (mut base, mut bytes, address) = (0, 0, symbol.addr() as CUdeviceptr);
        // SAFETY: both are valid for writes.
        let found = check(unsafe { cuMemGetAddressRange_v2(&mut base, &mut bytes, address) });
        found.map_err(|_| INVALID_SYMBOL)?;
        Ok((address, bytes - (address - base) as usize))
    })
}

/// Forgets all modules of a device.
pub fn forget(device: c_int) {
    with_registry(|registry| {
        registry.functions.retain(|&(of, _), _| of != device);
        for binary in registry.binaries.values_mut() {
            binary.modules.remove(&device);
        }
    });
}

/// Returns a name that the program registers.
///
/// # Safety
///
/// `name` ends in a zero byte.
unsafe fn name(binary: *mut *mut c_void, name: *const c_char) -> Name {
    // SAFETY: the caller's promise.
    Name { binary: binary.addr(), name: unsafe { CStr::from_ptr(name) }.to_owned() }
}

// nvcc's code calls these functions before `main` and at the program's end. `crt/host_runtime.h` declares
// them.

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(image: *const c_void) -> *mut *mut c_void {
    with_registry(|registry| {
        registry.last += 1;
        let binary =
            Binary { image: image.expose_provenance(), managed: Vec::new(), modules: BTreeMap::new() };
        registry.binaries.insert(registry.last, binary);
        ptr::without_provenance_mut(registry.last)
    })
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: *mut *mut c_void) {}

#[allow(clippy::too_many_arguments)]
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterFunction(
    binary: *mut *mut c_void,
    host: *const c_void,
    _device: *mut c_char,
    device_name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp_size: *mut c_int,
) {
    // SAFETY: nvcc's code passes a constant that ends in a zero byte.
    let name = unsafe { name(binary, device_name) };
    with_registry(|registry| registry.kernels.insert(host.addr(), name));
}

#[allow(clippy::too_many_arguments)]
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterVar(
    binary: *mut *mut c_void,
    host: *const c_void,
    _device: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: nvcc's code passes a constant that ends in a zero byte.
    let name = unsafe { name(binary, device_name) };
    with_registry(|registry| registry.variables.insert(host.addr(), name));
}

#[allow(clippy::too_many_arguments)]
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterManagedVar(
    binary: *mut *mut c_void,
    host: *mut *mut c_void,
    _device: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: nvcc's code passes a constant that ends in a zero byte.
    let Name { binary, name } = unsafe { name(binary, device_name) };
    with_registry(|registry| {
        if let Some(binary) = registry.binaries.get_mut(&binary) {
            binary.managed.push((name, host.expose_provenance()));
        }
    });
}

/// Called before the first use of a file's `__managed__` variables on the host.
#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(binary: *mut *mut c_void) -> c_char {
    let loaded = runtime::enter()
        .and_then(|device| with_registry(|registry| registry.module(binary.addr(), device).map(drop)));
    c_char::from(keep(loaded) == 0)
}

/// Called at the end, and when a library of the program is closed.
#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(binary: *mut *mut c_void) {
    let binary = binary.addr();
    let modules = with_registry(|registry| {
        let gone: Vec<Number> = registry
            .kernels
            .iter()
            .filter(|(_, name)| name.binary == binary)
            .map(|(&host, _)| host)
            .collect();
        registry.functions.retain(|(_, kernel), _| !gone.contains(kernel));
        registry.kernels.retain(|_, name| name.binary != binary);
        registry.variables.retain(|_, name| name.binary != binary);
        registry.binaries.remove(&binary).map(|binary| binary.modules)
    });
    for module in modules.into_iter().flatten().filter_map(|(_, module)| module.ok()) {
        // Fails in a context with a fault, which keeps its modules.
        // SAFETY: the program does not use the module any more.
        let _ = unsafe { cuModuleUnload(ptr::without_provenance_mut(module)) };
    }
}

/// A kernel's handle is its address on the host, as for `cudaLaunchKernel`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaGetKernel(kernel: *mut *const c_void, host: *const c_void) -> Code {
    // SAFETY: the caller's promise.
    keep(unsafe { put(kernel, host) })
}

api! {
    fn cudaGetKernel(kernel: *mut *const c_void, host: *const c_void) {
        function(host)?;
        put(kernel, host)
    }

    fn cudaGetFuncBySymbol(place: *mut CUfunction, host: *const c_void) {
        put(place, function(host)?)
    }

    fn cudaGetSymbolAddress(address: *mut CUdeviceptr, variable: *const c_void) {
        put(address, symbol(variable)?.0)
    }

    fn cudaGetSymbolSize(bytes: *mut usize, variable: *const c_void) {
        put(bytes, symbol(variable)?.1)
    }
}
