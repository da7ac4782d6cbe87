//! A C library of a package that uses cust, for `tests/plugin.rs`.

/// The CUDA version of the driver, or minus the error that asking for it gave.
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
