//! The driver's enums of the runtime's numbers, which mean the same.

use crate::error::{Answer, require};
use cust_raw::{
    CUdevice_P2PAttribute, CUdevice_attribute, CUfunc_cache, CUfunction_attribute, CUlimit, CUmem_advise,
    CUmemPool_attribute, CUstreamCaptureMode,
};
use std::ffi::c_int;

macro_rules! enums {
    ($($(#[$attribute:meta])* $name:ident: $type:ident, $first:ident to $last:ident;)*) => {$(
        $(#[$attribute])*
        pub fn $name(number: c_int) -> Answer<$type> {
            require(($type::$first as c_int..=$type::$last as c_int).contains(&number))?;
            // SAFETY: the enum has all numbers from the first to the last.
            Ok(unsafe { std::mem::transmute::<c_int, $type>(number) })
        }
    )*};
}

enums! {
    /// `cudaDeviceAttr`; CUDA 13.0 has more of them than cust_raw.
    device_attribute: CUdevice_attribute,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK to CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
    /// `cudaFuncAttribute`
    function_attribute: CUfunction_attribute,
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK to CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    /// `cudaLimit`
    limit: CUlimit, CU_LIMIT_STACK_SIZE to CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
    /// `cudaFuncCache`
    cache: CUfunc_cache, CU_FUNC_CACHE_PREFER_NONE to CU_FUNC_CACHE_PREFER_EQUAL;
    /// `cudaStreamCaptureMode`
    capture_mode: CUstreamCaptureMode, CU_STREAM_CAPTURE_MODE_GLOBAL to CU_STREAM_CAPTURE_MODE_RELAXED;
    /// `cudaMemoryAdvise`
    advice: CUmem_advise, CU_MEM_ADVISE_SET_READ_MOSTLY to CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    /// `cudaMemPoolAttr`; CUDA 13.0 has more of them than cust_raw.
    pool_attribute: CUmemPool_attribute,
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES to CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    /// `cudaDeviceP2PAttr`
    peer_attribute: CUdevice_P2PAttribute,
        CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK to CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
}
