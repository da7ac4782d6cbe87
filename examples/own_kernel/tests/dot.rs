//! Tests the kernels on the emulator, which checks each memory access and needs no GPU.

use cust::error::CudaError;
use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use emulator::Settings;
use emulator::fault::FaultKind;
use std::error::Error;

#[test]
fn dot() -> Result<(), Box<dyn Error>> {
    emulator::install()?;
    let _context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let upload = |data: &[f32]| DeviceBuffer::from_slice(data);

    // Sums of small integers are exact, so the order does not matter.
    let x: Vec<f32> = (0..5000).map(|i| (i % 17) as f32).collect();
    let y: Vec<f32> = (0..5000).map(|i| (i % 5) as f32 - 2.0).collect();
    for len in [1, 31, 32, 255, 256, 257, 5000] {
        let expected: f32 = x[..len].iter().zip(&y).map(|(x, y)| x * y).sum();
        let (x, y) = (upload(&x[..len])?, upload(&y[..len])?);
        assert_eq!(own_kernel::dot(&stream, &x, &y)?, expected);
        // Random orders of warps, which reveal missing barriers.
        for seed in 0..5 {
            emulator::set_settings(Settings { seed: Some(seed), ..emulator::settings() });
            assert_eq!(own_kernel::dot(&stream, &x, &y)?, expected, "seed {seed}");
        }
    }

    // The counters of a launch: all loads are coalesced, and there are no bank conflicts.
    let (_, counters) = emulator::last_counters().ok_or("a launch")?;
    assert_eq!(counters.global_load_sectors, 2 * 5000_u64.div_ceil(8));
    assert_eq!(counters.shared_load_conflicts + counters.shared_store_conflicts, 0);

    // A wrong length, one element too long: the emulator finds and locates the access.
    let module = Module::from_ptx(own_kernel::PTX, &[])?;
    let (x, y, partials) = (upload(&x[..256])?, upload(&y[..256])?, upload(&[0.0; 2])?);
    // SAFETY: the emulator checks each access.
    unsafe {
        launch!(module.dot<<<2, 256, 0, stream>>>(
            x.as_device_ptr(), y.as_device_ptr(), 257u64, partials.as_device_ptr()
        ))?;
    }
    assert_eq!(stream.synchronize(), Err(CudaError::IllegalAddress));
    let fault = emulator::take_faults().remove(0);
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }));
    assert_eq!((fault.block, fault.threads), ([1, 0, 0], vec![[0, 0, 0]]));
    let (file, line) = fault.place.and_then(|place| place.source).ok_or("debug information")?;
    let source = include_str!("../kernels/src/lib.rs").lines().nth(line as usize - 1).unwrap_or_default();
    assert!(file.ends_with("lib.rs") && source.contains("*x.add(i)"), "{file}:{line}: {source}");

    // A panic: a failed assertion with the line that panicked.
    let (indices, gathered) = (DeviceBuffer::from_slice(&[3u32, 256, 5])?, upload(&[0.0; 3])?);
    // SAFETY: there are as many values as the kernel is told, and three threads.
    unsafe {
        launch!(module.gather<<<1, 3, 0, stream>>>(
            x.as_device_ptr(), 256u64, indices.as_device_ptr(), gathered.as_device_ptr()
        ))?;
    }
    assert_eq!(stream.synchronize(), Err(CudaError::AssertError));
    let fault = emulator::take_faults().remove(0);
    let line =
        include_str!("../kernels/src/lib.rs").lines().position(|line| line.contains("values[*indices"));
    let place = format!("lib.rs:{}: kernel: Assertion `no panic` failed", line.ok_or("a line")? + 1);
    let text = fault.to_string();
    assert!(text.contains(&place) && text.contains("core::panicking::panic_bounds_check"), "{text}");
    assert_eq!(fault.threads, [[1, 0, 0]]);
    Ok(())
}
