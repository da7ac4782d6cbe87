//! Compares every shipped kernel, launched through cust as the library does, with loops on the host.
//!
//! The values are such that every order of reduction gives the same bits.

use crate::shipped;
use cust::launch;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};
use std::ffi::CString;

/// Returns a small whole number; for products 1, -1 or rarely 2, so that they stay exact.
fn value(operator: &str, signed: bool, index: usize) -> i64 {
    let random = (index as u64 ^ 0x9e37_79b9).wrapping_mul(0xd134_2543_de82_ef95) >> 40;
    match operator {
        "prod" if index % 5000 == 7 => 2,
        "prod" if signed && random % 2 == 1 => -1,
        "prod" => 1,
        _ if signed => random as i64 % 17 - 8,
        _ => random as i64 % 17,
    }
}

/// Reduces whole numbers.
fn reduce(operator: &str, values: &[i64]) -> i64 {
    let values = values.iter().copied();
    match operator {
        "sum" => values.sum(),
        "prod" => values.fold(1, i64::wrapping_mul),
        "min" => values.min().unwrap(),
        "max" => values.max().unwrap(),
        other => panic!("no operator {other}"),
    }
}

/// Returns the bytes of a small whole number in a type.
fn bytes(ty: &str, value: i64) -> Vec<u8> {
    let float = value as f32;
    match ty {
        "i8" | "u8" => (value as u8).to_ne_bytes().to_vec(),
        "i16" | "u16" => (value as u16).to_ne_bytes().to_vec(),
        "i32" | "u32" => (value as u32).to_ne_bytes().to_vec(),
        "i64" | "u64" => value.to_ne_bytes().to_vec(),
        "f32" => float.to_ne_bytes().to_vec(),
        "f64" => (value as f64).to_ne_bytes().to_vec(),
        "bf16" => ((float.to_bits() >> 16) as u16).to_ne_bytes().to_vec(),
        "f16" => {
            // Exact for whole numbers up to 2,048.
            let bits = float.to_bits();
            let magnitude = (bits << 1 >> 14).saturating_sub((127 - 15) << 10);
            ((bits >> 31 << 15 | magnitude) as u16).to_ne_bytes().to_vec()
        }
        other => panic!("no type {other}"),
    }
}

/// Returns the type of a reduction's result.
fn output<'a>(operator: &str, ty: &'a str) -> &'a str {
    match (operator, ty) {
        ("min" | "max", ty) => ty,
        (_, "f16" | "bf16") => "f32",
        (_, "f32" | "f64") => ty,
        (_, ty) if ty.starts_with('u') => "u64",
        _ => "i64",
    }
}

/// Loads a kernel and reduces inputs of several lengths with it, of the type in its name, and of the other type that it serves.
fn run(name: &str, text: &str) {
    let [operator, ty, block] = name.split('_').collect::<Vec<_>>()[..] else { panic!("{name}") };
    let block: u32 = block.parse().unwrap();
    reduce_all(name, text, (operator, ty, 0), block);
    let twins = [("u8", "i8"), ("u16", "i16"), ("u32", "i32"), ("u64", "i64"), ("f16", "bf16")];
    if let Some((_, twin)) = twins.iter().find(|(first, _)| *first == ty) {
        reduce_all(name, text, (operator, twin, 1 << 31), block);
    }
}

/// Loads a kernel and reduces inputs of several lengths of a type, which `member` says.
fn reduce_all(name: &str, text: &str, (operator, ty, member): (&str, &str, u32), block: u32) {
    let size = bytes(ty, 0).len();
    let text = CString::new(text).unwrap();
    let registers = (65_536 / block).min(255);
    let module = Module::from_ptx_cstr(&text, &[ModuleJitOption::MaxRegisters(registers)])
        .unwrap_or_else(|error| panic!("{name}: {error}: {:?}", emulator::last_load_error()));
    let function = module.get_function(name).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();

    let row = block as usize * (16 / size);
    for len in [1, 37, 8 * row, 8 * row + 1, 14 * row + 5] {
        // As the library plans: chunks of whole tiles of four rows; a short input is one chunk.
        let chunk = if len <= 8 * row { 8 * row } else { 4 * row };
        let chunks = len.div_ceil(chunk) as u32;
        let values: Vec<i64> = (0..len).map(|i| value(operator, !ty.starts_with('u'), i)).collect();
        let data: Vec<u8> = values.iter().flat_map(|&value| bytes(ty, value)).collect();
        // The input starts inside the allocation, and is aligned to an element only.
        let input = DeviceBuffer::from_slice(&[vec![0; 3 * size], data].concat()).unwrap();
        let start = input.as_device_ptr().as_raw() + 3 * size as u64;
        // Slots for the chunks' partial results: one word per 32 bits; its upper half says whether it is
        // full.
        let slots = DeviceBuffer::from_slice(&vec![0u64; 2 * chunks as usize]).unwrap();
        let result = DeviceBuffer::from_slice(&[0u64]).unwrap();
        // SAFETY: the arguments are those that the library passes to the kernel. A kernel of one type ignores the last one.
        unsafe {
            launch!(function<<<chunks, block, 0, stream>>>(
                start,
                chunk as u32,
                0u32, // chunks before
                len as u64,
                slots.as_device_ptr(),
                result.as_device_ptr(),
                start,
                member
            ))
            .unwrap();
        }
        let ended = stream.synchronize();
        assert!(ended.is_ok(), "{name} of {ty}, {len} elements: {:?}", emulator::take_faults());
        let expected = bytes(output(operator, ty), reduce(operator, &values));
        let got = result.as_host_vec().unwrap()[0].to_ne_bytes();
        assert_eq!(got[..expected.len()], expected, "{name} of {ty}, {len} elements");
        assert!(slots.as_host_vec().unwrap().iter().all(|&word| word == 0), "{name} of {ty}, {len} elements");
        let (kernel, counters) = emulator::last_counters().unwrap();
        assert_eq!((kernel.as_str(), counters.blocks), (name, u64::from(chunks)));
    }
}

/// Runs all kernels, on two host threads that share the device.
fn run_all() {
    emulator::install().unwrap();
    let mut kernels = shipped::kernels();
    // Keep the kernels whose operator `reduce` knows.
    kernels.retain(|name, _| {
        let words: Vec<_> = name.split('_').collect();
        words.len() == 3 && ["sum", "prod", "min", "max"].contains(&words[0])
    });
    // Twelve types have the kernels of seven.
    assert_eq!(kernels.len(), 4 * 7 * 6);
    std::thread::scope(|scope| {
        for half in 0..2 {
            let kernels = &kernels;
            scope.spawn(move || {
                let _context = cust::quick_init().unwrap();
                kernels.iter().skip(half).step_by(2).for_each(|(name, text)| run(name, text));
            });
        }
    });
}

#[test]
fn every_kernel_gives_what_a_loop_gives() {
    run_all();
}

#[test]
#[ignore = "takes minutes: `cargo test -p gpu_reduce_emulator --test suite -- --ignored kernels::`"]
fn every_kernel_gives_it_in_a_hundred_random_orders() {
    for seed in 1..=100 {
        emulator::set_settings(emulator::Settings { seed: Some(seed), ..emulator::settings() });
        run_all();
        println!("seed {seed}");
    }
}

/// One thread allocates, copies and frees memory and loads modules while the other launches.
#[test]
fn memory_comes_and_goes_while_kernels_run() {
    emulator::install().unwrap();
    let sum = shipped::kernel("sum_f32_256");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _context = cust::quick_init().unwrap();
            for _ in 0..3 {
                run("sum_f32_256", &sum);
            }
        });
        scope.spawn(|| {
            let _context = cust::quick_init().unwrap();
            for round in 0..300u32 {
                let values: Vec<u32> = (0..1000).map(|i| i * round).collect();
                let buffer = DeviceBuffer::from_slice(&values).unwrap();
                assert_eq!(buffer.as_host_vec().unwrap(), values);
                let module = Module::from_ptx(
                    ".version 6.0 .target sm_70 .address_size 64 .visible .global .u32 x = 5;",
                    &[],
                )
                .unwrap();
                let mut x = 0u32;
                module.get_global::<u32>(c"x").unwrap().copy_to(&mut x).unwrap();
                assert_eq!(x, 5);
            }
        });
    });
}
