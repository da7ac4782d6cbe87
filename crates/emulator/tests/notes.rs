//! Notes of launches: they stop nothing, and come once.

use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use emulator::fault::{FaultKind, Level};

/// Each block stores 7 in one place.
const NOTED: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry noted(.param .u64 to) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    st.global.u32 [%rd1], 7;
    ret;
}";

#[test]
fn notes_stop_nothing_and_come_once() {
    emulator::install().unwrap();
    let _context = cust::quick_init().unwrap();
    let module = Module::from_ptx(NOTED, &[]).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let word = DeviceBuffer::from_slice(&[0u32]).unwrap();
    for _ in 0..2 {
        for _ in 0..3 {
            // SAFETY: the kernel takes one pointer, to one word.
            unsafe { launch!(module.noted<<<4, 1, 0, stream>>>(word.as_device_ptr())).unwrap() };
            stream.synchronize().unwrap();
        }
        assert_eq!(word.as_host_vec().unwrap(), [7]);
        assert_eq!(emulator::last_counters().unwrap().0, "noted");
        assert!(emulator::take_faults().iter().all(|fault| fault.kernel != "noted"));
        // (Other tests of this program may have notes.)
        let notes: Vec<_> =
            emulator::take_notes().into_iter().filter(|note| note.kernel == "noted").collect();
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert_eq!(note.level(), Level::Note);
        assert!(matches!(&note.kind, FaultKind::SameValue { first, .. } if first.place.line == 8), "{note}");
    }
}
