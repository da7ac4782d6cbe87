//! The functions of CUDA 13.0's runtime that are not supported.
//!
//! They are here so that programs link that call them only sometimes.

use crate::error::{Code, NOT_SUPPORTED, keep};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// The functions that were called.
static CALLED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Prints a function's name at its first call.
fn refuse(name: &'static str) -> Code {
    if CALLED.lock().unwrap_or_else(PoisonError::into_inner).insert(name) {
        eprintln!("{name} is not supported on the emulator");
    }
    keep(Err(NOT_SUPPORTED))
}

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        /// Ignores its arguments, as a function may in the C calling conventions of x86-64 and AArch64.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Code {
            refuse(stringify!($name))
        }
    )*};
}

unsupported! {
    cudaArrayGetInfo cudaArrayGetMemoryRequirements cudaArrayGetPlane cudaArrayGetSparseProperties
    cudaChooseDevice cudaCreateSurfaceObject cudaCreateTextureObject cudaDestroyExternalMemory
    cudaDestroyExternalSemaphore cudaDestroySurfaceObject cudaDestroyTextureObject
    cudaDeviceFlushGPUDirectRDMAWrites cudaDeviceGetGraphMemAttribute cudaDeviceGetHostAtomicCapabilities
    cudaDeviceGetNvSciSyncAttributes cudaDeviceGetP2PAtomicCapabilities cudaDeviceGetTexture1DLinearMaxWidth
    cudaDeviceGraphMemTrim cudaDeviceRegisterAsyncNotification cudaDeviceSetGraphMemAttribute
    cudaDeviceUnregisterAsyncNotification cudaExternalMemoryGetMappedBuffer
    cudaExternalMemoryGetMappedMipmappedArray cudaFreeArray cudaFreeMipmappedArray cudaFuncGetName
    cudaFuncGetParamInfo cudaFuncSetSharedMemConfig cudaGetChannelDesc cudaGetDeviceFlags
    cudaGetDriverEntryPoint cudaGetDriverEntryPointByVersion cudaGetExportTable cudaGetMipmappedArrayLevel
    cudaGetSurfaceObjectResourceDesc cudaGetTextureObjectResourceDesc cudaGetTextureObjectResourceViewDesc
    cudaGetTextureObjectTextureDesc cudaGraphAddChildGraphNode cudaGraphAddDependencies cudaGraphAddEmptyNode
    cudaGraphAddEventRecordNode cudaGraphAddEventWaitNode cudaGraphAddExternalSemaphoresSignalNode
    cudaGraphAddExternalSemaphoresWaitNode cudaGraphAddHostNode cudaGraphAddKernelNode
    cudaGraphAddMemAllocNode cudaGraphAddMemFreeNode cudaGraphAddMemcpyNode cudaGraphAddMemcpyNode1D
    cudaGraphAddMemcpyNodeFromSymbol cudaGraphAddMemcpyNodeToSymbol cudaGraphAddMemsetNode cudaGraphAddNode
    cudaGraphChildGraphNodeGetGraph cudaGraphClone cudaGraphConditionalHandleCreate cudaGraphCreate
    cudaGraphDebugDotPrint cudaGraphDestroyNode cudaGraphEventRecordNodeGetEvent
    cudaGraphEventRecordNodeSetEvent cudaGraphEventWaitNodeGetEvent cudaGraphEventWaitNodeSetEvent
    cudaGraphExecChildGraphNodeSetParams cudaGraphExecEventRecordNodeSetEvent
    cudaGraphExecEventWaitNodeSetEvent cudaGraphExecExternalSemaphoresSignalNodeSetParams
    cudaGraphExecExternalSemaphoresWaitNodeSetParams cudaGraphExecGetFlags cudaGraphExecHostNodeSetParams
    cudaGraphExecKernelNodeSetParams cudaGraphExecMemcpyNodeSetParams cudaGraphExecMemcpyNodeSetParams1D
    cudaGraphExecMemcpyNodeSetParamsFromSymbol cudaGraphExecMemcpyNodeSetParamsToSymbol
    cudaGraphExecMemsetNodeSetParams cudaGraphExecNodeSetParams cudaGraphExecUpdate
    cudaGraphExternalSemaphoresSignalNodeGetParams cudaGraphExternalSemaphoresSignalNodeSetParams
    cudaGraphExternalSemaphoresWaitNodeGetParams cudaGraphExternalSemaphoresWaitNodeSetParams
    cudaGraphGetEdges cudaGraphGetRootNodes cudaGraphHostNodeGetParams cudaGraphHostNodeSetParams
    cudaGraphInstantiateWithParams cudaGraphKernelNodeCopyAttributes cudaGraphKernelNodeGetAttribute
    cudaGraphKernelNodeGetParams cudaGraphKernelNodeSetAttribute cudaGraphKernelNodeSetParams
    cudaGraphMemAllocNodeGetParams cudaGraphMemFreeNodeGetParams cudaGraphMemcpyNodeGetParams
    cudaGraphMemcpyNodeSetParams cudaGraphMemcpyNodeSetParams1D cudaGraphMemcpyNodeSetParamsFromSymbol
    cudaGraphMemcpyNodeSetParamsToSymbol cudaGraphMemsetNodeGetParams cudaGraphMemsetNodeSetParams
    cudaGraphNodeFindInClone cudaGraphNodeGetDependencies cudaGraphNodeGetDependentNodes
    cudaGraphNodeGetEnabled cudaGraphNodeGetType cudaGraphNodeSetEnabled cudaGraphNodeSetParams
    cudaGraphReleaseUserObject cudaGraphRemoveDependencies cudaGraphRetainUserObject cudaGraphicsMapResources
    cudaGraphicsResourceGetMappedMipmappedArray cudaGraphicsResourceGetMappedPointer
    cudaGraphicsResourceSetMapFlags cudaGraphicsSubResourceGetMappedArray cudaGraphicsUnmapResources
    cudaGraphicsUnregisterResource cudaImportExternalMemory cudaImportExternalSemaphore cudaIpcCloseMemHandle
    cudaIpcGetEventHandle cudaIpcGetMemHandle cudaIpcOpenEventHandle cudaIpcOpenMemHandle
    cudaKernelSetAttributeForDevice cudaLibraryEnumerateKernels cudaLibraryGetGlobal cudaLibraryGetKernel
    cudaLibraryGetKernelCount cudaLibraryGetManaged cudaLibraryGetUnifiedFunction cudaLibraryLoadData
    cudaLibraryLoadFromFile cudaLibraryUnload cudaLogsCurrent cudaLogsDumpToFile cudaLogsDumpToMemory
    cudaLogsRegisterCallback cudaLogsUnregisterCallback cudaMalloc3DArray cudaMallocArray
    cudaMallocMipmappedArray cudaMemDiscardAndPrefetchBatchAsync cudaMemDiscardBatchAsync
    cudaMemGetDefaultMemPool cudaMemGetMemPool cudaMemPoolExportPointer cudaMemPoolExportToShareableHandle
    cudaMemPoolImportFromShareableHandle cudaMemPoolImportPointer cudaMemPrefetchBatchAsync
    cudaMemRangeGetAttribute cudaMemRangeGetAttributes cudaMemSetMemPool cudaMemcpy2DArrayToArray
    cudaMemcpy2DFromArray cudaMemcpy2DFromArrayAsync cudaMemcpy2DToArray cudaMemcpy2DToArrayAsync
    cudaMemcpy3DBatchAsync cudaMemcpy3DPeer cudaMemcpy3DPeerAsync cudaMemcpyArrayToArray cudaMemcpyBatchAsync
    cudaMemcpyFromArray cudaMemcpyFromArrayAsync cudaMemcpyToArray cudaMemcpyToArrayAsync
    cudaMipmappedArrayGetMemoryRequirements cudaMipmappedArrayGetSparseProperties
    cudaOccupancyMaxActiveClusters cudaOccupancyMaxPotentialClusterSize cudaSetValidDevices
    cudaSignalExternalSemaphoresAsync cudaStreamBeginCaptureToGraph cudaStreamCopyAttributes
    cudaStreamGetAttribute cudaStreamGetId cudaStreamUpdateCaptureDependencies cudaUserObjectCreate
    cudaUserObjectRelease cudaUserObjectRetain cudaWaitExternalSemaphoresAsync
}

/// `cudaChannelFormatDesc`
#[repr(C)]
struct ChannelFormat {
    bits: [c_int; 4],
    kind: c_int,
}

/// Describes the elements of arrays and textures, which the functions above then refuse.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(x: c_int, y: c_int, z: c_int, w: c_int, kind: c_int) -> ChannelFormat {
    ChannelFormat { bits: [x, y, z, w], kind }
}
