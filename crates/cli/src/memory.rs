//! Memory for whole files and their items.

use bytemuck::{NoUninit, cast_slice};
use bytes::Bytes;

/// The memory of the items, as bytes.
pub fn into_bytes<T: NoUninit + Send>(items: Vec<T>) -> Bytes {
    struct Items<T>(Vec<T>);

    impl<T: NoUninit> AsRef<[u8]> for Items<T> {
        fn as_ref(&self) -> &[u8] {
            cast_slice(&self.0)
        }
    }

    Bytes::from_owner(Items(items))
}

/// Reserves room for `count` more items, if there is memory for them. On Linux it is in huge pages, because
/// faults of small pages are a third of the CPU time of reading a Parquet file.
pub fn reserve<T>(items: &mut Vec<T>, count: usize) {
    if items.try_reserve_exact(count).is_err() {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let room = items.spare_capacity_mut();
        let start = room.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(HUGE);
        if let Some(bytes @ HUGE..) = size_of_val(room).checked_sub(skipped) {
            // SAFETY: the memory is the vector's own and starts at a page. The advice does not change its
            // contents; if the kernel refuses it, nothing is lost.
            _ = unsafe { libc::madvise(start.wrapping_add(skipped).cast(), bytes, libc::MADV_HUGEPAGE) };
        }
    }
}

/// Reserves as much room again as there are bytes, and at least `least`; or half of the memory that is left,
/// if that is less. Returns whether there is room for `least` bytes: a sixteenth of the machine's memory
/// stays free.
pub fn double(bytes: &mut Vec<u8>, least: usize) -> bool {
    let wanted = bytes.len().max(least);
    let more = match left() {
        Some((left, all)) if left < all / 16 => return false,
        Some((left, _)) => wanted.min((left / 2).max(least)),
        None => wanted,
    };
    bytes.try_reserve_exact(more).is_ok()
}

/// Returns the bytes of memory that programs can still take, and all bytes, if the system says so.
fn left() -> Option<(usize, usize)> {
    #[cfg(target_os = "linux")]
    {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let kibibytes = |name| -> Option<usize> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let (mut left, mut all) = (kibibytes("MemAvailable")? << 10, kibibytes("MemTotal")? << 10);
        // A container may have less.
        if let Some(most) = number("/sys/fs/cgroup/memory.max")
            && let Some(taken) = number("/sys/fs/cgroup/memory.current")
            && most < all
        {
            let stat = std::fs::read_to_string("/sys/fs/cgroup/memory.stat").unwrap_or_default();
            let of_files = stat.lines().find_map(|line| line.strip_prefix("file ")?.parse().ok());
            // What caches files can be taken.
            let taken = taken.saturating_sub(of_files.unwrap_or(0));
            (left, all) = (left.min(most.saturating_sub(taken)), most);
        }
        Some((left, all))
    }
    #[cfg(not(target_os = "linux"))]
    None
}
