//! `printf` and `assert` in kernels compiled by nvcc (`prints/kernels.cu`).
//!
//! The test starts itself as a child process, and reads the child's standard output and error.

use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys::{cuCtxSynchronize, cudaError_enum::CUDA_ERROR_ASSERT};
use std::process::Command;

const PTX: &str = include_str!("prints/kernels.ptx");
const CHILD: &str = "GPU_REDUCE_TEST_PRINTS";
/// Lines before and after the kernels' output.
const MARKS: [&str; 2] = ["the kernels begin", "the kernels end"];
const THREADS: u32 = 40;
const PRINTING: u32 = 70;

#[test]
fn kernels_print_and_assert() {
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kernels_print_and_assert", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let [output, errors] = [child.stdout, child.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(child.status.success(), "{output}{errors}");
    let (_, output) = output.split_once(MARKS[0]).unwrap();
    let (output, _) = output.split_once(MARKS[1]).unwrap();

    // Each line is whole. The lines of a thread are in order; the threads are in any order.
    let mut lines: Vec<&str> = output.trim().lines().collect();
    assert_eq!(lines.len() as u32, 3 * PRINTING, "{output}");
    for i in 0..PRINTING {
        let letter = |first: u8| char::from(first + (i % 26) as u8);
        let third = "3.333333e-01";
        let hexadecimal = if i == 0 { "0".to_owned() } else { format!("{:#x}", 255 * i) };
        let expected = [
            format!("thread {i} of 40: {:5.2} a text {}", f64::from(i) / 4.0, -5_000_000_000 * i64::from(i)),
            "thread without arguments 100%".to_owned(),
            format!("thread {i:6} [{:<6}|{i:+}|{}|{hexadecimal}|{third}]", letter(b'a'), letter(b'A')),
        ];
        let mut after = 0;
        for line in expected {
            let place = lines[after..].iter().position(|found| *found == line);
            let place = after + place.unwrap_or_else(|| panic!("not `{line}` in {lines:#?}"));
            // A line without a number may be another thread's.
            after = if line.ends_with('%') { after } else { place };
            lines.remove(place);
        }
    }

    // CUDA's wording, once per failing thread.
    for (block, thread) in [(0, 3), (1, 0)] {
        let line = format!(
            "kernels.cu:22: void asserts(const int *): block: [{block},0,0], thread: [{thread},0,0] \
             Assertion `values[i] != 7` failed."
        );
        assert_eq!(errors.lines().filter(|found| *found == line).count(), 1, "{line} in {errors}");
    }
}

fn run() {
    emulator::set_settings(emulator::Settings { threads: 2, ..emulator::settings() });
    emulator::install().unwrap();
    let _context = cust::quick_init().unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let counts = DeviceBuffer::from_slice(&vec![77i32; 3 * PRINTING as usize]).unwrap();
    let text = DeviceBuffer::from_slice(b"a text\0").unwrap();
    println!("\n{}", MARKS[0]);
    // SAFETY: the emulator checks each access.
    unsafe {
        launch!(module.prints<<<2, THREADS, 0, stream>>>(
            counts.as_device_ptr(), text.as_device_ptr(), PRINTING as i32))
    }
    .unwrap();
    println!("{}", MARKS[1]);
    assert_eq!(emulator::take_faults(), []);
    assert_eq!(counts.as_host_vec().unwrap(), [5, 0, 7].repeat(PRINTING as usize));

    // Plants a failing value in each block in turn.
    for block in 0..2 {
        let mut values = vec![5i32; 2 * THREADS as usize];
        values[[3, 40][block]] = 7;
        let values = DeviceBuffer::from_slice(&values).unwrap();
        // SAFETY: the emulator checks each access.
        unsafe { launch!(module.asserts<<<2, THREADS, 0, stream>>>(values.as_device_ptr())) }.unwrap();
        // SAFETY: it takes nothing.
        assert_eq!(unsafe { cuCtxSynchronize() }, CUDA_ERROR_ASSERT);
        let faults = emulator::take_faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!((faults[0].code(), faults[0].block), (710, [block as u32, 0, 0]), "{}", faults[0]);
        assert!(faults[0].to_string().contains("Assertion `values[i] != 7` failed"), "{}", faults[0]);
    }
}
