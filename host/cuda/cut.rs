//! How segments and rows are cut up for launches, how many registers their kernels get, and the scratch
//! memory that they need.

use super::Gpu;
use super::modules::Grid;
use crate::Plan;
use crate::request::Types;
use gpu_reduce_kernels::chunks;
use gpu_reduce_kernels::kernels::Family;
use gpu_reduce_kernels::plan::{GROUP, SINGLE_ROWS, few_rows, least_block};
use gpu_reduce_kernels::segments::{self, Cut, SegmentBounds, THREADS, WARPS, most_positions, partial_slots};
use gpu_reduce_kernels::shape::{lines, runs, short_rows, spans, whole_rows};

/// A warp takes as many short rows as it folds at a time, or if there are warps enough as it has one load of
/// each for; but fewer if then fewer warps than this would have rows. Sums of `f32` on an H200, µs if all
/// warps that the GPU holds have rows, and so: 10,000 rows of 6 3.09 and 1.61, of 26 3.23 and 1.82, of 64
/// 2.72 and 2.09; 100,000 of 10 3.67 and 2.70; 1,000 of 4 1.61 and 1.47.
const LEAST_WARPS: u64 = 32;

/// Positions that are worth a warp if short segments are listed.
const LEAST_SHARE: u64 = 64;

/// Returns how many leaves segments must have on average for the host to list no short ones. A kernel that takes segments from lists
/// has 64 registers a thread, and spills when it folds sums of narrow floats: 2^28 bytes of `f16` in segments of 600 take 290 µs
/// with lists on an H200 and 156 without, in segments of 300 179 and 365. If accumulators
/// have 3 or 4 words, a lane has leaves of several segments in flight, and segments of up to 128 leaves are short: variances of segments of
/// 450 `f32` take 122 µs with lists, 149 without.
const fn larger_on_average(types: &Types) -> u64 {
    match (types.is_exact, types.words) {
        (false, 1) if types.bytes < 4 => 64,
        (false, 3 | 4) => 128,
        _ => 96,
    }
}

/// Leaves that are folded in the time that a segment takes besides, if there are no lists.
const WEIGHT: u64 = 64;

/// Leaves of a chunk that are worth a warp if there are more warps than chunks: the exchange between warps
/// takes 3 µs.
const LEAST_PART: u64 = 160;

/// How segments are cut up, the launches, and the scratch memory that they need.
pub(super) struct Needs {
    /// Without pointers to the memory.
    pub cut: Cut,
    /// The kernel whose warps have rows or segments, and its grid; if there are lists, also that of the kernel which makes
    /// them.
    pub warps: Option<(Family, Grid)>,
    /// The kernel whose blocks have chunks, and its grid.
    pub blocks: Option<(Family, Grid)>,
    /// Partial results of warps.
    pub places: usize,
    /// Words of lists of larger segments, and of the list of long ones.
    pub lists: usize,
    pub long: usize,
    /// Partial results of chunks.
    pub slots: usize,
}

/// Rows, as far as it matters for the choice of their kernel.
#[derive(Clone, Copy)]
struct Rows {
    count: u64,
    length: u64,
    /// Whether each leaf is a single access.
    is_aligned: bool,
}

impl Needs {
    /// What segments need in arrays at addresses that are multiples of `alignment` bytes.
    pub fn of(gpu: &Gpu, types: &Types, segments: &SegmentBounds, block: u32, alignment: usize) -> Self {
        if let Some(needs) = Self::of_sums(gpu, types, segments) {
            return needs;
        }
        let (width, row) = (types.width as u64, u64::from(block) * types.width as u64);
        let rows = segments.length().map(|length| Rows {
            count: segments.count,
            length,
            is_aligned: length.is_multiple_of(width) && alignment >= types.width * types.bytes,
        });
        if let Some(needs) = rows.and_then(|rows| Self::of_single_spans(gpu, types, rows, block)) {
            return needs;
        }
        let are_whole = rows.is_some_and(|rows| are_whole(gpu, types, rows, block));
        if let Some(rows) = rows
            && (are_whole || !are_parts(gpu, types, rows, block))
            && let Some(needs) = Self::of_rows(gpu, types, rows, block, are_whole)
        {
            return needs;
        }
        let few = Self::of_few(types, segments, block);
        let mut needs = match (Self::of_spans(gpu, types, segments, block, few.as_ref()), few) {
            (Some(spans), _) => spans,
            (None, Some(few)) => return few,
            (None, None) => Self::of_warps(gpu, types, segments, block, rows, are_whole),
        };
        let longest = segments.length().unwrap_or(segments.len);
        if !types.is_exact && longest > few_rows(block) * row {
            let most = segments::most_long(segments.len, row, block);
            let blocks = chunks::most_blocks(segments.len, most, types.width, block);
            needs.blocks = Some((Family::Chunks, Grid { blocks: blocks as u32, block, resident: block }));
            needs.long = 1 + most as usize;
            needs.slots = (blocks + blocks / u64::from(GROUP) + most) as usize;
        }
        needs
    }

    /// How exact sums of rows and segments are cut up. A segment has one block or, if there are too few segments to keep the GPU
    /// busy, several. The number of threads of a block does not change the bits, so it follows from the average length of the
    /// segments, whatever BLOCK is. Returns none if threads sum the segments faster, each in its registers: many short segments of
    /// `f32` and `bf16`.
    fn of_sums(gpu: &Gpu, types: &Types, segments: &SegmentBounds) -> Option<Self> {
        let SegmentBounds { count, len, .. } = *segments;
        let average = len / count.max(1);
        let least = types.summed_from?;
        let are_many = count >= LEAST_ROWS * u64::from(gpu.multiprocessors);
        // If segments are many, a thread folds several tiles, so that there are fewer threads to add up for each segment.
        let tiles = if are_many { 4 } else { 1 };
        let of_thread = tiles * (LOADS_OF_SUM * types.width) as u64;
        // If the number of segments is on the device, there may be fewer and longer ones than the host assumes.
        let least_threads = if segments.has_number() { MOST_THREADS_OF_SUM } else { 32 };
        let threads = (average / of_thread).next_power_of_two().min(MOST_THREADS_OF_SUM.into()) as u32;
        let threads = threads.max(least_threads);
        let resident = resident_for_sums(are_many, average, threads);
        let held = u64::from(gpu.multiprocessors * (resident / threads));
        if average < least && count > held {
            return None;
        }
        // A segment can have several blocks only if the host knows the number of segments: the block of the last part waits for
        // the others, and so none of them may have another segment to sum first.
        let wanted = (WAVES_OF_SUMS * held / count.max(1)).min(MOST_PARTS_OF_SUM);
        let wanted = wanted.min(average / (LEAST_PART_OF_SUM * types.width as u64)).max(1);
        let parts = if segments.has_number() { 1 } else { wanted };
        let blocks = if parts > 1 { count * parts } else { count.clamp(1, MOST_BLOCKS_OF_SUMS) };
        let cut = Cut { weight: parts as u32, ..Cut::NONE };
        let grid = Grid { blocks: blocks as u32, block: threads, resident };
        let slots = if parts > 1 { blocks as usize } else { 0 };
        Some(Self {
            cut,
            warps: None,
            blocks: Some((Family::Chunks, grid)),
            places: 1,
            lists: 0,
            long: 0,
            slots,
        })
    }

    /// How segments between offsets are cut up for the kernel of [`spans`]. Returns none if others are faster: that for
    /// [few](Self::of_few) segments, or those whose warps have segments.
    fn of_spans(
        gpu: &Gpu,
        types: &Types,
        segments: &SegmentBounds,
        block: u32,
        few: Option<&Self>,
    ) -> Option<Self> {
        let SegmentBounds { count, len, .. } = *segments;
        let row = u64::from(block) * types.width as u64;
        let average = len.checked_div(count)?;
        // The host does not know the offsets: a guess that is right if all segments have one length.
        let are_aligned = average * count == len && average.is_multiple_of(types.width as u64);
        let least = least_halves_of_spans(types, are_aligned)?;
        let are_short = len <= SHORT_SPAN * row * count;
        let are_faster = match few.and_then(|few| few.blocks) {
            Some((_, grid)) => {
                let held = gpu.multiprocessors * (MOST_RESIDENT / block);
                are_few_spans(types, (count, average / row, are_aligned), least, grid.blocks > held)
            }
            // Of 8 bytes, warps are faster: 3,000 segments of 500 `f64` 6.0 µs, 6.3 by this kernel (H200).
            None if are_short => count <= FEW_BLOCKS && types.bytes < 8 && types.words <= 2,
            None => 2 * average >= least * row,
        };
        if segments.length().is_some() || segments.has_number() || !are_faster {
            return None;
        }
        let of_segment = average.div_ceil(row);
        let lines = if average > MANY_LINES * row {
            LEAST_SPAN
        } else {
            // Most segments are one span then. The blocks for other spans are so few that the GPU holds all of them at a time.
            let least = if of_segment <= MOST_SINGLE { LEAST_SPAN.max(4 * of_segment) } else { LEAST_SPAN };
            (len / row / u64::from(2 * gpu.multiprocessors)).max(least).min(spans::MOST_LINES)
        };
        let share = lines * row;
        let blocks =
            count.checked_add(len.saturating_sub(1) / share).filter(|&blocks| blocks <= MOST_BLOCKS)?;
        let grid = if are_short {
            Grid { blocks: blocks as u32, block, resident: MOST_RESIDENT }
        } else {
            grid_of_spans(gpu, types, blocks, of_segment, block)
        };
        Some(Self {
            cut: Cut::of_spans(block, share as u32),
            warps: Some((Family::Spans, grid)),
            blocks: None,
            places: partial_slots(len, row, 0) as usize,
            lists: 0,
            long: 0,
            slots: 0,
        })
    }

    /// How rows of 9 to 64 lines are cut up for the kernel of [`spans`], where each row has a block. A chunk of such a row has one line or
    /// two; if each chunk had a block, one of these blocks would wait for the others. Returns none if another kernel is faster.
    /// Measured on an H200, µs, in part before [teams](grid_of_spans):
    ///
    /// | rows | chunks by blocks | rows by blocks | parts by warps |
    /// | --- | --- | --- | --- |
    /// | sums of 20 of 16,384 `f32` | 2.8 | 3.0 | |
    /// | of 40 of 16,384 | 3.4 | 3.0 | 5.3 |
    /// | of 100 of 10,485 | 4.9 | 3.3 | 6.5 |
    /// | of 300 of 10,485 | 9.6 | 5.3 | 8.3 |
    /// | of 300 of 30,000 | 14.3 | 12.4 | 14.1 |
    /// | of 1,000 of 10,485 | 15.7 | 14.5 | 15.1 |
    /// | of 1,000 of 30,000 | 33.7 | 31.7 | 34.9 |
    /// | of 4,096 of 16,384 | 66.3 | 63.4 | 69.7 |
    /// | of 3,986 of 16,834 | 66.3 | 70.5 | 71.2 |
    /// | norms of 300 of 10,485 | 14.8 | 6.8 | 9.5 |
    /// | of 1,000 of 30,000 | 34.7 | 34.1 | 36.1 |
    /// | variances of 100 of 10,485 | 11.0 | 6.1 | 6.8 |
    /// | of 300 of 16,384 | 19.7 | 11.8 | 12.2 |
    /// | of 300 of 30,000 | 28.0 | 19.5 | 17.1 |
    /// | of 1,000 of 16,384 | 42.4 | 28.9 | 24.0 |
    /// | of 60 of 20,000 | 7.5 | 6.6 | |
    /// | of 100 of 30,000 | 17.7 | 9.5 | |
    /// | of 200 of 20,000 | | 8.9 | 9.8 |
    /// | of 150 of 33,001 | 15.4 | 16.9 | |
    /// | of 500 of 60,001 | 58.5 | 50.9 | |
    /// | of 1,300 of 51,593 | 124 | 94 | |
    /// | of 1,000 of 65,536 | | 84 | 113 |
    fn of_single_spans(gpu: &Gpu, types: &Types, rows: Rows, block: u32) -> Option<Self> {
        let Rows { count, length, is_aligned } = rows;
        let row = u64::from(block) * types.width as u64;
        let lines = length.div_ceil(row);
        if block < 128
            || !(SINGLE_ROWS + 1..=2 * MOST_SINGLE).contains(&lines)
            || !spans::has_spans(types.folds_several, types.is_exact, types.words, types.bytes)
        {
            return None;
        }
        let multiprocessors = u64::from(gpu.multiprocessors);
        let are_faster = match types.words {
            3.. if lines <= 16 => count < 3 * multiprocessors,
            3.. if lines <= MOST_SINGLE => count < 2 * multiprocessors,
            3.. => count >= 2 * multiprocessors && types.bytes == 4,
            _ if lines > MOST_SINGLE => false,
            _ if count <= 12 * multiprocessors => true,
            // All loads of these are whole.
            1 => is_aligned && length == lines * row && lines.is_multiple_of(lines::LOADS as u64),
            _ => false,
        };
        if count < LEAST_SINGLE_SPANS || !are_faster {
            return None;
        }
        let cut = Cut::of_spans(block, (lines * row) as u32);
        let grid = grid_of_spans(gpu, types, count, lines, block);
        let warps = Some((Family::Spans, grid));
        Some(Self { cut, warps, blocks: None, places: 1, lists: 0, long: 0, slots: 0 })
    }

    /// How rows and segments are cut up for the kernels whose warps have them. `are_whole` says that warps fold the rows whole.
    fn of_warps(
        gpu: &Gpu,
        types: &Types,
        segments: &SegmentBounds,
        block: u32,
        rows: Option<Rows>,
        are_whole: bool,
    ) -> Self {
        let (width, row) = (types.width as u64, u64::from(block) * types.width as u64);
        let cut_for = |resident: u32| {
            let warps = (gpu.multiprocessors * resident * WARPS).into();
            (resident, cut_for(types, segments, warps, block, (rows, are_whole)))
        };
        let (mut resident, (mut cut, mut warps, mut has_lists)) = cut_for(segments::RESIDENT_BLOCKS);
        if !has_lists
            && let (wanted, (other, warps_of_other, false)) = cut_for(resident_blocks(types, rows, block))
        {
            (resident, cut, warps, has_lists) = (wanted, other, warps_of_other, false);
        }
        let blocks = warps.div_ceil(WARPS.into()) as u32;
        let grid = Grid { blocks, block: THREADS, resident: THREADS * resident };
        // Whole rows have no partial results.
        let has_parts = cut.weight > 0 || has_lists;
        let places = if has_parts { partial_slots(segments.len, row, cut.parts) as usize } else { 1 };
        let lists = if has_lists { (blocks * WARPS) as usize * segments::LIST } else { 0 };
        let family = match segments.length() {
            Some(length) if cut.weight == 0 => match short_rows::is_short(length, width, block) {
                true => Family::ShortRows,
                false => Family::Rows,
            },
            _ => Family::Larger,
        };
        let warps = Some((family, grid));
        Self { cut, warps, blocks: None, places, lists, long: 0, slots: 0 }
    }

    /// How segments between offsets are cut up if they are few: a block for the first chunk of each, and
    /// further ones for the other chunks that they may have. The kernels of warps search for each warp's
    /// segments first, and a warp takes longer for a segment.
    fn of_few(types: &Types, segments: &SegmentBounds, block: u32) -> Option<Self> {
        let SegmentBounds { count, len, .. } = *segments;
        let row = u64::from(block) * types.width as u64;
        let is_long = !types.is_exact && len > few_rows(block) * row;
        if segments.length().is_some() || types.words > LARGE || is_long {
            return None;
        }
        // Each may have as many chunks as an array of this length; or all together one for each row's end.
        let most = Plan::most_chunks(len, types.width, block);
        let (of_each, of_rows) = (count.saturating_mul(most), count + len.saturating_sub(1) / row);
        let (blocks, weight) = if of_each <= 2 * of_rows { (of_each, most as u32 - 1) } else { (of_rows, 0) };
        let few = FEW_BLOCKS.max(len / types.width as u64 / LOADS_OF_BLOCK);
        if !(1..=few).contains(&blocks) {
            return None;
        }
        let cut = Cut { block, weight, ..Cut::NONE };
        // Short segments wait for their offsets and then for their items, in as many blocks as fit.
        let resident = match types.words {
            1 if len <= SHORT_SPAN * row * count => 2048,
            2 if len <= SHORT_SPAN * row * count => 1536,
            _ => block.max(1024),
        };
        let grid = Grid { blocks: blocks as u32, block, resident };
        let slots = if most > 1 { blocks as usize + 1 } else { 0 };
        let blocks = Some((Family::Chunks, grid));
        Some(Self { cut, warps: None, blocks, places: 1, lists: 0, long: 0, slots })
    }

    /// How rows are cut up for the kernels whose blocks have a chunk or several; none for rows that the kernels of warps are
    /// faster for: those that warps fold whole, and rows of few lines (rows of their plans) by operators with large accumulators,
    /// which cost a block much to fold (exact sums of rows of 600 `f32`: 107 against 305 GB/s on an H100).
    fn of_rows(gpu: &Gpu, types: &Types, rows: Rows, block: u32, are_whole: bool) -> Option<Self> {
        let Rows { count, length, is_aligned } = rows;
        let width = types.width as u64;
        let are_lines = are_short_lines(types, rows, block);
        // A shorter line has the same bits, and fewer threads without items.
        let block = if are_lines { least_block(length, types.width) } else { block };
        let row = u64::from(block) * width;
        // Warps load unaligned items of 1 or 2 bytes by words of 4 bytes. That takes longer than a block for each row.
        let few = if types.is_exact && types.bytes < 4 && !is_aligned {
            u64::from(gpu.multiprocessors * MOST_RESIDENT / block)
        } else {
            FEW_ROWS
        };
        let has_blocks = count <= few && length > 32 * width && length <= 2 * row && types.words <= LARGE;
        if !has_blocks && are_whole && !are_lines {
            return None;
        }
        let plan = types.plan_on_a_device(length, block);
        let lines = lines_of_chunk(&plan);
        if types.words > LARGE && lines < 3 {
            return None;
        }
        let mut cut = Cut {
            ways: ways(false, length <= 2 * row),
            block,
            share: plan.chunk as u32,
            weight: plan.chunks,
            ..Cut::NONE
        };
        let chunks = u64::from(plan.chunks);
        // Blocks that have the same chunk of their rows, one or several each.
        let (mut family, mut of_chunk) = (Family::Chunks, count);
        if !has_blocks
            && types.folds_several
            && are_several(types, &plan, is_aligned, lines)
            && let Some(slots) = lines::of_chunk(lines)
        {
            let rows = u64::from(lines::of_block(slots));
            let many = u64::from(gpu.multiprocessors * MOST_RESIDENT / block);
            // A block delivers one row after another: 10 rows of 26,214 `f32` took 5.1 µs on an H100, and 3.1 with a chunk a block. But
            // 300 rows of 20,970 `f16` take 8.8 µs on an H200, and 16.4 with a chunk a block, which the GPU does not hold at a time.
            let least = if !types.is_exact && types.words <= 2 { 3 * many / 8 } else { many };
            if chunks == 1 || rows == 1 || count.div_ceil(rows) * chunks > least {
                family = Family::Lines;
                cut.share = (lines * plan.row) as u32;
                cut.ways = u64::from(slots) | ways(is_aligned, false);
                of_chunk = count.div_ceil(rows);
            }
        }
        let mut blocks = of_chunk.checked_mul(chunks).filter(|&blocks| blocks <= MOST_BLOCKS)?;
        let resident = resident_for_blocks(types, family, has_blocks || is_aligned, lines, block);
        // The blocks that the GPU holds at a time.
        let held = u64::from(gpu.multiprocessors * (resident / block));
        if chunks > 1 && (types.is_exact || plan.groups() == 0) && blocks > held {
            blocks = (blocks + held.div_ceil(chunks).min(of_chunk)).min(MOST_BLOCKS);
        }
        let blocks = Some((family, Grid { blocks: blocks as u32, block, resident }));
        let slots = if plan.chunks > 1 { count as usize * chunks::slots(&plan) as usize } else { 0 };
        Some(Self { cut, warps: None, blocks, places: 1, lists: 0, long: 0, slots })
    }
}

/// Returns whether warps fold whole rows: short ones, and others if there are enough and a warp folds them
/// faster than blocks do. What is faster was measured on an H200 and on an H100 with 2^28 bytes of rows;
/// [tuning](../../docs/tuning.md) has the figures.
fn are_whole(gpu: &Gpu, types: &Types, rows: Rows, block: u32) -> bool {
    let (Rows { count, length, is_aligned }, width) = (rows, types.width as u64);
    if types.words > whole_rows::MOST_WORDS {
        return false;
    }
    if short_rows::is_short(length, width, block) {
        return true;
    }
    if !whole_rows::have_warps(types.folds_several, types.is_exact, types.words, types.bytes) {
        return false;
    }
    let plan = types.plan_on_a_device(length, block);
    let lines = length.div_ceil(plan.row);
    if block < 128
        || length > few_rows(block) * plan.row
        || count < LEAST_ROWS * u64::from(gpu.multiprocessors)
    {
        return false;
    }
    match (types.is_exact, types.words) {
        (true, ..=2) if is_aligned => plan.chunks > 1 && types.bytes >= 4,
        (true, ..=2) => plan.chunks > 1 || lines < if types.bytes < 8 { 3 } else { 2 },
        (true, _) => true,
        (false, _) => {
            (lines_of_chunk(&plan) == 1 || is_faster_whole(types, rows, &plan))
                && !are_uneven(gpu, types, rows, block, &plan)
                && !are_faster_in_parts(types, rows, &plan)
        }
    }
}

/// Returns whether warps fold parts of rows faster than blocks fold chunks of them, if warps do not fold whole rows. Measured on an
/// H200 with 2^28 bytes of rows, µs:
///
/// | rows | chunks by blocks | parts by warps |
/// | --- | --- | --- |
/// | `argmax` of 70,001 `f32` | 123 | 78 |
/// | `argmax` of 262,144 `f32` | 91 | 78 |
/// | `argmax` of 20,001 `f64` | 114 | 81 |
/// | `argmax` of 150,001 `f16` | 197 | 101 |
/// | sums of 150,001 `u8` | 257 | 117 |
/// | maxima of 70,001 `f16` | 124 | 91 |
/// | sums of 5,001 `f16` | 112 | 94 |
/// | `var` of 1,500 of 16,384 `f32` | 59 | 33 |
/// | `var` of 2,000 of 30,000 `f32` | 130 | 71 |
/// | `var` of 300 of 5,242 `f64` | 15 | 9 |
/// | `var` of 1,500 of 32,768 `f16` | 76 | 50 |
/// | `logsumexp` of 300 of 10,485 `f32` | 22 | 19 |
/// | `logsumexp` of 1,500 of 30,000 `f32` | 223 | 129 |
/// | `logsumexp` of 600 of 65,536 `f32` | 91 | 70 |
/// | `var` of 1,300 of 51,592 `f32` | 150 | 118 |
/// | `var` of 600 of 65,536 `f32` | 89 | 73 |
/// | `var` of 958 of 70,000 `f32` | 123 | 102 |
/// | `var` of 958 of 70,000 `f16` | 123 | 85 |
/// | `var` of 671 of 100,000 `f32` | 81 | 94 |
///
/// Blocks are faster if rows are fewer than multiprocessors: `argmax` of 13 rows of 20,001 `f32` takes 4.4 µs by blocks, 5.7 by
/// warps.
fn are_parts(gpu: &Gpu, types: &Types, rows: Rows, block: u32) -> bool {
    let Rows { count, length, is_aligned } = rows;
    let plan = types.plan_on_a_device(length, block);
    let lines = lines_of_chunk(&plan);
    // Unaligned narrow items are loaded by words.
    let needs_words = types.bytes < 4 && !is_aligned;
    if count < gpu.multiprocessors.into() {
        return false;
    }
    match (types.is_exact, types.words) {
        (true, ..=2) => plan.chunks > 1 && lines <= 2 && needs_words,
        (true, 3 | 4) => plan.chunks > 1 && lines <= 4,
        (false, ..=2) => {
            let are_many = count >= 4 * LEAST_ROWS * u64::from(gpu.multiprocessors);
            plan.chunks == 1 && lines == 3 && needs_words && are_many
        }
        // A block would wait for one load of each thread, and then fold the values of all its threads. Variances take half the time if
        // warps fold parts.
        (false, 3 | 4) if plan.chunks > 1 && lines == 1 => {
            types.folds_several || count >= 2 * u64::from(gpu.multiprocessors)
        }
        (false, words) => {
            let are_low = plan.chunks > 1 && (2..=LOW_PARTS).contains(&lines) && types.bytes <= 4;
            matches!(words, 3 | 4) && are_low && is_aligned
                || are_uneven(gpu, types, rows, block, &plan)
                || are_faster_in_parts(types, rows, &plan)
        }
        _ => false,
    }
}

/// Returns whether warps fold whole rows of one chunk, of several lines, faster than blocks fold them. Measured on an H200 with 2^28
/// bytes of rows of `f32` and `f64`, 2^27 of `f16`, µs:
///
/// | rows | lines | chunks by blocks | whole rows by warps |
/// | --- | --- | --- | --- |
/// | `var` of 1,500 `f32` | 2 | 162 | 126 |
/// | of 4,001 `f32` | 4 | 134 | 78 |
/// | of 5,001 `f32` | 5 | 112 | 90 |
/// | of 8,001 `f32` | 8 | 91 | 74 |
/// | of 1,500 `f16` | 2 | 141 | 120 |
/// | of 1,501 `f16` | 2 | 118 | 140 |
/// | of 4,000 `f16` | 4 | 90 | 66 |
/// | of 6,001 `f16` | 6 | 80 | 75 |
/// | of 8,001 `f16` | 8 | 67 | 69 |
/// | of 1,001 `f64` | 2 | 70 | 82 |
/// | of 2,000 `f64` | 4 | 79 | 72 |
/// | of 3,001 `f64` | 6 | 74 | 76 |
/// | `nanmean` of 2,000 `f32` | 2 | 66 | 89 |
/// | of 4,001 `f32` | 4 | 97 | 75 |
/// | `logsumexp` of 4,001 `f32` | 4 | 134 | 113 |
/// | of 4,096 `f32` | 4 | 98 | 106 |
/// | of 5,001 `f32` | 5 | 110 | 124 |
/// | of 8,192 `f32` | 8 | 81 | 99 |
/// | of 4,001 `f16` (2^28 bytes) | 4 | 219 | 198 |
/// | of 4,096 `f16` | 4 | 163 | 185 |
/// | of 2,500 `f64` | 5 | 101 | 122 |
fn is_faster_whole(types: &Types, Rows { length, is_aligned, .. }: Rows, plan: &Plan) -> bool {
    match length.div_ceil(plan.row) {
        3 => true,
        _ if plan.chunks > 1 || types.words > 4 => false,
        4 if !types.folds_several => !is_aligned,
        3.. if !types.folds_several => false,
        2 => types.words == 4 && (types.bytes == 4 || types.bytes < 4 && is_aligned),
        4 | 5 => true,
        6 => types.bytes < 8,
        _ => types.bytes == 4,
    }
}

/// Returns whether rows have a chunk for each line, and more than a quarter of the warps would be idle if each warp folded whole rows:
/// `var` of 3,355 rows of 20,000 `f32` takes 100 µs by whole rows on an H200, 82 by parts.
fn are_uneven(gpu: &Gpu, types: &Types, rows: Rows, block: u32, plan: &Plan) -> bool {
    let warps = u64::from(gpu.multiprocessors * resident_blocks(types, Some(rows), block) * WARPS);
    let busy = rows.count.div_ceil(rows.count.div_ceil(warps).max(1));
    // Unaligned rows of operators with larger accumulators than `var` are faster otherwise: `skewness` of rows of 20,001 `f32` takes
    // 262 µs if blocks fold chunks, 346 if warps fold parts.
    let is_fast = rows.is_aligned || types.bytes < 4;
    let are_many = rows.count >= LEAST_ROWS * u64::from(gpu.multiprocessors);
    plan.chunks > 1 && plan.chunk == plan.row && are_many && is_fast && 4 * busy < 3 * warps
}

/// Returns whether rows are unaligned ones of several chunks, with accumulators of three or four words, that take least time if warps
/// fold parts of them: less than if warps fold whole rows, or blocks the chunks. Measured on an H200 with 2^28 bytes of rows, µs:
///
/// | rows | whole rows | parts | chunks by blocks |
/// | --- | --- | --- | --- |
/// | `var` of 16,385 `f32` | 93 | 91 | 147 |
/// | `var` of 20,001 `f32` | 108 | 90 | 142 |
/// | `var` of 70,001 `f32` | | 116 | 148 |
/// | `nanmean` of 20,001 `f32` | 99 | 80 | 105 |
/// | `var` of 20,001 `f16` | 158 | 164 | 275 |
/// | `var` of 51,593 `f32` | | 129 | 123 |
/// | `var` of 70,001 `f16` (2^27 bytes) | | 118 | 116 |
/// | `logsumexp` of 10,485 `f32` | 148 | 118 | |
/// | `logsumexp` of 20,001 `f32` | 145 | 115 | |
/// | `logsumexp` of 33,175 `f32` | | 126 | 236 |
/// | `logsumexp` of 51,593 `f32` | | 125 | 229 |
/// | `logsumexp` of 65,535 `f32` | | 122 | 224 |
/// | `logsumexp` of 70,001 `f32` | | 136 | 162 |
/// | `logsumexp` of 100,003 `f32` | | 121 | 142 |
fn are_faster_in_parts(types: &Types, rows: Rows, plan: &Plan) -> bool {
    let lines = lines_of_chunk(plan);
    !rows.is_aligned
        && plan.chunks > 1
        && matches!(types.words, 3 | 4)
        && types.bytes == 4
        && (matches!(lines, 1 | 3 | 4) || lines == 2 && !types.folds_several)
}

/// Returns the lines of a plan's first chunk.
fn lines_of_chunk(plan: &Plan) -> u64 {
    plan.chunk.min(plan.len).div_ceil(plan.row)
}

/// Returns whether short rows are lines of blocks, not rows of warps: if there are many, a row has more leaves than a warp has
/// lanes, most threads of a line have a leaf, and accumulators are small. A multiprocessor has twice as many loads in flight then.
/// Measured with 2^28 bytes of rows, µs on an H200 (and on an H100):
///
/// | rows | rows of warps | lines of blocks |
/// | --- | --- | --- |
/// | sums of 130 `f32` | 75 | 82 |
/// | sums of 136 `f32` | 72 (102) | 77 (90) |
/// | sums of 200 `f32` | 69 | 63 |
/// | maxima of 130 `f32` | 93 (105) | 125 (125) |
/// | norms of 130 `f32` | 113 | 140 |
/// | norms of 300 `f32` | 77 (101) | 83 (89) |
/// | sums of 272 `f16` | 78 (104) | 108 (111) |
/// | sums of 400 `bf16` | 69 (98) | 77 (90) |
/// | sums of 300 `f16`, unaligned | 142 | 131 |
fn are_short_lines(types: &Types, rows: Rows, block: u32) -> bool {
    let (Rows { count, length, is_aligned }, width) = (rows, types.width as u64);
    if !types.folds_several
        || !short_rows::is_short(length, width, block)
        || count * length * (types.bytes as u64) < SHORT_LINES
    {
        return false;
    }
    let leaves = length.div_ceil(width);
    // How many of 100 threads of a line have a leaf.
    let busy = 100 * leaves / u64::from(least_block(length, types.width));
    leaves > 32
        && match (types.is_exact, types.words) {
            (false, 1) if types.bytes < 4 => busy >= 70 || !is_aligned,
            (true, 1) if types.bytes < 4 => busy >= 70 && is_aligned,
            (true, 2) if types.bytes < 4 => busy >= 60 && is_aligned,
            (_, 1) => leaves > 33,
            (false, 2) => types.bytes >= 8 || types.bytes == 4 && busy >= 55,
            (true, 2) => is_aligned && (types.bytes >= 8 || busy >= 55),
            (true, 3 | 4) => is_aligned && types.bytes == 4 && leaves > 64,
            _ => false,
        }
}

/// Loads that a thread of an exact sum has in flight, at most.
const LOADS_OF_SUM: usize = 4;

/// The most threads of a block that sums exactly.
const MOST_THREADS_OF_SUM: u32 = 256;

/// Leaves of a part of a segment that are worth a block of their own.
const LEAST_PART_OF_SUM: u64 = 2048;

/// The most parts of a segment.
const MOST_PARTS_OF_SUM: u64 = 256;

/// If segments have several parts, the parts of all segments are this many times the blocks that the GPU holds at a time, at most.
const WAVES_OF_SUMS: u64 = 4;

/// The most blocks for exact sums of segments, if each takes one segment after another.
const MOST_BLOCKS_OF_SUMS: u64 = 1 << 20;

/// Threads that a multiprocessor holds at a time, at most.
const MOST_RESIDENT: u32 = 2048;

/// Bytes of rows from which on short ones are lines of blocks.
const SHORT_LINES: u64 = 8 << 20;

/// Lines of segments that the kernels of [`spans`] and of [`chunks`] fold by code for short ones.
const SHORT_SPAN: u64 = 2;

/// The least number of rows that have a block each instead of one for each line, and the most lines that they have: each line is a chunk.
const LEAST_SINGLE_SPANS: u64 = 32;
const MOST_SINGLE: u64 = 32;

/// The least lines of a span. If segments have more than `MANY_LINES` on average, all spans have `LEAST_SPAN` lines.
const LEAST_SPAN: u64 = 16;
const MANY_LINES: u64 = 64;

/// Rows for each multiprocessor from which on warps fold whole rows that are not short: half of the warps
/// that it holds.
const LEAST_ROWS: u64 = 16;

/// Words of accumulators that a block folds slowly.
const LARGE: usize = chunks::MOST_WORDS;

/// Returns whether rows whose chunks have `lines` lines, four at most, are reduced faster by the kernel of lines than by that of
/// chunks. Measured on an H100 with 2^28 bytes of rows, µs:
///
/// | rows | lines | the kernel of lines | of chunks |
/// | --- | --- | --- | --- |
/// | sums of 3,001 `f32` | 3 | 86.9 | 86.6 |
/// | sums of 4,001 `f16` | 2 | 87.9 | 115 |
/// | sums of 3,001 `i32` | 3 | 110 | 87.9 |
/// | sums of 171,001 `i32` (H200) | 4 | 63.2 | 71.8 |
/// | `argmax` of 4,096 `f32` | 4 | 92.4 | 100.6 |
/// | `var` of 4,096 `f32` | 4 | 109 | 95.5 |
fn are_several(types: &Types, plan: &Plan, is_aligned: bool, lines: u64) -> bool {
    let is_wide = types.width > 4;
    match (types.is_exact, types.words, lines) {
        (false, ..=2, _) => true,
        (true, 1, _) if types.bytes >= 4 => true,
        (true, ..=2, _) => is_aligned || lines <= 2 || types.bytes >= 8 || types.bytes == 4 && lines == 4,
        (_, _, 1) => true,
        (_, _, 2) => plan.chunks > 1 || !is_wide,
        (true, _, 4) if plan.chunks == 1 => is_aligned && types.bytes == 4,
        _ => plan.chunks > 1 && !is_aligned,
    }
}

/// A launch for [few](Needs::of_few) segments has at most `FEW_BLOCKS` blocks, or a block for each
/// `LOADS_OF_BLOCK` loads (32 KiB) of the array if these are more. A block without a chunk takes 0.6 ns
/// (H100), a tenth of the time in which 32 KiB are loaded; a block with a short segment 1.3 ns.
const FEW_BLOCKS: u64 = 4096;
const LOADS_OF_BLOCK: u64 = 2048;

/// The most rows of up to two lines that have a block each (H100, 100 rows of 655 `f32`: 2.18 µs if a block
/// has four, 1.78 if each has a block). Unaligned narrow items whose order does not matter have as many as the GPU holds (H200, sums
/// of 734 rows of 701 `u8`: 2.69 µs by warps, 1.97 by blocks; of 600 of 900 `i16` 2.32 and 2.12; of 1,000 of 555 `i16` 2.28 and 2.39).
const FEW_ROWS: u64 = 512;

/// The most blocks of a launch.
const MOST_BLOCKS: u64 = i32::MAX as u64;

/// Returns the threads of a multiprocessor for whose number a kernel whose blocks have chunks of rows is compiled. With
/// more threads more loads are in flight, but a thread has fewer registers: 64 with 1,024 threads, 32 with
/// 2,048. A kernel that spills in its loop is slow, so what is fastest depends on the accumulators.
/// [Measured](../../docs/tuning.md) on an H100 and an H200 with 768 to 2,048 threads.
fn resident_for_blocks(types: &Types, family: Family, is_aligned: bool, lines: u64, block: u32) -> u32 {
    let bytes = types.bytes;
    let threads = match (family == Family::Lines, types.is_exact, types.words) {
        // Three of a thread's four loads have a line. More threads make up for the fourth.
        (true, _, 1) | (true, true, 2) if bytes >= 4 && lines == 3 => 2048,
        (true, true, ..=2) if bytes >= 8 => 2048,
        (true, true, 1) if bytes >= 4 && is_aligned => 1536,
        (true, true, 1) if bytes >= 4 => 2048,
        (true, true, ..=2) => 1280,
        (true, true, 3 | 4) if bytes >= 4 => 2048,
        (true, false, 1) if bytes >= 4 => 2048,
        (true, false, 1) => 1280,
        (true, false, 2) if bytes == 4 => 1280,
        (true, false, 2) => 1536,
        (true, false, 3 | 4) if bytes >= 8 => 1280,
        (true, false, 3 | 4) if bytes == 4 && !is_aligned => 768,
        // With 64 registers the kernel spills. Variances of rows of `f16`, µs with 64 and with 80: rows of 54,379 283 and 229, of 107,907,
        // whose chunks have four lines, 215 and 219.
        (true, false, 3 | 4) if bytes == 2 && !is_aligned && lines <= 2 => 768,
        // With 64 registers and with 80, µs: `skewness` of rows of 16,385 `f16` 618 and 513, of 33,175 712 and 564, of 54,379 670 and 433;
        // `nanvar` of 16,385 709 and 746, of 54,379 683 and 728.
        (true, false, 7..) => 768,
        // A block folds one chunk. Unaligned items are loaded one by one.
        (false, true, 1) if !is_aligned && bytes >= 4 => 1536,
        (false, true, 2) if !is_aligned && bytes == 4 && lines >= 8 => 1536,
        (false, true, ..=2) if !is_aligned => 2048,
        (false, true, 2) => 1536,
        (false, true, 3 | 4) => 1280,
        // A tile, then a line alone: sums of rows of 9,001 `f16` 88.7 µs with 1,280 threads, 81.1 with 1,024; of 11,783 (six lines) 81.7
        // and 82.8.
        (false, false, 1) if !is_aligned && bytes < 4 && lines == 5 => 1024,
        (false, false, 1) if !is_aligned && bytes < 4 => 1280,
        (false, false, 1) if !is_aligned => 1536,
        // A tile, then a line alone. More threads make up for its single load.
        (false, _, ..=2) if bytes >= 4 && lines == 5 => 1536,
        (false, false, 2) if bytes != 4 => 1536,
        (false, false, 2) => 1280,
        (false, false, 3 | 4) if bytes <= 2 => 1280,
        (false, false, 5..) if bytes < 8 => 1280,
        _ => 1024,
    };
    // Whole blocks.
    (threads / block * block).max(block)
}

/// Returns the threads of a multiprocessor for whose number the kernel of exact sums is compiled, as [`resident_for_blocks`]. Measured
/// on an H200 with 2^28 bytes, µs:
///
/// | exact sums of segments | 640 threads | 768 | 1,024 |
/// | --- | --- | --- | --- |
/// | of 1,001 `f32` | 184 | 174 | 161 |
/// | of 600 `f64` | 260 | 241 | 218 |
/// | of 16,384 `f32` | 112 | 105 | 102 |
/// | of 70,001 `f64` | 80 | 98 | 90 |
/// | of 262,144 `f32` | 76 | 100 | 95 |
/// | of 100 of 655 `f32` | 3.5 | 3.8 | |
fn resident_for_sums(are_many: bool, average: u64, threads: u32) -> u32 {
    match (are_many, average) {
        (true, _) if threads < MOST_THREADS_OF_SUM => 1024,
        (true, ..0x8000) => 768,
        _ => 640,
    }
}

/// Returns how many halves of a line segments between offsets must have on average for blocks to fold them faster than warps, if ever
/// they do. Measured on an H200 with 2^28 bytes, µs:
///
/// | segments | by warps | by blocks |
/// | --- | --- | --- |
/// | sums of 4,987 `f32` | 79.2 | 85.4 |
/// | sums of 7,000 `f32` | 75.2 | 68.2 |
/// | sums of 7,481 `f32` | 80.5 | 68.2 |
/// | sums of 16,384 `f32` | 72.9 | 65.3 |
/// | sums of 2,048 `u64` | 74.2 | 69.2 |
/// | norms of 3,333 `f32` | 143 | 113 |
/// | norms of 6,001 `f32` | 165 | 99 |
/// | variances of 8,192 `f32` | 76 | 107 |
/// | variances of 16,385 `f32` | 160 | 125 |
fn least_halves_of_spans(types: &Types, are_aligned: bool) -> Option<u64> {
    if !spans::has_spans(types.folds_several, types.is_exact, types.words, types.bytes) {
        return None;
    }
    match (types.is_exact, types.words) {
        (_, 1) => Some(13),
        (true, _) => Some(if types.bytes < 8 { 13 } else { 8 }),
        (false, 2) => Some(if types.bytes < 8 { 6 } else { 13 }),
        (false, _) => (!are_aligned).then_some(24),
    }
}

/// Returns whether the kernel of spans folds segments faster than the kernel for [few](Needs::of_few) segments does. They have
/// `lines` whole lines on average. If they were not few, the kernel of spans would be used from `least` half lines on. The kernel
/// for few segments has a block for each chunk that there may be; `are_many_blocks` says that the GPU does not hold all of these at a
/// time. Measured on an H200, µs:
///
/// | segments | a block for each chunk | for each span |
/// | --- | --- | --- |
/// | sums of 100 of 163 `f32` | 1.78 | 1.84 |
/// | of 1,000 of 262 | 2.89 | 2.56 |
/// | of 1,000 of 1,048 | 4.48 | 3.31 |
/// | of 300 of 3,000 | 3.81 | 2.85 |
/// | of 20 of 8,000 | 2.75 | 2.65 |
/// | of 10 of 6,553 | 2.55 | 3.00 |
/// | of 10 of 10,485 | 3.65 | 3.2 |
/// | of 20 of 10,485 | 3.61 | 3.23 |
/// | of 20 of 30,000 | 4.75 | 4.03 |
/// | norms of 100 of 5,000 `f32` | 3.57 | 3.78 |
/// | of 300 of 3,000 | 4.42 | 3.70 |
fn are_few_spans(
    types: &Types,
    (count, lines, are_aligned): (u64, u64, bool),
    least: u64,
    are_many_blocks: bool,
) -> bool {
    let is_light = types.is_exact || types.words == 1;
    match lines {
        0..SHORT_SPAN => are_many_blocks && types.words <= 2,
        SHORT_SPAN..SINGLE_ROWS => {
            let are_one_load = lines < lines::LOADS as u64;
            is_light && (are_aligned || are_one_load) || are_many_blocks && types.words <= 2
        }
        // A segment of 9 to 32 lines has a chunk for each.
        SINGLE_ROWS..MOST_SINGLE => {
            2 * lines >= least && count >= if is_light && lines <= 16 { 10 } else { 32 }
        }
        _ => false,
    }
}

/// Returns the grid for `blocks` blocks of spans, most of which have `lines` lines. If the GPU holds all blocks at a time, they have as many
/// teams as fit, and are compiled for fewer threads a multiprocessor, as [`resident_for_blocks`] says. Measured on an H200, µs:
///
/// | reduction | 1 team | 2 | 3 | 4 |
/// | --- | --- | --- | --- | --- |
/// | sums of 100 segments of 10,485 `f32` | 3.73 | 3.61 | 3.44 | |
/// | of 100 rows of 10,485 | 3.73 | 3.48 | 3.31 | 3.49 |
/// | of 100 rows of 30,000 | 5.45 | 4.39 | 4.27 | 4.20 |
/// | of 200 rows of 30,000 | 10.2 | 8.44 | 10.9 | 10.4 |
/// | norms of 100 rows of 30,000 | 8.18 | 6.00 | 5.70 | 5.53 |
fn grid_of_spans(gpu: &Gpu, types: &Types, blocks: u64, lines: u64, block: u32) -> Grid {
    let most = if types.words <= 2 { 1024 } else { 768 };
    let fit = |teams: u32| blocks <= (gpu.multiprocessors * (most / (teams * block))).into();
    // Other spans are folded by their first team.
    let take_turns = (SINGLE_ROWS + 1..=MOST_SINGLE).contains(&lines);
    let useful = if take_turns { lines.div_ceil(lines::LOADS as u64) as u32 } else { 1 };
    if let Some(teams) = (1..=useful.min(most / block)).rev().find(|&teams| fit(teams)) {
        return Grid { blocks: blocks as u32, block: teams * block, resident: most };
    }
    let threads = match (types.is_exact, types.words) {
        (_, 1) | (true, _) => 1280,
        (false, 2) if types.bytes >= 8 => 1280,
        (false, 2) => 1024,
        (false, _) => 768,
    };
    Grid { blocks: blocks as u32, block, resident: (threads / block * block).max(block) }
}

/// Returns the blocks of a multiprocessor for whose number a kernel whose warps have rows or all segments is compiled, as
/// [`resident_for_blocks`]: with three, a thread has 80 registers, with five 48.
fn resident_blocks(types: &Types, rows: Option<Rows>, block: u32) -> u32 {
    let width = types.width as u64;
    match rows {
        // Of fewer items, 5,000 rows of 262 `f32` took 4.8 µs with more, 4.1 with four.
        Some(Rows { count, length, is_aligned })
            if types.words <= whole_rows::MOST_WORDS && short_rows::is_short(length, width, block) =>
        {
            let is_unaligned = !is_aligned && count * length >= 1 << 21;
            let waits = types.is_exact && types.words <= 2 && types.bytes > 1;
            if is_unaligned && waits { 5 } else { segments::RESIDENT_BLOCKS }
        }
        // Variances of unaligned rows of `f16` on an H200, µs with three and with four: 1,100 300 and 269, 2,000 193 and 171, 3,001 166 and
        // 166, 12,001 145 and 139, 15,001 136 and 174, 17,001 152 and 138, 20,001 170 and 162, 25,001 164 and 175, 32,001 250 and 144.
        Some(Rows { length, is_aligned: false, .. })
            if !types.is_exact
                && types.bytes == 2
                && matches!(types.words, 3 | 4)
                && matches!(length.div_ceil(u64::from(block) * width), 2..=3 | 17..=32) =>
        {
            segments::RESIDENT_BLOCKS
        }
        // With three, neither the loop over narrow items nor large accumulators spill.
        _ if !types.is_exact && types.words == 1 && types.bytes < 4 => 3,
        _ => match (types.is_exact, types.words) {
            (_, ..=1) | (true, 2) => segments::RESIDENT_BLOCKS,
            (true, _) if types.bytes == 2 => segments::RESIDENT_BLOCKS,
            (false, 2 | 7..) if types.bytes < 8 => segments::RESIDENT_BLOCKS,
            _ => 3,
        },
    }
}

/// Returns what kernels of rows need not find out.
fn ways(is_aligned: bool, is_short: bool) -> u64 {
    let bit = |is_so, bit| if is_so { bit } else { 0 };
    bit(is_aligned, Cut::ALIGNED) | bit(is_short, Cut::SHORT)
}

/// The most lines of chunks that are [low](Cut::LOW), of whole rows and of rows whose parts warps fold. `var` of `f32` on an H200, µs
/// without the bit and with it: whole rows of 2,049 128 and 106, of 3,001 104 and 88, of 4,400 81 and 77, of 8,001 77 and 74; rows
/// of 51,592 (chunks of two lines) 150 and 118, of 70,000 (three) 123 and 102, of 100,001 (four, where registers spill) 96 and 99.
const LOW_WHOLE: u64 = SINGLE_ROWS;
const LOW_PARTS: u64 = 3;

/// Returns [`Cut::LOW`] if the chunks of rows have `lines` lines, which are two to `most`.
fn low(types: &Types, lines: u64, most: u64) -> u64 {
    if !types.is_exact && (2..=most).contains(&lines) { Cut::LOW } else { 0 }
}

/// Positions of a warp that finds runs by heads: at least this number, or a multiple. These are as many words of heads as it takes at
/// a time if each item is a run: sums of 2^26 `f32` by runs of one key take 401 µs on an H200 if a warp has 7,968 positions, 390 with
/// 8,192 (another H200).
const LEAST_POSITIONS: u64 = 256;

/// Returns how segments are cut up for `warps` warps, how many warps they keep busy, and whether short
/// segments are listed. `are_whole` says that warps fold the rows whole.
fn cut_for(
    types: &Types,
    segments: &SegmentBounds,
    warps: u64,
    block: u32,
    (rows, are_whole): (Option<Rows>, bool),
) -> (Cut, u64, bool) {
    let width = types.width as u64;
    let count = segments.count.max(1);
    let average = segments.len / count;
    let mut cut = Cut { block, ..Cut::NONE };
    if let Some(Rows { length, is_aligned, .. }) = rows.filter(|_| are_whole) {
        // As many rows as a warp folds at a time, or a multiple.
        let mut at_once = short_rows::at_once(length.max(1), width);
        let of_lane = short_rows::of_lane(length, width, types.is_exact && !is_aligned);
        let of_load = short_rows::of_load(length.max(1), of_lane);
        let lines = lines_of_chunk(&types.plan_on_a_device(length, block));
        if count <= of_load * warps {
            at_once = of_load;
        }
        while at_once > 1 && count / at_once < LEAST_WARPS {
            at_once /= 2;
        }
        cut.share = count.div_ceil(warps).next_multiple_of(at_once) as u32;
        let is_short = if !short_rows::is_short(length, width, block) {
            !types.is_exact && lines <= 1
        } else if u64::from(cut.share) <= of_load {
            // The lanes of a row, as a logarithm.
            cut.parts = (32 / of_load).ilog2();
            true
        } else {
            false
        };
        cut.ways = ways(is_aligned, is_short) | low(types, lines, LOW_WHOLE);
        return (cut, count.div_ceil(cut.share.into()), false);
    }
    if segments.has_heads() {
        // Two waves of warps.
        let positions = runs::positions(segments.len);
        let share = positions.div_ceil(2 * warps).clamp(LEAST_POSITIONS, most_positions(width));
        let share = share.next_multiple_of(LEAST_POSITIONS);
        cut.ways = Cut::HEADS;
        cut.share = share as u32;
        return (cut, positions.div_ceil(share), true);
    }
    // Short segments are listed if there are more of them than warps. Sums of `f32` on an H200, µs without lists and with them: 4,404
    // segments of 27 7.4 and 5.7, 8,000 of 10 8.5 and 4.9, 8,000 of 60 7.9 and 6.9; 2^22 items in runs of 1,000, whose number is on the
    // device, 18.1 and 23.9, in runs of 5,000 19.8 and 26.7; 2^16 in runs of 8, two for a warp, 14.2 and 9.9.
    let has_lists = segments.length().is_none()
        && count > warps
        // The number may be less, and the average more.
        && (segments.has_number() || average < larger_on_average(types) * width);
    if let Some(Rows { length, is_aligned, .. }) = rows {
        let lines = lines_of_chunk(&types.plan_on_a_device(length, block));
        cut.ways = ways(is_aligned, lines <= 1) | low(types, lines, LOW_PARTS);
    }
    let mut waves = 1;
    if has_lists {
        cut.weight = width as u32;
        waves = (segments.len + width * count).div_ceil(most_positions(width) * warps).max(1);
    } else {
        cut.weight = (WEIGHT * width) as u32;
        let chunks = u64::from(types.plan_on_a_device(average, block).chunks);
        let parts = warps.div_ceil(count * chunks).next_power_of_two();
        cut.parts = parts.min(average / chunks / (LEAST_PART * width)).max(1).ilog2().min(5);
    }
    let positions = segments.len + u64::from(cut.weight) * count;
    let least = if has_lists { LEAST_SHARE } else { cut.weight.into() };
    let share = positions.div_ceil(waves * warps).max(least);
    cut.share = share as u32;
    (cut, positions.div_ceil(share), has_lists)
}
