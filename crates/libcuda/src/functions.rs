//! The functions, their table, and the functions in its slots before a driver is installed.

use std::{
    arch::naked_asm,
    ffi::{c_char, c_uint, c_void},
    sync::atomic::AtomicPtr,
};

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("libcuda is written for Linux on x86-64 and AArch64; add this target's jump in functions.rs");

/// Defines the functions and their table; a name's index in the list is its slot.
macro_rules! functions {
    ($($name:ident)*) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Slot { $($name),* }

        /// The functions' names, in the order of [`TABLE`].
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The addresses that the functions jump to.
        pub static TABLE: [AtomicPtr<c_void>; NAMES.len()] = [$(AtomicPtr::new(initial(Slot::$name))),*];

        $(
            #[allow(non_snake_case)]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                // AAPCS64 reserves x16 for code between a call and its function.
                // Hidden: visible to code linked with this crate, but not to other libraries of the process.
                naked_asm!(
                    concat!(".hidden ", stringify!($name)),
                    #[cfg(target_arch = "x86_64")]
                    "jmp qword ptr [rip + {table} + {offset}]",
                    #[cfg(target_arch = "aarch64")]
                    "adrp x16, {table} + {offset}",
                    #[cfg(target_arch = "aarch64")]
                    "ldr x16, [x16, :lo12:{table} + {offset}]",
                    #[cfg(target_arch = "aarch64")]
                    "br x16",
                    table = sym TABLE,
                    offset = const Slot::$name as usize * size_of::<AtomicPtr<c_void>>(),
                )
            }
        )*
    };
}

const fn initial(slot: Slot) -> *mut c_void {
    match slot {
        Slot::cuGetErrorString => error_string as *mut c_void,
        _ => no_device as *mut c_void,
    }
}

// In the C calling conventions of both architectures, a function may ignore its arguments. So the next two
// functions can stand in for functions of any signature.

extern "C" fn no_device() -> c_uint {
    100 // CUDA_ERROR_NO_DEVICE
}

pub extern "C" fn not_supported() -> c_uint {
    801 // CUDA_ERROR_NOT_SUPPORTED
}

/// For cust's `Display` for errors, which calls `cuGetErrorString`: `to_string` panics if that fails.
extern "C" fn error_string(_error: c_uint, text: *mut *const c_char) -> c_uint {
    // SAFETY: cuGetErrorString's caller passes a pointer that is valid for writes.
    unsafe { *text = c"no CUDA driver is loaded".as_ptr() };
    0 // CUDA_SUCCESS
}

// All functions that cust_raw 0.11.3 declares, in its order.
functions! {
    cuGetErrorString
    cuGetErrorName
    cuInit
    cuDriverGetVersion
    cuDeviceGet
    cuDeviceGetCount
    cuDeviceGetName
    cuDeviceGetUuid
    cuDeviceGetUuid_v2
    cuDeviceGetLuid
    cuDeviceTotalMem_v2
    cuDeviceGetTexture1DLinearMaxWidth
    cuDeviceGetAttribute
    cuDeviceGetNvSciSyncAttributes
    cuDeviceSetMemPool
    cuDeviceGetMemPool
    cuDeviceGetDefaultMemPool
    cuFlushGPUDirectRDMAWrites
    cuDeviceGetProperties
    cuDeviceComputeCapability
    cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxRelease_v2
    cuDevicePrimaryCtxSetFlags_v2
    cuDevicePrimaryCtxGetState
    cuDevicePrimaryCtxReset_v2
    cuDeviceGetExecAffinitySupport
    cuCtxCreate_v2
    cuCtxCreate_v3
    cuCtxDestroy_v2
    cuCtxPushCurrent_v2
    cuCtxPopCurrent_v2
    cuCtxSetCurrent
    cuCtxGetCurrent
    cuCtxGetDevice
    cuCtxGetFlags
    cuCtxSynchronize
    cuCtxSetLimit
    cuCtxGetLimit
    cuCtxGetCacheConfig
    cuCtxSetCacheConfig
    cuCtxGetSharedMemConfig
    cuCtxSetSharedMemConfig
    cuCtxGetApiVersion
    cuCtxGetStreamPriorityRange
    cuCtxResetPersistingL2Cache
    cuCtxGetExecAffinity
    cuCtxAttach
    cuCtxDetach
    cuModuleLoad
    cuModuleLoadData
    cuModuleLoadDataEx
    cuModuleLoadFatBinary
    cuModuleUnload
    cuModuleGetFunction
    cuModuleGetGlobal_v2
    cuModuleGetTexRef
    cuModuleGetSurfRef
    cuLinkCreate_v2
    cuLinkAddData_v2
    cuLinkAddFile_v2
    cuLinkComplete
    cuLinkDestroy
    cuMemGetInfo_v2
    cuMemAlloc_v2
    cuMemAllocPitch_v2
    cuMemFree_v2
    cuMemGetAddressRange_v2
    cuMemAllocHost_v2
    cuMemFreeHost
    cuMemHostAlloc
    cuMemHostGetDevicePointer_v2
    cuMemHostGetFlags
    cuMemAllocManaged
    cuDeviceGetByPCIBusId
    cuDeviceGetPCIBusId
    cuIpcGetEventHandle
    cuIpcOpenEventHandle
    cuIpcGetMemHandle
    cuIpcOpenMemHandle_v2
    cuIpcCloseMemHandle
    cuMemHostRegister_v2
    cuMemHostUnregister
    cuMemcpy
    cuMemcpyPeer
    cuMemcpyHtoD_v2
    cuMemcpyDtoH_v2
    cuMemcpyDtoD_v2
    cuMemcpyDtoA_v2
    cuMemcpyAtoD_v2
    cuMemcpyHtoA_v2
    cuMemcpyAtoH_v2
    cuMemcpyAtoA_v2
    cuMemcpy2D_v2
    cuMemcpy2DUnaligned_v2
    cuMemcpy3D_v2
    cuMemcpy3DPeer
    cuMemcpyAsync
    cuMemcpyPeerAsync
    cuMemcpyHtoDAsync_v2
    cuMemcpyDtoHAsync_v2
    cuMemcpyDtoDAsync_v2
    cuMemcpyHtoAAsync_v2
    cuMemcpyAtoHAsync_v2
    cuMemcpy2DAsync_v2
    cuMemcpy3DAsync_v2
    cuMemcpy3DPeerAsync
    cuMemsetD8_v2
    cuMemsetD16_v2
    cuMemsetD32_v2
    cuMemsetD2D8_v2
    cuMemsetD2D16_v2
    cuMemsetD2D32_v2
    cuMemsetD8Async
    cuMemsetD16Async
    cuMemsetD32Async
    cuMemsetD2D8Async
    cuMemsetD2D16Async
    cuMemsetD2D32Async
    cuArrayCreate_v2
    cuArrayGetDescriptor_v2
    cuArrayGetSparseProperties
    cuMipmappedArrayGetSparseProperties
    cuArrayGetPlane
    cuArrayDestroy
    cuArray3DCreate_v2
    cuArray3DGetDescriptor_v2
    cuMipmappedArrayCreate
    cuMipmappedArrayGetLevel
    cuMipmappedArrayDestroy
    cuMemAddressReserve
    cuMemAddressFree
    cuMemCreate
    cuMemRelease
    cuMemMap
    cuMemMapArrayAsync
    cuMemUnmap
    cuMemSetAccess
    cuMemGetAccess
    cuMemExportToShareableHandle
    cuMemImportFromShareableHandle
    cuMemGetAllocationGranularity
    cuMemGetAllocationPropertiesFromHandle
    cuMemRetainAllocationHandle
    cuMemFreeAsync
    cuMemAllocAsync
    cuMemPoolTrimTo
    cuMemPoolSetAttribute
    cuMemPoolGetAttribute
    cuMemPoolSetAccess
    cuMemPoolGetAccess
    cuMemPoolCreate
    cuMemPoolDestroy
    cuMemAllocFromPoolAsync
    cuMemPoolExportToShareableHandle
    cuMemPoolImportFromShareableHandle
    cuMemPoolExportPointer
    cuMemPoolImportPointer
    cuPointerGetAttribute
    cuMemPrefetchAsync
    cuMemAdvise
    cuMemRangeGetAttribute
    cuMemRangeGetAttributes
    cuPointerSetAttribute
    cuPointerGetAttributes
    cuStreamCreate
    cuStreamCreateWithPriority
    cuStreamGetPriority
    cuStreamGetFlags
    cuStreamGetCtx
    cuStreamWaitEvent
    cuStreamAddCallback
    cuStreamBeginCapture_v2
    cuThreadExchangeStreamCaptureMode
    cuStreamEndCapture
    cuStreamIsCapturing
    cuStreamGetCaptureInfo
    cuStreamGetCaptureInfo_v2
    cuStreamUpdateCaptureDependencies
    cuStreamAttachMemAsync
    cuStreamQuery
    cuStreamSynchronize
    cuStreamDestroy_v2
    cuStreamCopyAttributes
    cuStreamGetAttribute
    cuStreamSetAttribute
    cuEventCreate
    cuEventRecord
    cuEventRecordWithFlags
    cuEventQuery
    cuEventSynchronize
    cuEventDestroy_v2
    cuEventElapsedTime
    cuImportExternalMemory
    cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray
    cuDestroyExternalMemory
    cuImportExternalSemaphore
    cuSignalExternalSemaphoresAsync
    cuWaitExternalSemaphoresAsync
    cuDestroyExternalSemaphore
    cuStreamWaitValue32
    cuStreamWaitValue64
    cuStreamWriteValue32
    cuStreamWriteValue64
    cuStreamBatchMemOp
    cuFuncGetAttribute
    cuFuncSetAttribute
    cuFuncSetCacheConfig
    cuFuncSetSharedMemConfig
    cuFuncGetModule
    cuLaunchKernel
    cuLaunchCooperativeKernel
    cuLaunchCooperativeKernelMultiDevice
    cuLaunchHostFunc
    cuFuncSetBlockShape
    cuFuncSetSharedSize
    cuParamSetSize
    cuParamSeti
    cuParamSetf
    cuParamSetv
    cuLaunch
    cuLaunchGrid
    cuLaunchGridAsync
    cuParamSetTexRef
    cuGraphCreate
    cuGraphAddKernelNode
    cuGraphKernelNodeGetParams
    cuGraphKernelNodeSetParams
    cuGraphAddMemcpyNode
    cuGraphMemcpyNodeGetParams
    cuGraphMemcpyNodeSetParams
    cuGraphAddMemsetNode
    cuGraphMemsetNodeGetParams
    cuGraphMemsetNodeSetParams
    cuGraphAddHostNode
    cuGraphHostNodeGetParams
    cuGraphHostNodeSetParams
    cuGraphAddChildGraphNode
    cuGraphChildGraphNodeGetGraph
    cuGraphAddEmptyNode
    cuGraphAddEventRecordNode
    cuGraphEventRecordNodeGetEvent
    cuGraphEventRecordNodeSetEvent
    cuGraphAddEventWaitNode
    cuGraphEventWaitNodeGetEvent
    cuGraphEventWaitNodeSetEvent
    cuGraphAddExternalSemaphoresSignalNode
    cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams
    cuGraphAddExternalSemaphoresWaitNode
    cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams
    cuGraphAddMemAllocNode
    cuGraphMemAllocNodeGetParams
    cuGraphAddMemFreeNode
    cuGraphMemFreeNodeGetParams
    cuDeviceGraphMemTrim
    cuDeviceGetGraphMemAttribute
    cuDeviceSetGraphMemAttribute
    cuGraphClone
    cuGraphNodeFindInClone
    cuGraphNodeGetType
    cuGraphGetNodes
    cuGraphGetRootNodes
    cuGraphGetEdges
    cuGraphNodeGetDependencies
    cuGraphNodeGetDependentNodes
    cuGraphAddDependencies
    cuGraphRemoveDependencies
    cuGraphDestroyNode
    cuGraphInstantiate_v2
    cuGraphInstantiateWithFlags
    cuGraphExecKernelNodeSetParams
    cuGraphExecMemcpyNodeSetParams
    cuGraphExecMemsetNodeSetParams
    cuGraphExecHostNodeSetParams
    cuGraphExecChildGraphNodeSetParams
    cuGraphExecEventRecordNodeSetEvent
    cuGraphExecEventWaitNodeSetEvent
    cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams
    cuGraphUpload
    cuGraphLaunch
    cuGraphExecDestroy
    cuGraphDestroy
    cuGraphExecUpdate
    cuGraphKernelNodeCopyAttributes
    cuGraphKernelNodeGetAttribute
    cuGraphKernelNodeSetAttribute
    cuGraphDebugDotPrint
    cuUserObjectCreate
    cuUserObjectRetain
    cuUserObjectRelease
    cuGraphRetainUserObject
    cuGraphReleaseUserObject
    cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cuOccupancyMaxPotentialBlockSize
    cuOccupancyMaxPotentialBlockSizeWithFlags
    cuOccupancyAvailableDynamicSMemPerBlock
    cuTexRefSetArray
    cuTexRefSetMipmappedArray
    cuTexRefSetAddress_v2
    cuTexRefSetAddress2D_v3
    cuTexRefSetFormat
    cuTexRefSetAddressMode
    cuTexRefSetFilterMode
    cuTexRefSetMipmapFilterMode
    cuTexRefSetMipmapLevelBias
    cuTexRefSetMipmapLevelClamp
    cuTexRefSetMaxAnisotropy
    cuTexRefSetBorderColor
    cuTexRefSetFlags
    cuTexRefGetAddress_v2
    cuTexRefGetArray
    cuTexRefGetMipmappedArray
    cuTexRefGetAddressMode
    cuTexRefGetFilterMode
    cuTexRefGetFormat
    cuTexRefGetMipmapFilterMode
    cuTexRefGetMipmapLevelBias
    cuTexRefGetMipmapLevelClamp
    cuTexRefGetMaxAnisotropy
    cuTexRefGetBorderColor
    cuTexRefGetFlags
    cuTexRefCreate
    cuTexRefDestroy
    cuSurfRefSetArray
    cuSurfRefGetArray
    cuTexObjectCreate
    cuTexObjectDestroy
    cuTexObjectGetResourceDesc
    cuTexObjectGetTextureDesc
    cuTexObjectGetResourceViewDesc
    cuSurfObjectCreate
    cuSurfObjectDestroy
    cuSurfObjectGetResourceDesc
    cuDeviceCanAccessPeer
    cuCtxEnablePeerAccess
    cuCtxDisablePeerAccess
    cuDeviceGetP2PAttribute
    cuGraphicsUnregisterResource
    cuGraphicsSubResourceGetMappedArray
    cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags_v2
    cuGraphicsMapResources
    cuGraphicsUnmapResources
    cuGetProcAddress
    cuGetExportTable
    cuProfilerInitialize
    cuProfilerStart
    cuProfilerStop
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, process::Command};

    use super::NAMES;

    /// Needs Cargo to find cust_raw's source: skipped if Cargo did not start the test program.
    #[test]
    fn names_are_those_that_cust_raw_declares() {
        let Some(cargo) = std::env::var_os("CARGO") else {
            println!("skipped: run by `cargo test` only, which knows where cust_raw's source is");
            return;
        };
        let metadata = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--filter-platform=host-tuple"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
        let cust_raw =
            metadata["packages"].as_array().unwrap().iter().find(|p| p["name"] == "cust_raw").unwrap();
        let manifest = Path::new(cust_raw["manifest_path"].as_str().unwrap());
        let source = fs::read_to_string(manifest.with_file_name("src/cuda.rs")).unwrap();

        let declared: Vec<&str> = source
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("pub fn "))
            .map(|rest| rest.split('(').next().unwrap())
            .collect();
        assert_eq!(NAMES, declared);
    }
}
