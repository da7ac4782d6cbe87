//! Kernels compiled by rustc (`rust/kernels.rs`): one whose threads exit early, and one whose half-warps
//! diverge.

use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};

const PTX: &str = include_str!("rust/kernels.ptx");
const BLOCK: usize = 256;

#[test]
fn kernels_of_rustc_run_as_on_a_gpu() {
    emulator::install().unwrap();
    let _context = cust::quick_init().unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let values: Vec<u32> = (0..1024).map(|i| i * 31 + 7).collect();
    for seed in [None, Some(1), Some(2), Some(3)] {
        emulator::set_settings(emulator::Settings { seed, ..emulator::settings() });
        for len in [300, 1, 31, 256, 257, 1000] {
            let from = DeviceBuffer::from_slice(&values[..len]).unwrap();
            let to = DeviceBuffer::from_slice(&vec![0u32; len]).unwrap();
            let blocks = len.div_ceil(BLOCK) as u32;
            // SAFETY: the emulator checks each access.
            let launched = unsafe {
                launch!(module.reverse<<<blocks, BLOCK as u32, 0, stream>>>(
                    from.as_device_ptr(), to.as_device_ptr(), len as u64))
            };
            assert_eq!((launched, emulator::take_faults()), (Ok(()), vec![]), "{len}, {seed:?}");
            let reversed = values[..len].chunks(BLOCK).flat_map(|block| block.iter().rev().copied());
            assert_eq!(to.as_host_vec().unwrap(), reversed.collect::<Vec<_>>(), "{len}, {seed:?}");
        }
        let from = DeviceBuffer::from_slice(&values).unwrap();
        let to = DeviceBuffer::from_slice(&[0u32; 1024]).unwrap();
        // SAFETY: the emulator checks each access.
        let launched = unsafe {
            launch!(module.half_sums<<<4, BLOCK as u32, 0, stream>>>(
                from.as_device_ptr(), to.as_device_ptr()))
        };
        assert_eq!((launched, emulator::take_faults()), (Ok(()), vec![]), "{seed:?}");
        let sums = values.chunks(16).flat_map(|half| [half.iter().sum::<u32>(); 16]);
        assert_eq!(to.as_host_vec().unwrap(), sums.collect::<Vec<_>>(), "{seed:?}");
    }
}
