//! `cuLaunchKernelEx`: launches with attributes. cust does not declare it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cust_raw::{CUfunction, CUresult, CUstream};

use super::{Answer, answer, launch::launch, require};

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    dynamic_shared: c_uint,
    stream: CUstream,
    attributes: *const Attribute,
    count: c_uint,
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Attribute {
    id: c_uint,
    padding: [c_char; 4],
    value: Value,
}

/// The members of `CUlaunchAttributeValue` that have a meaning here.
#[derive(Clone, Copy)]
#[repr(C)]
union Value {
    /// `cooperative`.
    flag: c_int,
    /// `clusterDim`.
    cluster: [c_uint; 3],
    all: [u64; 8],
}

/// `CUlaunchAttributeID`.
const COOPERATIVE: c_uint = 2;
const CLUSTER_DIMENSION: c_uint = 4;
/// Attributes that change no results: hints for caches and schedulers, priorities, synchronisation domains,
/// and an early start of the next launch.
const HARMLESS: [c_uint; 10] = [0, 1, 3, 5, 6, 8, 9, 10, 11, 14];

/// Fails with the attribute's name on standard error.
fn refuse(attribute: c_uint) -> CUresult {
    let name = match attribute {
        CLUSTER_DIMENSION => "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, a cluster of several blocks",
        7 => "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT",
        12 => "CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT",
        13 => "CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE",
        _ => "an attribute that it does not know",
    };
    eprintln!("cuLaunchKernelEx: the emulator does not support {name} (CUlaunchAttributeID {attribute})");
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// Whether the attributes ask for a cooperative launch.
fn is_cooperative(attributes: &[Attribute]) -> Answer<bool> {
    let mut is_cooperative = false;
    for attribute in attributes {
        match attribute.id {
            // SAFETY: any bits are a valid integer; the caller has initialised the member that the ID names.
            COOPERATIVE => is_cooperative = unsafe { attribute.value.flag } != 0,
            // SAFETY: as above.
            CLUSTER_DIMENSION if unsafe { attribute.value.cluster } == [1; 3] => {}
            id if HARMLESS.contains(&id) => {}
            id => return Err(refuse(id)),
        }
    }
    Ok(is_cooperative)
}

/// # Safety
///
/// As for `cuLaunchKernel`. `config` is null or points to a configuration, whose attributes are as many as it
/// says.
#[allow(non_snake_case)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const Config,
    function: CUfunction,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    answer("cuLaunchKernelEx", &mut || {
        require(!config.is_null())?;
        // SAFETY: it is not null, so a configuration by the caller's promise.
        let config = unsafe { &*config };
        require(config.count == 0 || !config.attributes.is_null())?;
        let attributes = match config.count {
            0 => &[],
            // SAFETY: the caller's promise.
            count => unsafe { std::slice::from_raw_parts(config.attributes, count as usize) },
        };
        let is_cooperative = is_cooperative(attributes)?;
        let (sizes, shared) = ([config.grid, config.block], config.dynamic_shared);
        // SAFETY: the caller's promise.
        unsafe { launch(function, sizes, shared, config.stream, (each, extra), is_cooperative) }
    })
}

pub const FUNCTIONS: &[(&str, *const c_void)] = &[("cuLaunchKernelEx", cuLaunchKernelEx as *const c_void)];

#[cfg(test)]
mod tests {
    use super::*;
    use cust::memory::DeviceBuffer;
    use cust::module::Module;

    const KERNEL: &str = ".version 8.0 .target sm_90 .address_size 64
        .visible .entry cooperative(.param .u64 to) {
            .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [to]; mov.u32 %r1, %envreg2; setp.ne.u32 %p1, %r1, 0; selp.u32 %r2, 1, 0, %p1;
            st.global.u32 [%rd1], %r2; ret; }";

    #[test]
    fn attributes_are_obeyed_ignored_or_refused() {
        crate::install().unwrap();
        let _context = cust::quick_init().unwrap();
        let module = Module::from_ptx(KERNEL, &[]).unwrap();
        let function = module.get_function("cooperative").unwrap();
        let to = DeviceBuffer::from_slice(&[7u32]).unwrap();
        let launched = |attributes: &[Attribute]| {
            let config = Config {
                grid: [1; 3],
                block: [1; 3],
                dynamic_shared: 0,
                stream: std::ptr::null_mut(),
                attributes: attributes.as_ptr(),
                count: attributes.len() as c_uint,
            };
            let mut pointer = to.as_device_ptr().as_raw();
            let mut arguments = [(&raw mut pointer).cast()];
            // SAFETY: the kernel takes one pointer, and the configuration is valid.
            let code = unsafe {
                cuLaunchKernelEx(&config, function.to_raw(), arguments.as_mut_ptr(), std::ptr::null_mut())
            };
            (code, to.as_host_vec().unwrap()[0])
        };
        let attribute = |id, all: [u64; 8]| Attribute { id, padding: [0; 4], value: Value { all } };
        let with = |id, word| attribute(id, [word, 0, 0, 0, 0, 0, 0, 0]);
        let cluster = |x: u64| attribute(CLUSTER_DIMENSION, [x | 1 << 32, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(launched(&[]), (CUresult::CUDA_SUCCESS, 0));
        assert_eq!(launched(&[with(COOPERATIVE, 1)]), (CUresult::CUDA_SUCCESS, 1));
        assert_eq!(launched(&[with(COOPERATIVE, 0), with(6, 1), cluster(1)]), (CUresult::CUDA_SUCCESS, 0));
        for refused in [cluster(2), with(7, 1), with(12, 1), with(99, 1)] {
            assert_eq!(launched(&[with(COOPERATIVE, 1), refused]).0, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: a null configuration is an error.
        let none = unsafe {
            cuLaunchKernelEx(std::ptr::null(), function.to_raw(), std::ptr::null_mut(), std::ptr::null_mut())
        };
        assert_eq!(none, CUresult::CUDA_ERROR_INVALID_VALUE);
        assert!(super::super::resolve("cuLaunchKernelEx").is_some());
    }
}
