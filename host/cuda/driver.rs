//! Loads the driver, and checks that it and the device can run the kernels.

use crate::{Error, threads};
use gpu_reduce_kernels::ptx::kernels::sum;
use std::fmt::Display;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The PTX ISA version and the compute capability that all of the library's kernels are compiled for.
const NEEDED_PTX: (i32, i32) = sum.version;
const NEEDED_CAPABILITY: (i32, i32) = sum.capability;

/// The oldest CUDA version whose driver accepts the kernels' PTX.
const NEEDED_CUDA: i32 = first_cuda(NEEDED_PTX);

/// Installs the emulator as the driver.
pub fn load_emulator() -> Result<(), Error> {
    #[cfg(feature = "emulator")]
    return emulator::install().map_err(refused);
    #[cfg(not(feature = "emulator"))]
    Err(Error::NoEmulator)
}

/// Installs the driver that `GPU_REDUCE_DRIVER` names. Otherwise keeps the program's driver, or loads the
/// machine's.
pub fn load() -> Result<(), Error> {
    match std::env::var_os("GPU_REDUCE_DRIVER") {
        Some(name) if name == "emulator" => return load_emulator(),
        Some(name) if !name.is_empty() && name != "cuda" => {
            return Err(Error::UnknownDriver(name.to_string_lossy().into_owned()));
        }
        _ => {}
    }
    if libcuda::installed().is_some() { Ok(()) } else { libcuda::load().map_err(refused) }
}

/// 0 until the driver is started, then [`threads::forks`] of that moment plus 1.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// Records that this process starts the driver.
pub fn start() {
    STARTED.store(threads::forks() + 1, Relaxed);
}

/// Returns an error if an ancestor of this process started the driver before the fork.
///
/// Contexts do not survive a fork, and neither do threads that hold locks of the driver or of the library. So
/// this is checked before any such lock is taken.
pub fn check_fork(device: impl Display) -> Result<(), Error> {
    let started = STARTED.load(Relaxed);
    if started == 0 || started == threads::forks() + 1 {
        return Ok(());
    }
    Err(Error::Forked { device: device.to_string() })
}

fn refused(error: libcuda::LoadError) -> Error {
    match error {
        libcuda::LoadError::AlreadyInstalled { .. } => Error::OtherDriver(error.to_string()),
        libcuda::LoadError::NoDriver { .. } => Error::NoDriver(error.to_string()),
    }
}

/// The CUDA version that introduced a PTX ISA version, in the driver's notation: 9010 is 9.1 (PTX ISA, "PTX
/// ISA Version History"). Each newer CUDA version is assumed to have one new PTX ISA version, as the last
/// ones have.
const fn first_cuda(ptx: (i32, i32)) -> i32 {
    match ptx {
        (..6, _) => 9000,
        (6, minor @ 0..=2) => 9000 + 10 * minor,
        (6, minor) => 10000 + 10 * (minor - 3),
        (7, minor) => 11000 + 10 * minor,
        (8, minor @ 0..=5) => 12000 + 10 * minor,
        (8, minor) => 12010 + 10 * minor,
        (major, minor) => 1000 * (major + 4) + 10 * minor,
    }
}

/// Returns an error if the driver is too old for the kernels' PTX.
pub fn check_version(driver: i32) -> Result<(), Error> {
    version_serves(driver, NEEDED_CUDA)
}

fn version_serves(driver: i32, needed: i32) -> Result<(), Error> {
    let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    if driver >= needed {
        return Ok(());
    }
    Err(Error::DriverTooOld { driver: text(driver), needed: text(needed) })
}

/// Returns an error if the device's compute capability is too low for the kernels.
pub fn check_capability(device: &str, capability: (i32, i32)) -> Result<(), Error> {
    capability_serves(device, capability, NEEDED_CAPABILITY)
}

fn capability_serves(device: &str, capability: (i32, i32), needed: (i32, i32)) -> Result<(), Error> {
    let text = |(major, minor): (i32, i32)| format!("{major}.{minor}");
    if capability >= needed {
        return Ok(());
    }
    let (capability, needed) = (text(capability), text(needed));
    Err(Error::DeviceTooOld { device: device.to_owned(), capability, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_what_some_kernel_is_for() {
        let (mut version, mut target) = Default::default();
        for (_, ptx) in crate::cuda::modules::tests::embedded() {
            let after = |directive| ptx.lines().find_map(|line| line.strip_prefix(directive)).unwrap();
            let (major, minor) = after(".version ").split_once('.').unwrap();
            version = (major.parse().unwrap(), minor.parse().unwrap()).max(version);
            target = after(".target sm_").parse::<i32>().unwrap().max(target);
        }
        assert_eq!(version, NEEDED_PTX);
        let (major, minor) = NEEDED_CAPABILITY;
        assert_eq!(target, 10 * major + minor);
    }

    #[test]
    fn each_ptx_version_came_with_a_cuda_version() {
        let expected = [
            ((6, 0), 9000),
            ((6, 3), 10000),
            ((6, 5), 10020),
            ((7, 0), 11000),
            ((7, 8), 11080),
            ((8, 5), 12050),
            ((8, 6), 12070),
            ((8, 8), 12090),
            ((9, 0), 13000),
            ((9, 3), 13030),
        ];
        for (ptx, cuda) in expected {
            assert_eq!(first_cuda(ptx), cuda, "{ptx:?}");
        }
    }

    #[test]
    fn old_drivers_and_devices_are_refused() {
        assert_eq!(version_serves(13000, 9000), Ok(()));
        assert_eq!(version_serves(9000, 9000), Ok(()));
        let old = version_serves(10020, 11010).unwrap_err();
        assert_eq!(
            old.to_string(),
            "the driver supports CUDA 10.2, but the kernels need CUDA 11.1 or newer: update the driver"
        );
        assert_eq!(capability_serves("cuda:0", (7, 0), (7, 0)), Ok(()));
        assert_eq!(capability_serves("cuda:0", (12, 0), (7, 0)), Ok(()));
        let old = capability_serves("cuda:0", (6, 1), (7, 0)).unwrap_err();
        assert_eq!(
            old.to_string(),
            "cuda:0 has compute capability 6.1, but the kernels need 7.0 or higher: \
             use another GPU or Device::cpu()"
        );
    }
}
