//! A C library that uses cust, for `tests/plugin.rs`.

/// Returns the CUDA version of the driver, or the negated error code.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_cuda_version() -> i32 {
    let loaded = libcuda::load();
    match cust::CudaApiVersion::get() {
        Ok(version) => version.major() * 1000 + version.minor() * 10,
        Err(error) => {
            assert!(loaded.is_err(), "{error}");
            -(error as i32)
        }
    }
}
