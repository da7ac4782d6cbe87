//! Large tables in huge pages.

use bytemuck::Pod;

/// Returns zeros. On Linux a large table is in huge pages: a table that is read and written at random has an
/// address to translate for each access, and thousands of small pages to be faulted in.
pub fn zeros<T: Pod>(len: usize) -> Vec<T> {
    let table = vec![T::zeroed(); len];
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let bytes = size_of_val(&table[..]);
        let skipped = table.as_ptr().cast::<u8>().align_offset(HUGE);
        if let Some(rest @ HUGE..) = bytes.checked_sub(skipped) {
            let start = table.as_ptr().cast::<u8>().wrapping_add(skipped);
            // SAFETY: the memory is the table's own and starts at a page. The advice does not change its
            // contents; if the kernel refuses it, nothing is lost.
            _ = unsafe { libc::madvise(start.cast_mut().cast(), rest, libc::MADV_HUGEPAGE) };
        }
    }
    table
}
