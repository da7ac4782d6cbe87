//! Functions (kernels): their attributes and occupancy.

use super::device::{
    BLOCK_SHARED, BLOCK_SHARED_OPT_IN, BLOCK_THREADS, BLOCKS, CAPABILITY, MULTIPROCESSORS, REGISTERS,
    SHARED_BYTES, SHARED_RESERVED, WARP, WARPS,
};
use super::module::Module;
use super::state::state;
use super::{Answer, api, put, require};
use crate::program::Kernel;
use crate::ptx::ast::Space;
use cust_raw::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUoccupancyB2DSize, CUresult, CUsharedconfig,
};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// The granularity in which a multiprocessor allocates registers to a warp.
const REGISTER_PORTION: u32 = 256;
/// The granularity, in bytes, in which a multiprocessor allocates shared memory to a block.
const SHARED_PORTION: u32 = 128;
/// The most registers per thread.
const THREAD_REGISTERS: u32 = 255;

#[derive(Clone)]
pub struct Function {
    /// The module's handle.
    pub module: usize,
    pub name: String,
    code: Arc<Module>,
    /// The most bytes of dynamic shared memory that a launch may ask for.
    pub max_dynamic: u32,
    /// The preferred share of shared memory in L1, in percent. Only stored and returned.
    carveout: c_int,
}

impl Function {
    pub fn new(module: usize, code: Arc<Module>, name: String) -> Answer<Self> {
        let kernel = code.program.kernel(&name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let max_dynamic = BLOCK_SHARED.saturating_sub(kernel.shared_bytes as u32);
        Ok(Self { module, name, code, max_dynamic, carveout: -1 })
    }

    pub fn code(&self) -> &Module {
        &self.code
    }

    pub fn kernel(&self) -> Answer<&Kernel> {
        self.code.program.kernel(&self.name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    fn attribute(&self, attribute: CUfunction_attribute) -> Answer<c_int> {
        use CUfunction_attribute::*;
        let kernel = self.kernel()?;
        let constants = self.code.program.variables().iter().filter(|v| v.space == Space::Const);
        Ok(match attribute {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => kernel.max_threads as c_int,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => kernel.shared_bytes as c_int,
            CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => constants.map(|v| v.size).sum::<u64>() as c_int,
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => kernel.local_bytes as c_int,
            CU_FUNC_ATTRIBUTE_NUM_REGS => self.resources()?.registers as c_int,
            CU_FUNC_ATTRIBUTE_PTX_VERSION => self.code.target as c_int,
            CU_FUNC_ATTRIBUTE_BINARY_VERSION => CAPABILITY as c_int,
            CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => self.max_dynamic as c_int,
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => self.carveout,
            CU_FUNC_ATTRIBUTE_MAX => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn set_attribute(&mut self, attribute: CUfunction_attribute, value: c_int) -> Answer {
        use CUfunction_attribute::*;
        match attribute {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let room = BLOCK_SHARED_OPT_IN.saturating_sub(self.kernel()?.shared_bytes as u32);
                require((0..=room as c_int).contains(&value))?;
                self.max_dynamic = value as u32;
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                require((-1..=100).contains(&value))?;
                self.carveout = value;
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    /// Returns the number of blocks of this size that the device holds at a time.
    pub fn resident(&self, block: [u32; 3], dynamic_shared: u32) -> Answer<u64> {
        let blocks = self.resources()?.blocks(block.iter().product(), dynamic_shared as usize);
        Ok(u64::from(blocks * MULTIPROCESSORS))
    }

    fn resources(&self) -> Answer<Resources> {
        let kernel = self.kernel()?;
        // Like the driver's compiler, limits the registers so that the kernel's largest block can run.
        let most = THREAD_REGISTERS.min(REGISTERS / kernel.max_threads.max(1)).min(self.code.max_registers);
        Ok(Resources {
            registers: kernel.registers.clamp(1, most.max(1)),
            shared: kernel.shared_bytes as u32,
            max_dynamic: self.max_dynamic,
            max_threads: kernel.max_threads,
        })
    }
}

/// The resources of a multiprocessor that a kernel uses.
struct Resources {
    /// Per thread.
    registers: u32,
    /// Bytes of static shared memory per block.
    shared: u32,
    max_dynamic: u32,
    max_threads: u32,
}

impl Resources {
    /// Returns the number of blocks that fit on a multiprocessor, leaving shared memory out of account.
    fn blocks_of(&self, threads: u32) -> u32 {
        if threads > BLOCK_THREADS {
            return 0;
        }
        let warps = threads.div_ceil(WARP);
        let registers = (self.registers * WARP).next_multiple_of(REGISTER_PORTION);
        BLOCKS.min(WARPS / warps).min(REGISTERS / registers / warps)
    }

    /// Returns the number of blocks that fit on a multiprocessor.
    fn blocks(&self, threads: u32, dynamic: usize) -> u32 {
        if dynamic > self.max_dynamic as usize {
            return 0;
        }
        let shared = (self.shared + dynamic as u32).next_multiple_of(SHARED_PORTION) + SHARED_RESERVED;
        self.blocks_of(threads).min(SHARED_BYTES / shared)
    }

    /// Returns the dynamic shared memory per block that lets `blocks` blocks fit on a multiprocessor.
    ///
    /// As the driver does, leaves the driver's reserve out of account.
    fn available(&self, blocks: u32, threads: u32) -> Option<u32> {
        if blocks == 0 || blocks > self.blocks_of(threads) {
            return None;
        }
        let share = SHARED_BYTES / blocks / SHARED_PORTION * SHARED_PORTION;
        Some(share.checked_sub(self.shared)?.min(self.max_dynamic))
    }

    /// Returns the block size, at most `limit`, with the most threads on a multiprocessor, and the number of
    /// such blocks that fit.
    fn best(&self, limit: u32, dynamic: impl Fn(u32) -> usize) -> (u32, u32) {
        let limit = if limit == 0 { self.max_threads } else { limit.min(self.max_threads) };
        let sizes = (1..=limit.div_ceil(WARP)).map(|warps| (warps * WARP).min(limit));
        let occupied = sizes.map(|threads| (threads, self.blocks(threads, dynamic(threads))));
        // `max_by_key` returns the last maximum: the largest block.
        occupied
            .filter(|&(_, blocks)| blocks > 0)
            .max_by_key(|(threads, blocks)| threads * blocks)
            .unwrap_or((0, 0))
    }
}

fn positive(value: c_int) -> Answer<u32> {
    require(value > 0)?;
    Ok(value as u32)
}

fn resources(function: CUfunction) -> Answer<Resources> {
    let mut state = state()?;
    state.current()?;
    state.get::<Function>(function.addr())?.object.resources()
}

fn active_blocks(blocks: *mut c_int, function: CUfunction, threads: c_int, dynamic: usize) -> Answer {
    let resources = resources(function)?;
    let threads = positive(threads)?;
    // SAFETY: the driver functions below pass their caller's pointer.
    unsafe { put(blocks, resources.blocks(threads, dynamic) as c_int) }
}

/// # Safety
///
/// The pointers are null or valid for writes; `dynamic_of` may be called.
unsafe fn potential_block(
    grid: *mut c_int,
    block: *mut c_int,
    function: CUfunction,
    dynamic_of: CUoccupancyB2DSize,
    dynamic: usize,
    limit: c_int,
) -> Answer {
    let resources = resources(function)?;
    require(!grid.is_null() && !block.is_null() && limit >= 0)?;
    let (threads, blocks) = resources.best(limit as u32, |threads| match dynamic_of {
        // SAFETY: the caller's promise.
        Some(dynamic_of) => unsafe { dynamic_of(threads as c_int) },
        None => dynamic,
    });
    // SAFETY: the caller's promise.
    unsafe {
        put(grid, (blocks * MULTIPROCESSORS) as c_int)?;
        put(block, threads as c_int)
    }
}

api! {
    fn cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) {
        let mut state = state()?;
        put(value, state.get::<Function>(function.addr())?.object.attribute(attribute)?)
    }

    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) {
        state()?.get::<Function>(function.addr())?.object.set_attribute(attribute, value)
    }

    fn cuFuncSetCacheConfig(function: CUfunction, _config: CUfunc_cache) {
        state()?.get::<Function>(function.addr())?;
        Ok(())
    }

    fn cuFuncSetSharedMemConfig(function: CUfunction, _config: CUsharedconfig) {
        state()?.get::<Function>(function.addr())?;
        Ok(())
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic: usize,
    ) {
        active_blocks(blocks, function, threads, dynamic)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic: usize,
        _flags: c_uint,
    ) {
        active_blocks(blocks, function, threads, dynamic)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        dynamic_of: CUoccupancyB2DSize,
        dynamic: usize,
        limit: c_int,
    ) {
        potential_block(grid, block, function, dynamic_of, dynamic, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        dynamic_of: CUoccupancyB2DSize,
        dynamic: usize,
        limit: c_int,
        _flags: c_uint,
    ) {
        potential_block(grid, block, function, dynamic_of, dynamic, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamic: *mut usize,
        function: CUfunction,
        blocks: c_int,
        threads: c_int,
    ) {
        let available = resources(function)?.available(positive(blocks)?, positive(threads)?);
        put(dynamic, available.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? as usize)
    }
}
