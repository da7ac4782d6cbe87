//! Modules: refused images with their codes and messages, variables, and files.
//!
//! The codes are those of the NVIDIA driver 580 on an H200.

use cust::memory::CopyDestination;
use cust::module::Module;
use cust::sys::cudaError_enum::*;
use cust::sys::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut, without_provenance_mut as value};

fn context() -> cust::context::Context {
    emulator::install().unwrap();
    cust::quick_init().unwrap()
}

/// Loads an image and unloads it.
fn load(image: &CStr) -> CUresult {
    let mut module = null_mut();
    // SAFETY: the image ends in a zero.
    unsafe {
        let code = cuModuleLoadData(&mut module, image.as_ptr().cast());
        if code == CUDA_SUCCESS {
            assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
        }
        code
    }
}

fn module(version: &str, target: &str, body: &str) -> CString {
    let text =
        format!(".version {version}\n.target {target}\n.address_size 64\n.visible .entry k() {{ {body} }}\n");
    CString::new(text).unwrap()
}

#[test]
fn what_is_no_module_for_this_device() {
    let _context = context();
    for (image, code, message) in [
        (c"".to_owned(), CUDA_ERROR_INVALID_IMAGE, ".version"),
        (c"hello world".to_owned(), CUDA_ERROR_INVALID_IMAGE, ".version"),
        (module("99.9", "sm_70", "nonsense;"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "99.9"),
        (module("9.1", "sm_70", "ret; {"), CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "9.0"),
        (module("9.0", "sm_100", "ret;"), CUDA_ERROR_INVALID_PTX, "sm_100"),
        (module("6.0", "sm_70", "nonsense;"), CUDA_ERROR_INVALID_PTX, "nonsense"),
        (module("6.0", "sm_70", "ret; {"), CUDA_ERROR_INVALID_PTX, "line"),
        (module("6.0", "sm_70", "ret; \u{e9}"), CUDA_ERROR_INVALID_PTX, "line"),
        // The NVIDIA driver returns CUDA_ERROR_INVALID_IMAGE for this, which is only the start of a cubin.
        (c"\x7fELF".to_owned(), CUDA_ERROR_NO_BINARY_FOR_GPU, "PTX"),
    ] {
        assert_eq!(load(&image), code, "{image:?}");
        let found = emulator::last_load_error().unwrap();
        assert!(found.contains(message), "{found}");
    }
    // The NVIDIA driver refuses every newer version; the emulator only refuses text that it does not know.
    for image in [
        module("9.0", "sm_90a", "ret;"),
        module("6.0", "sm_70, debug", "ret;"),
        module("9.1", "sm_70", "ret;"),
    ] {
        assert_eq!(load(&image), CUDA_SUCCESS, "{image:?}: {:?}", emulator::last_load_error());
        assert_eq!(emulator::last_load_error(), None);
    }
    // SAFETY: null pointers are refused.
    unsafe {
        let mut module = null_mut();
        assert_eq!(cuModuleLoadData(&mut module, null()), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuModuleLoadData(null_mut(), c"x".as_ptr().cast()), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn the_message_goes_to_the_log() {
    let _context = context();
    let image = module("6.0", "sm_70", "\nnonsense;");
    for size in [300usize, 10, 0] {
        let mut log = [1u8; 300];
        let mut keys = [
            CUjit_option::CU_JIT_MAX_REGISTERS,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_TARGET_FROM_CUCONTEXT,
        ];
        // As in cust's calls, the last key has no value.
        let mut values: [*mut c_void; 3] = [value(32), log.as_mut_ptr().cast(), value(size)];
        let mut module = null_mut();
        // SAFETY: the log has `size` bytes, and each key that needs a value has one.
        let code = unsafe {
            let (keys, values) = (keys.as_mut_ptr(), values.as_mut_ptr());
            cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 4, keys, values)
        };
        assert_eq!(code, CUDA_ERROR_INVALID_PTX);
        let message = emulator::last_load_error().unwrap();
        assert!(message.contains("line 5") && message.contains("nonsense"), "{message}");
        let length = message.len().min(size.saturating_sub(1));
        assert_eq!(values[2].addr(), length);
        assert_eq!(log[..length], message.as_bytes()[..length]);
        assert!(size == 0 || log[length] == 0);
        assert_eq!(log[size..], [1; 300][size..]);
    }
}

#[test]
fn a_newer_version_is_noted() {
    let _context = context();
    for (version, text) in [("9.1", "PTX 9.1 is newer"), ("9.0", "")] {
        let image = module(version, "sm_70", "ret;");
        let mut log = [1u8; 300];
        let mut keys =
            [CUjit_option::CU_JIT_INFO_LOG_BUFFER, CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), value(300)];
        let mut module = null_mut();
        // SAFETY: the log has 300 bytes.
        unsafe {
            let (keys, values) = (keys.as_mut_ptr(), values.as_mut_ptr());
            let code = cuModuleLoadDataEx(&mut module, image.as_ptr().cast(), 2, keys, values);
            assert_eq!(code, CUDA_SUCCESS);
            assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
        }
        let found = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
        assert!(found.starts_with(text) && found.is_empty() == text.is_empty(), "{found}");
    }
}

#[test]
fn functions_and_variables_by_name() {
    let _context = context();
    let text = "
        .version 6.0
        .target sm_70
        .address_size 64
        .visible .global .align 8 .u64 counter = 41;
        .visible .const .align 4 .b32 table[3] = {1, 2, 3};
        .visible .entry k(.param .u32 a, .param .u64 b) { ret; }";
    let path = std::env::temp_dir().join(format!("emulator-{}.ptx", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let from_file = Module::from_file(&path);
    std::fs::remove_file(&path).unwrap();
    let missing = Module::from_file(&path).map(drop);
    assert_eq!(missing, Err(cust::error::CudaError::FileNotFound));
    let module = from_file.unwrap();

    let mut counter = module.get_global::<u64>(c"counter").unwrap();
    let mut value = 0;
    counter.copy_to(&mut value).unwrap();
    assert_eq!(value, 41);
    counter.copy_from(&42).unwrap();
    counter.copy_to(&mut value).unwrap();
    assert_eq!(value, 42);
    let mut table = [0; 3];
    module.get_global::<[u32; 3]>(c"table").unwrap().copy_to(&mut table).unwrap();
    assert_eq!(table, [1, 2, 3]);
    let none = module.get_global::<u32>(c"none").map(|_| ());
    assert_eq!(none, Err(cust::error::CudaError::NotFound));

    let function = module.get_function("k").unwrap();
    assert_eq!(function.to_raw(), module.get_function("k").unwrap().to_raw());
    use cust::function::FunctionAttribute::*;
    assert_eq!(function.get_attribute(MaxThreadsPerBlock), Ok(1024));
    assert_eq!(function.get_attribute(ConstSizeBytes), Ok(12));
    assert_eq!(function.get_attribute(PtxVersion), Ok(70));
    assert_eq!(function.get_attribute(BinaryVersion), Ok(90));
    assert!((1..=255).contains(&function.get_attribute(NumRegisters).unwrap()));
    for (name, error) in
        [("none", cust::error::CudaError::NotFound), ("", cust::error::CudaError::InvalidValue)]
    {
        assert_eq!(module.get_function(name).map(|_| ()), Err(error));
    }
}

/// An entry of a fat binary: 1 for PTX or 2 for machine code, the architecture, the unpacked size or 0, and
/// the content.
type Entry<'a> = (u16, u32, u64, &'a [u8]);

/// Returns a fat binary as nvcc 13.0 writes it.
fn fat_binary(entries: &[Entry<'_>]) -> Vec<u8> {
    let entries: Vec<u8> = entries
        .iter()
        .flat_map(|&(kind, architecture, unpacked, content)| {
            let mut header = [0; 0x50];
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&0x50u32.to_le_bytes());
            header[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
            header[28..32].copy_from_slice(&architecture.to_le_bytes());
            header[56..64].copy_from_slice(&unpacked.to_le_bytes());
            [&header, content].concat()
        })
        .collect();
    let size = (entries.len() as u64).to_le_bytes();
    [&0xba55_ed50_u32.to_le_bytes()[..], &[1, 0, 16, 0], &size, &entries].concat()
}

/// Loads a file and returns the target of its kernel `k`.
fn load_file(bytes: &[u8]) -> Result<i32, CUresult> {
    let path = std::env::temp_dir().join(format!("emulator-{}.fatbin", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    let (mut module, mut function, mut target) = (null_mut(), null_mut(), 0);
    // SAFETY: pointers are to variables of the right type.
    unsafe {
        let code = cuModuleLoad(&mut module, name.as_ptr());
        std::fs::remove_file(&path).unwrap();
        if code != CUDA_SUCCESS {
            return Err(code);
        }
        assert_eq!(cuModuleGetFunction(&mut function, module, c"k".as_ptr()), CUDA_SUCCESS);
        let asked = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_PTX_VERSION;
        assert_eq!(cuFuncGetAttribute(&mut target, asked, function), CUDA_SUCCESS);
        assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
    }
    Ok(target)
}

#[test]
fn a_fat_binary_has_ptx_for_several_architectures() {
    let _context = context();
    let text = |target: &str| module("9.0", target, "ret;").into_bytes_with_nul();
    let (old, fits, new) = (text("sm_75"), text("sm_90a"), text("sm_100"));
    let code = (2, 90, 0, &b"\x7fELF"[..]);
    let all = [code, (1, 75, 0, &old), (1, 90, 0, &fits), (1, 100, 0, &new)];
    let (compressed, machine_code) = (fat_binary(&[(1, 90, 300, b"(\xb5/\xfd")]), fat_binary(&[code]));
    let whole = fat_binary(&all);
    for (binary, target, message) in [
        (&whole[..], Ok(90), None),
        (&fat_binary(&all[..2]), Ok(75), None),
        (&fat_binary(&all[3..]), Err(CUDA_ERROR_INVALID_PTX), Some("sm_100")),
        (&compressed, Err(CUDA_ERROR_NO_BINARY_FOR_GPU), Some("--no-compress")),
        (&machine_code, Err(CUDA_ERROR_NO_BINARY_FOR_GPU), Some("-code=compute_80")),
        (&fat_binary(&[]), Err(CUDA_ERROR_NO_BINARY_FOR_GPU), Some("-code=compute_80")),
        (&whole[..whole.len() - 1], Err(CUDA_ERROR_INVALID_IMAGE), Some("damaged")),
        (&whole[..10], Err(CUDA_ERROR_INVALID_IMAGE), Some("damaged")),
        (&[&whole[..16], &[0; 1 << 10]].concat(), Err(CUDA_ERROR_INVALID_IMAGE), Some("damaged")),
        (&[&whole[..8], &[0xff; 100]].concat(), Err(CUDA_ERROR_INVALID_IMAGE), Some("damaged")),
    ] {
        assert_eq!(load_file(binary), target, "{message:?}");
        let found = emulator::last_load_error();
        assert_eq!(found.is_some(), message.is_some(), "{found:?}");
        assert!(found.is_none_or(|found| found.contains(message.unwrap())));
    }

    // In memory, also as nvcc embeds it into a program: a struct that points to it.
    #[repr(C)]
    struct Wrapper(u32, u32, *const u8, *const c_void);
    let wrapper = Wrapper(0x4662_43b1, 1, whole.as_ptr(), null());
    for image in [whole.as_ptr().cast::<c_void>(), (&raw const wrapper).cast()] {
        let mut module = null_mut();
        // SAFETY: the image is a whole fat binary.
        unsafe {
            assert_eq!(cuModuleLoadFatBinary(&mut module, image), CUDA_SUCCESS);
            assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
            assert_eq!(cuModuleLoadData(&mut module, image), CUDA_SUCCESS);
            assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
        }
    }
}
