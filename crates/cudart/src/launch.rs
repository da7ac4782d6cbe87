//! Launches, and what a program asks about its kernels.

use crate::error::{
    Answer, Code, INVALID_CONFIGURATION, INVALID_VALUE, MISSING_CONFIGURATION, NOT_SUPPORTED, api, check,
    keep, put, require,
};
use crate::stream::of_thread;
use crate::{driver, exit, module, runtime};
use cust_raw::{
    CUdevice_attribute, CUfunction_attribute, CUhostFn, CUstream, cuDeviceGetAttribute, cuFuncGetAttribute,
    cuFuncSetAttribute, cuFuncSetCacheConfig, cuLaunchCooperativeKernel, cuLaunchHostFunc, cuLaunchKernel,
    cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// `dim3`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

/// `cudaLaunchConfig_t`, and what `kernel<<<grid, block, dynamic_shared, stream>>>` says.
#[repr(C)]
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    dynamic_shared: usize,
    stream: CUstream,
    attributes: *const Attribute,
    attribute_count: c_uint,
}

/// `cudaLaunchAttribute`
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: c_uint,
    /// Aligned to 8 bytes.
    value: Value,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Value([c_uint; 16]);

const COOPERATIVE: c_uint = 2;
const CLUSTER_DIMENSION: c_uint = 4;

thread_local! {
    /// The configurations of launches whose kernels' functions on the host have not been called yet.
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

impl Configuration {
    fn new(grid: Dim3, block: Dim3, dynamic_shared: usize, stream: CUstream) -> Self {
        Self { grid, block, dynamic_shared, stream, attributes: ptr::null(), attribute_count: 0 }
    }

    /// Whether the device has grids and blocks of these sizes.
    fn fits(&self, device: c_int) -> Answer<bool> {
        use CUdevice_attribute::*;
        let limits = [
            (self.grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            (self.grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            (self.grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            (self.block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            (self.block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            (self.block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            (
                self.block.x.saturating_mul(self.block.y).saturating_mul(self.block.z),
                CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            ),
        ];
        for (size, attribute) in limits {
            let mut limit = 0;
            // SAFETY: `limit` is valid for writes.
            check(unsafe { cuDeviceGetAttribute(&mut limit, attribute, device) })?;
            if !(1..=limit as c_uint).contains(&size) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Launches a kernel.
    ///
    /// # Safety
    ///
    /// `arguments` has the address of each of the kernel's arguments.
    unsafe fn launch(self, kernel: *const c_void, arguments: *mut *mut c_void, cooperative: bool) -> Answer {
        let device = runtime::enter()?;
        let function = module::function(kernel)?;
        let Self { grid, block, stream, .. } = self;
        let dynamic_shared = self.dynamic_shared.try_into().map_err(|_| INVALID_VALUE)?;
        exit::flush();
        // SAFETY: the caller's promise.
        let launched = check(unsafe {
            if cooperative {
                cuLaunchCooperativeKernel(
                    function,
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    dynamic_shared,
                    stream,
                    arguments,
                )
            } else {
                cuLaunchKernel(
                    function,
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    dynamic_shared,
                    stream,
                    arguments,
                    ptr::null_mut(),
                )
            }
        });
        match launched {
            // The runtime has a code of its own for these.
            Err(INVALID_VALUE) if !self.fits(device)? => Err(INVALID_CONFIGURATION),
            launched => launched,
        }
    }

    /// Launches a kernel. Attributes that only make a launch faster have no effect. Clusters of several blocks
    /// are not supported.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch), and `attributes` has as many as the configuration says.
    unsafe fn launch_with_attributes(self, kernel: *const c_void, arguments: *mut *mut c_void) -> Answer {
        let mut cooperative = false;
        for index in 0..self.attribute_count as usize {
            // SAFETY: the caller's promise.
            let Attribute { id, value: Value(value) } = unsafe { *self.attributes.add(index) };
            match id {
                COOPERATIVE => cooperative = value[0] != 0,
                CLUSTER_DIMENSION if value[..3].iter().any(|&blocks| blocks > 1) => {
                    return Err(NOT_SUPPORTED);
                }
                _ => {}
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.launch(kernel, arguments, cooperative) }
    }
}

// nvcc's code calls these functions for `kernel<<<…>>>(…)`. `crt/device_functions.h` and `crt/host_runtime.h`
// declare them.

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    dynamic_shared: usize,
    stream: CUstream,
) -> c_uint {
    CONFIGURATIONS.with_borrow_mut(|all| all.push(Configuration::new(grid, block, dynamic_shared, stream)));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    dynamic_shared: *mut usize,
    stream: *mut CUstream,
) -> Code {
    let popped = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(MISSING_CONFIGURATION);
    // SAFETY: nvcc's code passes the addresses of variables.
    keep(popped.and_then(|configuration| unsafe {
        put(grid, configuration.grid)?;
        put(block, configuration.block)?;
        put(dynamic_shared, configuration.dynamic_shared)?;
        put(stream, configuration.stream)
    }))
}

api! {
    fn __cudaLaunchKernel(
        kernel: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        dynamic_shared: usize,
        stream: CUstream,
    ) as __cudaLaunchKernel_ptsz(stream) {
        Configuration::new(grid, block, dynamic_shared, stream).launch(kernel, arguments, false)
    }

    fn cudaLaunchKernel(
        kernel: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        dynamic_shared: usize,
        stream: CUstream,
    ) as cudaLaunchKernel_ptsz(stream) {
        Configuration::new(grid, block, dynamic_shared, stream).launch(kernel, arguments, false)
    }

    fn cudaLaunchCooperativeKernel(
        kernel: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        dynamic_shared: usize,
        stream: CUstream,
    ) as cudaLaunchCooperativeKernel_ptsz(stream) {
        Configuration::new(grid, block, dynamic_shared, stream).launch(kernel, arguments, true)
    }

    fn cudaLaunchKernelExC(
        configuration: *const Configuration,
        kernel: *const c_void,
        arguments: *mut *mut c_void,
    ) {
        require(!configuration.is_null())?;
        (*configuration).launch_with_attributes(kernel, arguments)
    }

    fn cudaLaunchKernelExC_ptsz(
        configuration: *const Configuration,
        kernel: *const c_void,
        arguments: *mut *mut c_void,
    ) {
        require(!configuration.is_null())?;
        let configuration = *configuration;
        Configuration { stream: of_thread(configuration.stream), ..configuration }
            .launch_with_attributes(kernel, arguments)
    }

    fn cudaLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) as cudaLaunchHostFunc_ptsz(stream) {
        check(cuLaunchHostFunc(stream, function, data))
    }
}

/// `cudaFuncAttributes`
#[repr(C)]
struct FunctionAttributes {
    shared_bytes: usize,
    const_bytes: usize,
    local_bytes: usize,
    max_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode_ca: c_int,
    max_dynamic_shared: c_int,
    shared_carveout: c_int,
    /// Of clusters, which there are none of.
    clusters: [c_int; 6],
    reserved: [c_int; 16],
}

api! {
    fn cudaFuncGetAttributes(attributes: *mut FunctionAttributes, kernel: *const c_void) {
        use CUfunction_attribute::*;
        let function = module::function(kernel)?;
        let get = |attribute| {
            let mut value = 0;
            check(cuFuncGetAttribute(&mut value, attribute, function)).map(|()| value)
        };
        put(attributes, FunctionAttributes {
            shared_bytes: get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)? as usize,
            const_bytes: get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)? as usize,
            local_bytes: get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)? as usize,
            max_threads: get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            registers: get(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            ptx_version: get(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binary_version: get(CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            cache_mode_ca: get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)?,
            max_dynamic_shared: get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            shared_carveout: get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)?,
            clusters: [0; 6],
            reserved: [0; 16],
        })
    }

    fn cudaFuncSetAttribute(kernel: *const c_void, attribute: c_int, value: c_int) {
        check(cuFuncSetAttribute(module::function(kernel)?, driver::function_attribute(attribute)?, value))
    }

    fn cudaFuncSetCacheConfig(kernel: *const c_void, config: c_int) {
        check(cuFuncSetCacheConfig(module::function(kernel)?, driver::cache(config)?))
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        kernel: *const c_void,
        threads: c_int,
        dynamic_shared: usize,
    ) {
        occupancy(blocks, kernel, threads, dynamic_shared, 0)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        kernel: *const c_void,
        threads: c_int,
        dynamic_shared: usize,
        flags: c_uint,
    ) {
        occupancy(blocks, kernel, threads, dynamic_shared, flags)
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        dynamic_shared: *mut usize,
        kernel: *const c_void,
        blocks: c_int,
        threads: c_int,
    ) {
        let function = module::function(kernel)?;
        check(cuOccupancyAvailableDynamicSMemPerBlock(dynamic_shared, function, blocks, threads))
    }
}

/// # Safety
///
/// `blocks` is null or valid for writes.
unsafe fn occupancy(
    blocks: *mut c_int,
    kernel: *const c_void,
    threads: c_int,
    dynamic_shared: usize,
    flags: c_uint,
) -> Answer {
    let function = module::function(kernel)?;
    // SAFETY: the caller's promise.
    check(unsafe {
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_shared, flags)
    })
}
