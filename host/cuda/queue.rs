//! Enqueuing requests on a stream.

use super::Gpu;
use super::modules::{Compiled, Grid, no_kernel};
use super::scratch::{Partials, Scratch, area_bytes, largest, pinned};
use crate::request::{Request, Shape, Types};
use crate::{Error, Plan};
use cust::stream::Stream;
use cust::sys::{self, CUstream, CUstreamCaptureStatus_enum as CUstreamCaptureStatus};
use gpu_reduce_kernels::columns::{self, Columns};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::plan::{GROUP, few_rows, least_block};
use gpu_reduce_kernels::reduce::{self, Target};
use gpu_reduce_kernels::segments::{
    self, Cut, SegmentBounds, THREADS, WARPS, most_positions, most_short, partial_slots,
};
use gpu_reduce_kernels::shape::push_rest;
use gpu_reduce_kernels::{chunks, rows, runs, slot};
use std::any::TypeId;
use std::mem::{ManuallyDrop, transmute};
use std::ops::Deref;
use std::ptr::{null, null_mut};

/// A stream, ours or another library's, with its scratch memory.
pub struct Queue {
    pub(super) stream: Handle,
    pub(super) scratch: Scratch,
    /// Whether the stream is being captured.
    pub(super) is_capturing: bool,
}

/// A stream's handle. If the stream is ours, dropping the handle destroys it.
pub struct Handle {
    stream: ManuallyDrop<Stream>,
    is_own: bool,
}

impl Deref for Handle {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.stream) }
        }
    }
}

impl Handle {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self { stream: ManuallyDrop::new(gpu.new_stream()?), is_own: true })
    }

    /// A stream that another library owns.
    ///
    /// # Safety
    ///
    /// `raw` is a stream and outlives the handle.
    pub(super) unsafe fn of(raw: CUstream) -> Self {
        const { assert!(size_of::<Stream>() == size_of::<CUstream>()) };
        // SAFETY: cust has no function for it. Its stream is the driver's handle and nothing else, as the
        // size says and the assertion below checks. The stream is not destroyed here.
        let stream = ManuallyDrop::new(unsafe { transmute::<CUstream, Stream>(raw) });
        assert_eq!(stream.as_inner(), raw);
        Self { stream, is_own: false }
    }

    /// As [`of`](Self::of). Fails unless the stream belongs to the device's primary context, which is
    /// entered.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of).
    pub(super) unsafe fn of_primary(gpu: &Gpu, raw: CUstream) -> Result<Self, Error> {
        // Handles 0 to 2 are the default streams of the context that is entered.
        if raw.addr() > 2 {
            let mut context = null_mut();
            // SAFETY: as the caller vouches.
            gpu.done("asking for a stream's context", unsafe { sys::cuStreamGetCtx(raw, &mut context) })?;
            if context != gpu.raw_context() {
                return Err(gpu.other_context("the stream", context));
            }
        }
        // SAFETY: as the caller vouches.
        Ok(unsafe { Self::of(raw) })
    }
}

/// Words of slots that a queue allocates at its first launch: enough for any plan with accumulators of 8
/// bytes.
const SLOT_WORDS: usize = 2 * 2048;

/// Tiles of keys that a queue allocates for at its first search for runs: 2^23 keys.
const RUNS_TILES: u64 = 1024;

/// Words of the state of the kernel that finds runs, for up to `tiles` tiles.
fn runs_words(tiles: u64) -> usize {
    runs::STATE_HEAD + 2 * tiles as usize
}

impl Queue {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self { stream: Handle::new(gpu)?, scratch: Scratch::default(), is_capturing: false })
    }

    /// Returns `words` words of empty slots in host memory.
    pub(super) fn host_slots_for(&mut self, gpu: &Gpu, words: usize) -> Result<*mut u64, Error> {
        let last = largest(
            &mut self.scratch.host_slots,
            self.is_capturing,
            |slots| words <= slots.len(),
            |_| pinned(gpu, words.next_power_of_two(), slot::EMPTY),
        )?;
        Ok(last.as_mut_ptr())
    }

    /// Gives up all slots, because some are not empty. All work has ended. A graph may still use them: then
    /// they are leaked.
    pub(super) fn forget_slots(&mut self) {
        let Scratch { slots, host_slots, is_captured, .. } = &mut self.scratch;
        let (slots, host_slots) = (std::mem::take(slots), std::mem::take(host_slots));
        if *is_captured {
            std::mem::forget((slots, host_slots));
        }
    }

    /// Returns `words` words of empty slots.
    pub(super) fn slots_for(&mut self, gpu: &Gpu, words: usize) -> Result<*mut u64, Error> {
        let Scratch { slots, source, .. } = &mut self.scratch;
        let likely = words.next_power_of_two().max(SLOT_WORDS);
        let last = largest(
            slots,
            self.is_capturing,
            |slots| words <= slots.len(),
            |_| source.empty_slots(gpu, &self.stream, words, likely),
        )?;
        Ok(last.as_device_ptr().as_mut_ptr())
    }

    /// Returns partial results with `words` words of slots and `counts` counters.
    fn partials_for(&mut self, gpu: &Gpu, words: usize, counts: usize) -> Result<&mut Partials, Error> {
        let Scratch { partials, source, .. } = &mut self.scratch;
        largest(
            partials,
            self.is_capturing,
            |partials| partials.has(words, counts),
            |last| {
                let (old_words, old_counts) =
                    last.map_or((0, 0), |last| (last.slots.len(), last.counts.len()));
                let likely = [words.max(old_words), counts.max(old_counts)];
                Partials::new(gpu, &self.stream, source, [words, counts], likely)
            },
        )
    }

    /// Asks the driver whether the stream is being captured. Called before anything is enqueued.
    pub(super) fn check_capture(&mut self, gpu: &Gpu) -> Result<(), Error> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live.
        let asked = unsafe { sys::cuStreamIsCapturing(self.stream.as_inner(), &mut status) };
        gpu.done("asking whether a stream is being captured", asked)?;
        self.is_capturing = status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.scratch.is_captured |= self.is_capturing;
        if self.is_capturing {
            gpu.expose();
        }
        Ok(())
    }

    /// Enqueues a request, and returns the kernel that serves it.
    ///
    /// `report` is memory of the host that the launch writes: the accumulator's slot of a whole array, which
    /// then stays off the device; or a word that says what is wrong with segments, as [`Cut::wrong`] does.
    /// Without it, the result of a whole array goes to the request's `results`, and what is wrong with
    /// segments to the queue's own word.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items, the offsets, `report` and the places of results
    /// stay, and nothing else writes to them. The request's types are those of its operator and items. The
    /// context is entered.
    pub(super) unsafe fn enqueue(
        &mut self,
        gpu: &Gpu,
        request: &Request,
        report: Option<*mut u64>,
    ) -> Result<&'static Compiled, Error> {
        // SAFETY: as the caller vouches.
        unsafe {
            match &request.shape {
                &Shape::Whole { len, head } => {
                    let target = report.map_or(Target::device(request.results.cast()), Target::host);
                    self.enqueue_whole(gpu, request, (len, head), target)
                }
                Shape::Segments(segments) => self.enqueue_segments(gpu, request, (segments, null()), report),
                Shape::Columns(columns) => self.enqueue_columns(gpu, request, columns),
                Shape::Runs(arguments) => self.enqueue_runs(gpu, request.by.types, *arguments),
            }
        }
    }

    /// Launches a kernel of the request's types.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Self::enqueue), and the parameters are those of the kernel.
    unsafe fn launch(
        &self,
        gpu: &Gpu,
        types: &Types,
        (kernel, block): (TypeId, u32),
        grid: Grid,
        parameters: &Parameters,
    ) -> Result<&'static Compiled, Error> {
        // SAFETY: as the caller vouches.
        let kernel = unsafe { gpu.launch_if_compiled(kernel, types.own, &self.stream, grid, parameters) }?;
        kernel.ok_or_else(|| no_kernel((types.name)(), block))
    }

    unsafe fn enqueue_whole(
        &mut self,
        gpu: &Gpu,
        request: &Request,
        (len, head): (u64, Option<u32>),
        result: Target<()>,
    ) -> Result<&'static Compiled, Error> {
        let Request { by, input, .. } = request;
        let (types, block) = (by.types, by.block);
        let launch = |stream: &Stream, kernel, grid: Grid, (chunk, before): (u64, u32), slots, result| {
            let mut parameters = *input;
            // No device has memory for chunks of 2^32 items.
            let part = (&(chunk as u32), &before, &len, &slots);
            reduce::push_rest(&mut parameters, part, &result, input, by.op);
            // SAFETY: as the caller vouches; the parameters are those of the kernel.
            unsafe { gpu.launch_if_compiled(kernel, types.own, stream, grid, &parameters) }
        };
        // An input of up to a row has the same bits with the least BLOCK whose row holds it.
        let least = least_block(len, types.width);
        if least <= block {
            let is_aligned = head.is_some_and(|head| (head as usize).is_multiple_of(types.width));
            let kernel = if is_aligned { types.row_kernel } else { types.kernel };
            let grid = Grid { blocks: 1, block: least, resident: least };
            let slots = self.slots_for(gpu, 0)?;
            if let Some(kernel) = launch(&self.stream, kernel, grid, (len, 0), slots, result)? {
                return Ok(kernel);
            }
        }
        let plan = types.plan_on_a_device(len, block);
        let slots = self.slots_for(gpu, slots_of(&plan) * types.words)?;
        let grid = Grid { blocks: plan.chunks, block, resident: block };
        let (chunks, groups) = (plan.chunks, plan.groups());
        let result_of_chunks = if groups > 0 { Target::none() } else { result };
        let mut kernel = launch(&self.stream, types.kernel, grid, (plan.chunk, 0), slots, result_of_chunks)?;
        if groups > 0 {
            let grid = Grid { blocks: groups, block: GROUP, resident: GROUP };
            let slots = slots.wrapping_add(chunks as usize * types.words);
            kernel = launch(&self.stream, types.groups_kernel, grid, (0, chunks), slots, result)?;
        }
        kernel.ok_or_else(|| no_kernel((types.name)(), block))
    }

    /// Enqueues a reduction of segments. `number`, if it is not null, is a word of the device that has the number of
    /// segments, or 0: then no result is written.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub(super) unsafe fn enqueue_segments(
        &mut self,
        gpu: &Gpu,
        request: &Request,
        (segments, number): (&SegmentBounds, *const u64),
        wrong: Option<*mut u64>,
    ) -> Result<&'static Compiled, Error> {
        let &Request { by, results, .. } = request;
        let (types, block, width) = (by.types, by.block, by.types.width as u64);
        let needs = Needs::of(gpu, types, segments, block);
        let mut cut = needs.cut;
        cut.has_default = by.has_default.into();
        let partials = self.partials_for(gpu, needs.places * types.words, needs.places)?;
        cut.partials = partials.slots.as_device_ptr().as_mut_ptr();
        cut.counts = partials.counts.as_device_ptr().as_mut_ptr();
        cut.wrong = wrong.unwrap_or(partials.wrong.as_device_ptr().as_mut_ptr());
        let mut slots = null_mut();
        if needs.slots > 0 {
            slots = self.slots_for(gpu, needs.slots * types.words)?;
        }
        let lists = needs.lists + needs.long;
        if lists > 0 {
            let Scratch { lists: areas, source, .. } = &mut self.scratch;
            let area = largest(
                areas,
                self.is_capturing,
                |area| lists <= area.len(),
                |_| source.area(gpu, lists, lists.next_power_of_two()),
            )?;
            let area = area.as_device_ptr().as_mut_ptr();
            if needs.lists > 0 {
                cut.lists = area;
            }
            if needs.long > 0 {
                cut.long = area.wrapping_add(needs.lists);
            }
        }
        // Segments are cut up for their number as the host knows it: as many as there are unless there are none.
        let bounds = if number.is_null() { *segments } else { segments.with_number(number) };
        let parameters = |cut: &Cut| {
            let mut parameters = request.input;
            push_rest(&mut parameters, (&bounds, cut, &results), by.default, by.op);
            parameters
        };
        // SAFETY: as the caller vouches; the scratch memory is large enough for these segments.
        unsafe {
            let mut kernel = None;
            if let Some(grid) = needs.warps {
                if needs.long > 0 {
                    self.clear(gpu, cut.long, 1)?;
                }
                let parameters = parameters(&cut);
                if needs.lists > 0 {
                    kernel =
                        Some(self.launch(gpu, types, (types.segments_kernel, block), grid, &parameters)?);
                }
                if needs.lists == 0 || segments.len > most_short(width, types.slots, block) {
                    kernel = Some(self.launch(gpu, types, (types.rows_kernel, block), grid, &parameters)?);
                }
            }
            if let Some(grid) = needs.chunks {
                // A block has one chunk of a listed segment.
                let parts = if needs.long > 0 { 0 } else { cut.parts };
                let parameters = parameters(&Cut { partials: slots, parts, ..cut });
                kernel = Some(self.launch(gpu, types, (types.chunks_kernel, block), grid, &parameters)?);
            }
            kernel.ok_or_else(|| no_kernel((types.name)(), block))
        }
    }

    unsafe fn enqueue_columns(
        &mut self,
        gpu: &Gpu,
        request: &Request,
        columns: &Columns,
    ) -> Result<&'static Compiled, Error> {
        let &Request { by, results, .. } = request;
        let types = by.types;
        let mut cut = types.cut_columns(columns, by.block);
        if cut.has_partials() {
            let partials = self.partials_for(gpu, cut.words(types.words), cut.counts())?;
            cut.partials = partials.slots.as_device_ptr().as_mut_ptr();
            cut.counts = partials.counts.as_device_ptr().as_mut_ptr();
        }
        let mut parameters = request.input;
        push_rest(&mut parameters, (columns, &cut, &results), by.default, by.op);
        let grid = Grid { blocks: cut.blocks(), block: columns::THREADS, resident: columns::RESIDENT };
        // SAFETY: as the caller vouches; the scratch memory is large enough for these columns.
        unsafe { self.launch(gpu, types, (types.columns_kernel, by.block), grid, &parameters) }
    }

    unsafe fn enqueue_runs(
        &mut self,
        gpu: &Gpu,
        types: &Types,
        arguments: runs::Arguments<u8>,
    ) -> Result<&'static Compiled, Error> {
        let tiles = runs::tiles(arguments.keys.addr() as u64, arguments.len, types.bytes);
        let words = runs_words(tiles);
        let Scratch { runs, source, .. } = &mut self.scratch;
        let likely = runs_words(tiles.next_power_of_two().max(RUNS_TILES));
        let state = largest(
            runs,
            self.is_capturing,
            |state| words <= state.len(),
            |_| source.empty_slots(gpu, &self.stream, words, likely),
        )?;
        let area = ((state.len() - runs::STATE_HEAD) / 2) as u64;
        let state = state.as_device_ptr().as_mut_ptr();
        let arguments = runs::Arguments { state, area, ..arguments };
        let parameters = Parameters::of(&arguments);
        let grid = Grid { blocks: tiles as u32, block: runs::THREADS, resident: runs::RESIDENT };
        // SAFETY: as the caller vouches; the state is large enough for these tiles.
        unsafe { self.launch(gpu, types, (types.kernel, runs::THREADS), grid, &parameters) }
    }
}

impl Gpu {
    /// Returns the bytes of lent memory that a request of this shape takes.
    pub fn scratch_bytes(&self, types: &Types, shape: &Shape, block: u32) -> usize {
        match shape {
            &Shape::Whole { len, .. } => {
                area_bytes::<u64>(slots_of(&types.plan_on_a_device(len, block)) * types.words)
            }
            Shape::Segments(segments) => self.bytes_of_segments(types, segments, block),
            Shape::Columns(columns) => {
                let cut = types.cut_columns(columns, block);
                if cut.has_partials() { Partials::bytes(cut.words(types.words), cut.counts()) } else { 0 }
            }
            // The keys may begin within a tile, wherever they lie.
            Shape::Runs(arguments) => {
                area_bytes::<u64>(runs_words(runs::tiles(0, arguments.len, types.bytes) + 1))
            }
        }
    }

    /// Returns the bytes of lent memory that segments take.
    pub(super) fn bytes_of_segments(&self, types: &Types, segments: &SegmentBounds, block: u32) -> usize {
        let Needs { places, lists, long, slots, .. } = Needs::of(self, types, segments, block);
        Partials::bytes(places * types.words, places)
            + area_bytes::<u64>(lists + long)
            + area_bytes::<u64>(slots * types.words)
    }
}

/// Returns the slots of an input's chunks and of their groups.
fn slots_of(plan: &Plan) -> usize {
    plan.chunks as usize + plan.groups() as usize
}

/// A warp takes as many short rows as it folds at a time, or if there are warps enough as it has one load of each for; but
/// fewer if then fewer warps than this would have rows. Sums of `f32` on an H200, µs when rows were dealt to as many warps as the GPU holds, and now: 10,000 rows of 6 3.09 and 1.61, of 26 3.23 and 1.82, of 64 2.72 and
/// 2.09; 100,000 of 10 3.67 and 2.70; 1,000 of 4 1.61 and 1.47.
const LEAST_WARPS: u64 = 32;

/// Positions that are worth a warp if short segments are listed.
const LEAST_SHARE: u64 = 64;

/// Short segments are listed if segments have fewer leaves than this on average, and each warp has more than
/// [`FEW`].
const LARGER_ON_AVERAGE: u64 = 96;
const FEW: u64 = 2;

/// Leaves that are folded in the time that a segment takes besides, if there are no lists.
const WEIGHT: u64 = 64;

/// Leaves of a chunk that are worth a warp if there are more warps than chunks: the exchange between warps
/// takes 3 µs.
const LEAST_PART: u64 = 160;

/// How segments are cut up, the launches, and the scratch memory that they need.
struct Needs {
    /// Without pointers to the memory.
    cut: Cut,
    /// The grid of the kernels whose warps have segments.
    warps: Option<Grid>,
    /// The grid of the kernel whose blocks have chunks.
    chunks: Option<Grid>,
    /// Partial results of warps.
    places: usize,
    /// Words of lists of larger segments, and of the list of long ones.
    lists: usize,
    long: usize,
    /// Partial results of chunks.
    slots: usize,
}

impl Needs {
    fn of(gpu: &Gpu, types: &Types, segments: &SegmentBounds, block: u32) -> Self {
        let (width, row) = (types.width as u64, u64::from(block) * types.width as u64);
        if let Some(length) = segments.length()
            && let Some(needs) = Self::of_rows(types, (segments.count, length), block)
        {
            return needs;
        }
        if let Some(needs) = Self::of_few(types, segments, block) {
            return needs;
        }
        let cut_for = |resident: u32| {
            let warps = (gpu.multiprocessors * resident * WARPS).into();
            (resident, cut_for(segments, [width, warps], block, (types.words, types.is_exact)))
        };
        let (mut resident, (mut cut, mut warps, mut has_lists)) = cut_for(segments::RESIDENT_BLOCKS);
        if !has_lists
            && let (wanted, (other, warps_of_other, false)) = cut_for(resident_blocks(types, segments, block))
        {
            (resident, cut, warps, has_lists) = (wanted, other, warps_of_other, false);
        }
        let blocks = warps.div_ceil(WARPS.into()) as u32;
        let grid = Grid { blocks, block: THREADS, resident: THREADS * resident };
        // Short rows have no partial results.
        let places = if cut.weight > 0 { partial_slots(segments.len, row, cut.parts) as usize } else { 1 };
        let lists = if has_lists { (blocks * WARPS) as usize * segments::LIST } else { 0 };
        let mut needs = Self { cut, warps: Some(grid), chunks: None, places, lists, long: 0, slots: 0 };
        let longest = segments.length().unwrap_or(segments.len);
        if !types.is_exact && longest > few_rows(block) * row {
            let most = segments::most_long(segments.len, row, block);
            let blocks = chunks::most_blocks(segments.len, most, types.width, block);
            needs.chunks = Some(Grid { blocks: blocks as u32, block, resident: block });
            needs.long = 1 + most as usize;
            needs.slots = (blocks + blocks / u64::from(GROUP) + most) as usize;
        }
        needs
    }

    /// How segments between offsets are cut up if they are few: a block for the first chunk of each, and further ones for the
    /// other chunks that they may have. The kernels of warps search for each warp's segments first, and a warp takes longer
    /// for a segment.
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
            1 if len <= 2 * row * count => 2048,
            2 if len <= 2 * row * count => 1536,
            _ => block.max(1024),
        };
        let grid = Grid { blocks: blocks as u32, block, resident };
        let slots = if most > 1 { blocks as usize + 1 } else { 0 };
        Some(Self { cut, warps: None, chunks: Some(grid), places: 1, lists: 0, long: 0, slots })
    }

    /// How rows are cut up for the kernel whose blocks have a chunk or several; none for rows that the kernels of warps are
    /// faster for: short ones, and rows of few lines (rows of their plans) by operators with large accumulators, which
    /// cost a block much to fold (exact sums of rows of 600 `f32`: 107 against 305 GB/s on an H100).
    fn of_rows(types: &Types, (count, length): (u64, u64), block: u32) -> Option<Self> {
        let width = types.width as u64;
        let row = u64::from(block) * width;
        let has_blocks =
            count <= FEW_ROWS && length > 32 * width && length <= 2 * row && types.words <= LARGE;
        if !has_blocks && rows::is_short(length, width, block, types.words) {
            return None;
        }
        let plan = types.plan_on_a_device(length, block);
        let lines = plan.chunk.min(length).div_ceil(plan.row);
        if types.words > LARGE && lines < 3 {
            return None;
        }
        let blocks = count.checked_mul(plan.chunks.into()).filter(|&blocks| blocks <= MOST_BLOCKS)?;
        let mut cut = Cut { block, share: plan.chunk as u32, weight: plan.chunks, ..Cut::NONE };
        // Five blocks of 256 threads have 48 registers a thread, which places and pairs of numbers fit in. What variances
        // spill then takes rows of 1,024 `f32` from 117 µs to 183 (H200, 2^26 items).
        let resident = if types.is_exact && matches!(types.words, 3 | 4) { 1280 } else { block.max(1024) };
        let mut grid = Grid { blocks: blocks as u32, block, resident };
        if !has_blocks && types.folds_several && are_several(types, &plan, lines) {
            (cut.parts, cut.share) = (1, (lines * plan.row) as u32);
            grid.blocks = blocks.div_ceil(chunks::of_block(lines)) as u32;
            if types.words <= 2 {
                grid.resident = 1536;
            }
        }
        let slots = if plan.chunks > 1 { count as usize * chunks::slots(&plan) as usize } else { 0 };
        Some(Self { cut, warps: None, chunks: Some(grid), places: 1, lists: 0, long: 0, slots })
    }
}

/// Words of accumulators that a block folds slowly.
const LARGE: usize = chunks::MOST_WORDS;

/// Returns whether rows whose chunks have `lines` lines are reduced faster if a block folds several chunks than if it folds
/// one. Measured on an H100, GB/s of `f32`:
///
/// | rows | lines | several chunks | one chunk |
/// | --- | --- | --- | --- |
/// | sums of 600 | 1 | 2,609 | 1,103 |
/// | sums of 16,384 | 1 | 2,893 | 1,647 |
/// | sums of 3,001 | 3 | 2,988 | 3,095 |
/// | sums of 2^18 | 4 | 2,993 | 3,004 |
/// | `argmax` of 2^18 | 4 | 2,414 | 2,895 |
fn are_several(types: &Types, plan: &Plan, lines: u64) -> bool {
    let is_aligned = plan.len.is_multiple_of(types.width as u64);
    let is_wide = types.width > 4;
    match lines {
        1 => true,
        2 if plan.chunks > 1 || !is_wide => true,
        2 | 3 if plan.chunks == 1 => is_wide && is_aligned && types.words == 1,
        3 | 4 => plan.chunks > 1 && !is_aligned,
        _ => false,
    }
}

/// A launch for [few](Needs::of_few) segments has at most `FEW_BLOCKS` blocks, or a block for each `LOADS_OF_BLOCK` loads
/// (32 KiB) of the array if these are more. A block without a chunk takes 0.6 ns (H100), a tenth of the time in which 32 KiB
/// are loaded; a block with a short segment 1.3 ns.
const FEW_BLOCKS: u64 = 4096;
const LOADS_OF_BLOCK: u64 = 2048;

/// The most rows of up to two lines that have a block each (H100, 100 rows of 655 `f32`: 2.18 µs if a block has four, 1.78 if
/// each has a block).
const FEW_ROWS: u64 = 512;

/// The most blocks of a launch.
const MOST_BLOCKS: u64 = i32::MAX as u64;

/// Returns the blocks of a multiprocessor that are fastest where the kernel of rows has all segments (H100):
///
/// - with three, a thread has 80 registers, and large accumulators do not spill: variances of 5,000 `f64` took 200 µs
///   with four, 136 with three;
/// - short rows that are loaded item by item, because their starts are not multiples of a load, wait less with six: rows
///   of 301 `f16` took 181 µs with four, 141 with six. (Of fewer items than 2^21, with six 5,000 rows of 262 `f32` took
///   4.8 µs, with four 4.1.)
fn resident_blocks(types: &Types, segments: &SegmentBounds, block: u32) -> u32 {
    let width = types.width as u64;
    let is_short = |length| rows::is_short(length, width, block, types.words);
    let may_wait = types.words <= 2 && segments.len >= 1 << 21;
    match segments.length() {
        Some(length) if is_short(length) && !length.is_multiple_of(width) && may_wait => 6,
        Some(length) if is_short(length) => segments::RESIDENT_BLOCKS,
        _ if types.words > 1 && !types.is_exact => 3,
        _ => segments::RESIDENT_BLOCKS,
    }
}

/// Returns how segments are cut up for `warps` warps, how many warps they keep busy, and whether short
/// segments are listed.
fn cut_for(
    segments: &SegmentBounds,
    [width, warps]: [u64; 2],
    block: u32,
    (words, is_exact): (usize, bool),
) -> (Cut, u64, bool) {
    let count = segments.count.max(1);
    let average = segments.len / count;
    let mut cut = Cut { block, ..Cut::NONE };
    if let Some(length) = segments.length().filter(|&length| rows::is_short(length, width, block, words)) {
        // As many rows as a warp folds at a time, or a multiple.
        let mut at_once = rows::at_once(length.max(1), width);
        let of_load = rows::of_load(length.max(1), width);
        if count <= of_load * warps {
            at_once = of_load;
        }
        while at_once > 1 && count / at_once < LEAST_WARPS {
            at_once /= 2;
        }
        cut.share = count.div_ceil(warps).next_multiple_of(at_once) as u32;
        return (cut, count.div_ceil(cut.share.into()), false);
    }
    let has_lists = segments.has_number()
        || segments.length().is_none() && average < LARGER_ON_AVERAGE * width && count > FEW * warps;
    let mut waves = 1;
    if has_lists {
        cut.weight = width as u32;
        waves = (segments.len + width * count).div_ceil(most_positions(width) * warps).max(1);
    } else {
        cut.weight = (WEIGHT * width) as u32;
        let chunks = u64::from(Plan::on_a_device(average, width as usize, block, is_exact).chunks);
        let parts = warps.div_ceil(count * chunks).next_power_of_two();
        cut.parts = parts.min(average / chunks / (LEAST_PART * width)).max(1).ilog2().min(5) as u16;
    }
    let positions = segments.len + u64::from(cut.weight) * count;
    let least = if has_lists { LEAST_SHARE } else { cut.weight.into() };
    let share = positions.div_ceil(waves * warps).max(least);
    cut.share = share as u32;
    (cut, positions.div_ceil(share), has_lists)
}
