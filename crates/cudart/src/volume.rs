//! Memory of three dimensions: rows with a pitch, in slices.

use crate::error::{Answer, NOT_SUPPORTED, api, check, put, require};
use crate::memory::{Rows, copy_rows, in_own_stream, set_rows};
use cust_raw::{CUdeviceptr, CUstream, cuMemAllocPitch_v2};
use std::ffi::{c_int, c_void};
use std::ptr;

/// `cudaExtent` and `cudaPos`
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

/// `cudaPitchedPtr`
#[repr(C)]
#[derive(Clone, Copy)]
struct Pitched {
    first: *mut c_void,
    pitch: usize,
    width: usize,
    /// Rows of a slice.
    height: usize,
}

/// `cudaMemcpy3DParms`
#[repr(C)]
#[derive(Clone, Copy)]
struct Copy3D {
    from_array: *mut c_void,
    from_start: Extent,
    from: Pitched,
    to_array: *mut c_void,
    to_start: Extent,
    to: Pitched,
    extent: Extent,
    kind: c_int,
}

impl Pitched {
    /// The address of a slice's first row, from a start on.
    fn rows(&self, start: Extent, slice: usize) -> Rows<*mut c_void> {
        let row = start.height + (start.depth + slice) * self.height;
        Rows { first: self.first.wrapping_byte_add(start.width + row * self.pitch), pitch: self.pitch }
    }
}

/// Copies slice by slice; fails if an end is an array.
///
/// # Safety
///
/// `copy` is null or valid, and each row meets the requirements of a copy.
unsafe fn copy_slices(copy: *const Copy3D, stream: Option<CUstream>) -> Answer {
    require(!copy.is_null())?;
    // SAFETY: not null, so valid by the caller's promise.
    let Copy3D { from_array, from_start, from, to_array, to_start, to, extent, kind } = unsafe { *copy };
    if !from_array.is_null() || !to_array.is_null() {
        return Err(NOT_SUPPORTED);
    }
    for slice in 0..extent.depth {
        let Rows { first, pitch } = from.rows(from_start, slice);
        let (to, from) = (to.rows(to_start, slice), Rows { first: first.cast_const(), pitch });
        // SAFETY: the caller's promise.
        unsafe { copy_rows(to, from, extent.width, extent.height, kind, stream)? };
    }
    Ok(())
}

/// Sets bytes slice by slice.
///
/// # Safety
///
/// Each row is valid for writes, until the stream has set it.
unsafe fn set_slices(to: Pitched, value: c_int, extent: Extent, stream: Option<CUstream>) -> Answer {
    for slice in 0..extent.depth {
        let Rows { first, pitch } = to.rows(Extent { width: 0, height: 0, depth: 0 }, slice);
        let first = first.expose_provenance() as CUdeviceptr;
        // SAFETY: the caller's promise.
        unsafe { set_rows(first, pitch, value, extent.width, extent.height, stream)? };
    }
    Ok(())
}

api! {
    fn cudaMalloc3D(place: *mut Pitched, extent: Extent) {
        let Extent { width, height, depth } = extent;
        let (mut address, mut pitch) = (0, 0);
        let rows = height.saturating_mul(depth);
        if width > 0 && rows > 0 {
            check(cuMemAllocPitch_v2(&mut address, &mut pitch, width, rows, 4))?;
        }
        let first = ptr::with_exposed_provenance_mut(address as usize);
        put(place, Pitched { first, pitch, width, height })
    }

    fn cudaMemset3D(to: Pitched, value: c_int, extent: Extent) {
        set_slices(to, value, extent, None)
    }

    fn cudaMemset3DAsync(to: Pitched, value: c_int, extent: Extent, stream: CUstream) as cudaMemset3DAsync_ptsz(stream) {
        set_slices(to, value, extent, Some(stream))
    }

    fn cudaMemcpy3D(copy: *const Copy3D) {
        copy_slices(copy, None)
    }

    fn cudaMemcpy3DAsync(copy: *const Copy3D, stream: CUstream) as cudaMemcpy3DAsync_ptsz(stream) {
        copy_slices(copy, Some(stream))
    }

    fn cudaMemset3D_ptds(to: Pitched, value: c_int, extent: Extent) {
        in_own_stream(|own| set_slices(to, value, extent, Some(own)))
    }

    fn cudaMemcpy3D_ptds(copy: *const Copy3D) {
        in_own_stream(|own| copy_slices(copy, Some(own)))
    }
}
