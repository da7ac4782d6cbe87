//! Modules: loaded PTX with its kernels and variables.

use super::device::{BLOCK_SHARED, CAPABILITY};
use super::fatbinary::{self, NoPtx};
use super::function::Function;
use super::state::state;
use super::{Answer, MEMORY, api, idle, put, put_if_wanted, require, running};
use crate::exec::Loaded;
use crate::memory::Memory;
use crate::program::Program;
use crate::ptx::{self, ast};
use cust_raw::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUresult};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_uint, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::{ptr, slice};

/// The newest PTX version that a driver for CUDA 13.0 reads.
const NEWEST: (u32, u32) = (9, 0);
/// The first bytes of an ELF file, a cubin.
const ELF: [u8; 4] = *b"\x7fELF";
/// The first bytes of [`Wrapper`].
const WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// `__fatBinC_Wrapper_t` of `fatbinary_section.h`: what nvcc puts into a program to point to a fat binary.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    binary: *const u8,
    unused: *const c_void,
}

thread_local! {
    static LOAD_ERROR: RefCell<Option<String>> = const { RefCell::new(None) };
}

pub struct Module {
    pub program: Program,
    pub loaded: Loaded,
    /// 70 for `.target sm_70`.
    pub target: u32,
    /// `CU_JIT_MAX_REGISTERS`.
    pub max_registers: u32,
    /// The text for `CU_JIT_INFO_LOG_BUFFER`.
    note: String,
}

/// Why an image was not loaded.
struct Refused {
    code: CUresult,
    message: String,
}

fn refused<T>(code: CUresult, message: impl ToString) -> Result<T, Refused> {
    Err(Refused { code, message: message.to_string() })
}

/// Returns the error message of this thread's last module load, with the PTX line; `None` if it succeeded.
///
/// This is the text for `CU_JIT_ERROR_LOG_BUFFER`; cust's error contains only the code.
pub fn last_load_error() -> Option<String> {
    LOAD_ERROR.with_borrow(Clone::clone)
}

/// The load options that have an effect here.
#[derive(Default)]
struct Options {
    max_registers: Option<u32>,
    info: Log,
    error: Log,
}

/// A caller's buffer for a text, and the place for the text's length.
struct Log {
    buffer: *mut c_char,
    size: usize,
    length: *mut *mut c_void,
}

impl Default for Log {
    fn default() -> Self {
        Self { buffer: ptr::null_mut(), size: 0, length: ptr::null_mut() }
    }
}

impl Log {
    /// Writes as much of the text as fits, a terminating zero, and the written length.
    ///
    /// # Safety
    ///
    /// `buffer` is null or valid for writes of `size` bytes; `length` is null or valid for writes.
    unsafe fn write(&self, text: &str) {
        let copied = text.len().min(self.size.saturating_sub(1));
        if !self.buffer.is_null() && self.size > 0 {
            // SAFETY: fewer than `size` bytes and the zero after them, within the bytes that the caller
            // vouches for.
            unsafe {
                self.buffer.copy_from_nonoverlapping(text.as_ptr().cast(), copied);
                self.buffer.add(copied).write(0);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(self.length, ptr::without_provenance_mut(copied)) };
    }
}

/// Reads the options of a load.
///
/// # Safety
///
/// `keys` and `values` have `count` elements. `values` may end early if the last keys take no value: cust
/// leaves such elements out.
unsafe fn options(count: c_uint, keys: *mut CUjit_option, values: *mut *mut c_void) -> Answer<Options> {
    use CUjit_option::*;
    require(count == 0 || (!keys.is_null() && !values.is_null()))?;
    let mut options = Options::default();
    for index in 0..count as usize {
        // Read as a number, because a caller's header may have options that CUjit_option lacks.
        // SAFETY: in bounds.
        let key = unsafe { keys.cast::<u32>().add(index).read() };
        let place = values.wrapping_add(index);
        // SAFETY: only called for keys that have a value.
        let value = || unsafe { place.read() };
        // Small values are stored in the pointer itself.
        match key {
            key if key == CU_JIT_MAX_REGISTERS as u32 => options.max_registers = Some(value().addr() as u32),
            key if key == CU_JIT_INFO_LOG_BUFFER as u32 => options.info.buffer = value().cast(),
            key if key == CU_JIT_ERROR_LOG_BUFFER as u32 => options.error.buffer = value().cast(),
            key if key == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES as u32 => {
                options.info.size = value().addr();
                options.info.length = place;
            }
            key if key == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32 => {
                options.error.size = value().addr();
                options.error.length = place;
            }
            _ => {}
        }
    }
    Ok(options)
}

/// Returns the text of an image in memory; fails if it is a binary without PTX.
///
/// # Safety
///
/// `image` points to PTX that ends in a zero byte, to a binary, or to a [`Wrapper`].
unsafe fn text(image: *const c_void) -> Result<Cow<'static, str>, Refused> {
    let mut image: *const u8 = image.cast();
    // SAFETY: reads the next byte only if all before match a binary's start, which has no zero byte.
    let starts_with = |image: *const u8, start: [u8; 4]| (0..4).all(|i| unsafe { *image.add(i) } == start[i]);
    if starts_with(image, WRAPPER) {
        // SAFETY: it is a wrapper, whose pointer is that of a fat binary.
        image = unsafe { image.cast::<Wrapper>().read_unaligned() }.binary;
    }
    if starts_with(image, fatbinary::MAGIC) {
        // SAFETY: a fat binary has a header, which has the size of all.
        let bytes = unsafe {
            let size = fatbinary::size(slice::from_raw_parts(image, fatbinary::HEADER)).unwrap_or(0);
            slice::from_raw_parts(image, size)
        };
        return from_bytes(bytes);
    }
    if starts_with(image, ELF) {
        return from_bytes(&ELF);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy())
}

/// Returns the text of an image: the PTX of a fat binary, or PTX up to the first zero byte.
fn from_bytes(bytes: &[u8]) -> Result<Cow<'static, str>, Refused> {
    use CUresult::*;
    if bytes.starts_with(&ELF) {
        let message =
            "the image is machine code, but the emulator runs PTX: load the PTX of the kernel instead";
        return refused(CUDA_ERROR_NO_BINARY_FOR_GPU, message);
    }
    let text = if bytes.starts_with(&fatbinary::MAGIC) {
        fatbinary::ptx(bytes).or_else(|error| {
            let code = match error {
                NoPtx::Damaged => CUDA_ERROR_INVALID_IMAGE,
                NoPtx::MachineCode | NoPtx::Compressed => CUDA_ERROR_NO_BINARY_FOR_GPU,
            };
            refused(code, error)
        })?
    } else {
        bytes
    };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned().into())
}

/// Returns the PTX version of a text that may not parse.
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once(".version")?;
    let (major, minor) = rest.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the number in `sm_90a`; 0 if there is none.
fn target(module: &ast::Module) -> u32 {
    let target = module.target.iter().find_map(|word| word.strip_prefix("sm_"));
    target.and_then(|number| number.trim_end_matches(char::is_alphabetic).parse().ok()).unwrap_or(0)
}

fn compile(text: &str, max_registers: Option<u32>, memory: &Memory) -> Result<Module, Refused> {
    use CUresult::*;
    let Some(version) = version(text) else {
        return refused(CUDA_ERROR_INVALID_IMAGE, "the image is not PTX: it has no .version directive");
    };
    // A newer version alone is no error, because its text may still be known. It explains another error.
    let newer = (version > NEWEST).then(|| {
        let ((major, minor), (newest, point)) = (version, NEWEST);
        format!("PTX {major}.{minor} is newer than {newest}.{point}, the newest that the emulator knows")
    });
    let invalid = |error: String| match &newer {
        None => Refused { code: CUDA_ERROR_INVALID_PTX, message: error },
        Some(newer) => {
            Refused { code: CUDA_ERROR_UNSUPPORTED_PTX_VERSION, message: format!("{newer}; {error}") }
        }
    };
    let module = ptx::parse(text).map_err(|error| invalid(error.to_string()))?;
    let target = target(&module);
    if target > CAPABILITY {
        let message =
            format!("the module is for sm_{target}, but the emulator's device is an sm_{CAPABILITY}");
        return refused(CUDA_ERROR_INVALID_PTX, message);
    }
    let program = Program::decode(&module).map_err(|error| invalid(error.to_string()))?;
    if let Some(kernel) = program.kernels().iter().find(|kernel| kernel.shared_bytes > BLOCK_SHARED as usize)
    {
        let (name, bytes) = (&kernel.name, kernel.shared_bytes);
        let message =
            format!("kernel {name} has {bytes} bytes of static shared memory; the limit is {BLOCK_SHARED}");
        return refused(CUDA_ERROR_INVALID_PTX, message);
    }
    let Some(loaded) = Loaded::new(&program, memory) else {
        return refused(CUDA_ERROR_OUT_OF_MEMORY, "not enough memory for the module's variables");
    };
    let max_registers = max_registers.unwrap_or(u32::MAX);
    Ok(Module { program, loaded, target, max_registers, note: newer.unwrap_or_default() })
}

/// Loads a text into the current context.
///
/// # Safety
///
/// `module` is null or valid for writes, and so are the buffers in `options`, which come from [`options`].
unsafe fn load(
    module: *mut CUmodule,
    options: &Options,
    text: impl FnOnce() -> Result<Cow<'static, str>, Refused>,
) -> Answer {
    let (context, memory) = {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        (context, state.memory_of(context)?)
    };
    require(!module.is_null())?;
    // Destroying the context waits until the module, with its variables, belongs to it.
    let _running = running();
    let result = text().and_then(|text| compile(&text, options.max_registers, &memory));
    let message = result.as_ref().err().map(|refused| refused.message.as_str());
    // SAFETY: the caller's promise for the logs.
    unsafe {
        options.info.write(result.as_ref().map_or("", |module| module.note.as_str()));
        options.error.write(message.unwrap_or(""));
    }
    LOAD_ERROR.with_borrow_mut(|last| *last = message.map(str::to_owned));
    let loaded = Arc::new(result.map_err(|refused| refused.code)?);
    let mut state = state()?;
    if let Err(destroyed) = state.usable(context) {
        if let Some(module) = Arc::into_inner(loaded) {
            module.loaded.unload(&MEMORY);
        }
        return Err(destroyed);
    }
    let handle = state.add(context, loaded);
    // SAFETY: the caller's promise.
    unsafe { put(module, ptr::without_provenance_mut(handle)) }
}

/// Returns the name of a function or variable; fails with `CUDA_ERROR_INVALID_VALUE` if it is null or empty.
///
/// # Safety
///
/// `name` is null or a string that ends in a zero byte.
unsafe fn name(name: *const c_char) -> Answer<String> {
    require(!name.is_null())?;
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    require(!name.is_empty())?;
    Ok(name)
}

api! {
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) {
        state()?.current()?;
        require(!image.is_null())?;
        load(module, &Options::default(), || text(image))
    }

    fn cuModuleLoadFatBinary(module: *mut CUmodule, binary: *const c_void) {
        state()?.current()?;
        require(!binary.is_null())?;
        load(module, &Options::default(), || text(binary))
    }

    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        keys: *mut CUjit_option,
        values: *mut *mut c_void,
    ) {
        state()?.current()?;
        require(!image.is_null())?;
        load(module, &options(count, keys, values)?, || text(image))
    }

    fn cuModuleLoad(module: *mut CUmodule, path: *const c_char) {
        state()?.current()?;
        require(!path.is_null())?;
        let path = OsStr::from_bytes(CStr::from_ptr(path).to_bytes());
        load(module, &Options::default(), || {
            let bytes = fs::read(path).or_else(|error| {
                refused(CUresult::CUDA_ERROR_FILE_NOT_FOUND, format!("{}: {error}", path.display()))
            })?;
            from_bytes(&bytes)
        })
    }

    fn cuModuleUnload(module: CUmodule) {
        let _idle = idle();
        let mut state = state()?;
        state.outside_captures()?;
        state.unload(module.addr())
    }

    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, function_name: *const c_char) {
        let mut state = state()?;
        let owned = state.get::<Arc<Module>>(module.addr())?;
        require(!function.is_null())?;
        let name = name(function_name)?;
        let (context, code) = (owned.context, owned.object.clone());
        let handle = match state.known_function(module.addr(), &name) {
            Some(handle) => handle,
            None => {
                let function = Function::new(module.addr(), code, name)?;
                state.add(context, function)
            }
        };
        put(function, ptr::without_provenance_mut(handle))
    }

    fn cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        variable: *const c_char,
    ) {
        let mut state = state()?;
        let owned = state.get::<Arc<Module>>(module.addr())?;
        require(!address.is_null() || !bytes.is_null())?;
        let name = name(variable)?;
        let place = owned.object.loaded.address(&name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put_if_wanted(address, place.0);
        put_if_wanted(bytes, place.1 as usize);
        Ok(())
    }
}
