//! The option `--device`.

use std::str::FromStr;

use gpu_reduce::{Device, Error};

/// The device that the user names.
#[derive(Clone, Copy)]
pub enum DeviceArg {
    Auto,
    Cpu,
    Cuda(usize),
    Emulator,
}

impl DeviceArg {
    /// Opens the device; `auto` is the first GPU that works, else the CPU.
    pub fn open(self) -> Result<Device, Error> {
        match self {
            DeviceArg::Auto => Ok(Device::default_device()),
            DeviceArg::Cpu => Ok(Device::cpu()),
            DeviceArg::Cuda(index) => Device::cuda(index),
            DeviceArg::Emulator => Device::emulator(),
        }
    }
}

impl FromStr for DeviceArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<DeviceArg, &'static str> {
        match text {
            "auto" => Ok(DeviceArg::Auto),
            "cpu" => Ok(DeviceArg::Cpu),
            "emulator" => Ok(DeviceArg::Emulator),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|index| index.parse().ok())
                .map(DeviceArg::Cuda)
                .ok_or("unknown device; the devices are auto, cpu, emulator, and cuda:N, such as cuda:0"),
        }
    }
}
