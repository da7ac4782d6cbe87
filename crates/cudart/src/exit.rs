//! The end of a program: a program with faults fails.

use std::ptr;

/// Runs when the library is loaded, before all that the program registers for its end. So `at_exit` runs
/// after it.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // SAFETY: the function may run at the end of the program: it uses nothing that ends before. Without room
    // for it in the table, a program with faults ends with its own status.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    // Each was printed when it was found.
    let faults = emulator::take_faults().len();
    if faults == 0 {
        return;
    }
    // SAFETY: null is for all streams, which `exit` is about to flush anyway.
    unsafe { libc::fflush(ptr::null_mut()) };
    eprintln!("the emulator found {faults} fault{}", if faults == 1 { "" } else { "s" });
    // SAFETY: `exit` must not be called again while it runs, but `_exit` may.
    unsafe { libc::_exit(1) };
}

unsafe extern "C" {
    /// The C library's standard output.
    static stdout: *mut libc::FILE;
}

/// Writes what the program has printed so far, so that it comes before what a kernel prints.
///
/// Other streams are left alone: a thread that waits for input has locked its stream.
pub fn flush() {
    // SAFETY: a program does not close its standard output while it still launches kernels.
    unsafe { libc::fflush(stdout) };
}
