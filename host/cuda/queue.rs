//! Enqueuing requests on a stream.

use super::cut::Needs;
use super::modules::{Compiled, Grid, no_kernel};
use super::scratch::{Partials, Scratch, area_bytes, largest, pinned};
use super::{Gpu, Workspace};
use crate::request::{Request, Shape, Types};
use crate::{Error, Plan};
use cust::stream::Stream;
use cust::sys::{self, CUstream, CUstreamCaptureStatus_enum as CUstreamCaptureStatus};
use gpu_reduce_kernels::columns::{self, Columns};
use gpu_reduce_kernels::kernels::{Family, Identity, Parameters};
use gpu_reduce_kernels::plan::{GROUP, least_block};
use gpu_reduce_kernels::reduce::{self, Target};
use gpu_reduce_kernels::segments::{Cut, SegmentBounds, most_short};
use gpu_reduce_kernels::shape::{heads, push_rest};
use gpu_reduce_kernels::{runs, slot};
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
            source.is_closed(self.is_capturing),
            |slots| words <= slots.len(),
            |_| source.empty_slots(gpu, (&self.stream, self.is_capturing), words, likely),
        )?;
        Ok(last.as_device_ptr().as_mut_ptr())
    }

    /// Returns partial results with `words` words of slots and `counts` counters.
    fn partials_for(&mut self, gpu: &Gpu, words: usize, counts: usize) -> Result<&mut Partials, Error> {
        let Scratch { partials, source, .. } = &mut self.scratch;
        largest(
            partials,
            source.is_closed(self.is_capturing),
            |partials| partials.has(words, counts),
            |last| {
                let (old_words, old_counts) =
                    last.map_or((0, 0), |last| (last.slots.len(), last.counts.len()));
                let likely = [words.max(old_words), counts.max(old_counts)];
                Partials::new(gpu, &self.stream, source, [words, counts], likely)
            },
        )
    }

    /// Asks the driver whether the stream is being captured.
    pub(super) fn asks_whether_captured(&self, gpu: &Gpu) -> Result<bool, Error> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live.
        let asked = unsafe { sys::cuStreamIsCapturing(self.stream.as_inner(), &mut status) };
        gpu.done("asking whether a stream is being captured", asked)?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Notes whether the stream is being captured. Called before anything is enqueued.
    pub(super) fn check_capture(&mut self, gpu: &Gpu) -> Result<(), Error> {
        self.is_capturing = self.asks_whether_captured(gpu)?;
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
        (kernel, block): (Identity, u32),
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
            reduce::push_rest(&mut parameters, part, &result, input, types.operator(by.op));
            // SAFETY: as the caller vouches; the parameters are those of the kernel.
            unsafe { gpu.launch_if_compiled(kernel, types.own, stream, grid, &parameters) }
        };
        // An input of up to a row has the same bits with the least BLOCK whose row holds it.
        let least = least_block(len, types.width);
        if least <= block {
            let is_aligned = head.is_some_and(|head| (head as usize).is_multiple_of(types.width));
            let kernel = if is_aligned { types.kernel.with(Family::Row) } else { types.kernel };
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
            kernel =
                launch(&self.stream, types.kernel.with(Family::Groups), grid, (0, chunks), slots, result)?;
        }
        kernel.ok_or_else(|| no_kernel((types.name)(), block))
    }

    /// Enqueues a reduction of segments. `number`, if it is not null, is a word of the device that has the
    /// number of segments, or 0: then no result is written.
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
        let needs = Needs::of(gpu, types, segments, block, alignment(&request.input));
        let mut cut = needs.cut;
        if segments.has_heads() && !cut.has(Cut::HEADS) {
            // SAFETY: as the caller vouches: these are runs that were found on a stream.
            unsafe { self.list_offsets(gpu, segments)? };
        }
        if by.has_default {
            cut.ways |= Cut::HAS_DEFAULT;
        }
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
                source.is_closed(self.is_capturing),
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
        // Segments are cut up for their number as the host knows it: as many as there are unless there are
        // none.
        let bounds = if number.is_null() { *segments } else { segments.with_number(number) };
        let parameters = |cut: &Cut| {
            let mut parameters = request.input;
            push_rest(&mut parameters, (&bounds, cut, &results), by.default, types.operator(by.op));
            parameters
        };
        // SAFETY: as the caller vouches; the scratch memory is large enough for these segments.
        unsafe {
            let launch = |family, grid, parameters: &Parameters| {
                self.launch(gpu, types, (types.kernel.with(family), block), grid, parameters)
            };
            let mut kernel = None;
            if let Some((family, grid)) = needs.warps {
                if needs.long > 0 {
                    self.clear(gpu, cut.long, 1)?;
                }
                let parameters = parameters(&cut);
                if needs.lists > 0 {
                    kernel = Some(launch(Family::Segments, grid, &parameters)?);
                }
                if needs.lists == 0 || segments.len > most_short(width, types.slots, block) {
                    kernel = Some(launch(family, grid, &parameters)?);
                }
            }
            if let Some((family, grid)) = needs.blocks {
                let parameters = parameters(&Cut { partials: slots, ..cut });
                kernel = Some(launch(family, grid, &parameters)?);
            }
            kernel.ok_or_else(|| no_kernel((types.name)(), block))
        }
    }

    /// Enqueues that the offsets of all runs are listed.
    ///
    /// # Safety
    ///
    /// The segments are runs that were found on a stream, and their memory stays. Work on other streams may read the offsets and list
    /// them, too: all write the same values. The context is entered.
    unsafe fn list_offsets(&self, gpu: &Gpu, segments: &SegmentBounds) -> Result<(), Error> {
        let listing = segments.listing();
        let windows_of_block = u64::from(runs::THREADS / 32);
        let windows = heads::windows(runs::positions(segments.len));
        let blocks = windows.div_ceil(windows_of_block).min(1 << 16) as u32;
        // SAFETY: as the caller vouches.
        unsafe {
            self.launch_one(
                gpu,
                TypeId::of::<heads::List>(),
                (blocks, runs::THREADS),
                0,
                &Parameters::of(&listing),
            )
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
        let mut cut = types.cut_columns(columns, by.block, alignment(&request.input));
        if cut.has_partials() {
            let partials = self.partials_for(gpu, cut.words(types.words), cut.counts())?;
            cut.partials = partials.slots.as_device_ptr().as_mut_ptr();
            cut.counts = partials.counts.as_device_ptr().as_mut_ptr();
        }
        let mut parameters = request.input;
        push_rest(&mut parameters, (columns, &cut, &results), by.default, types.operator(by.op));
        let grid = Grid { blocks: cut.blocks(), block: cut.block(columns), resident: columns::RESIDENT };
        // SAFETY: as the caller vouches; the scratch memory is large enough for these columns.
        unsafe { self.launch(gpu, types, (types.kernel.with(Family::Columns), by.block), grid, &parameters) }
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
            source.is_closed(self.is_capturing),
            |state| words <= state.len(),
            |_| source.empty_slots(gpu, (&self.stream, self.is_capturing), words, likely),
        )?;
        let area = ((state.len() - runs::STATE_HEAD) / 2) as u64;
        let state = state.as_device_ptr().as_mut_ptr();
        let arguments = runs::Arguments { state, area, ..arguments };
        let parameters = Parameters::of(&arguments);
        let keeps_heads = !arguments.bits.is_null();
        let resident = if keeps_heads { runs::RESIDENT_FOR_SHORT } else { runs::RESIDENT };
        let grid = Grid { blocks: tiles as u32, block: runs::THREADS, resident };
        // SAFETY: as the caller vouches; the state is large enough for these tiles.
        unsafe { self.launch(gpu, types, (types.kernel, runs::THREADS), grid, &parameters) }
    }
}

impl Gpu {
    /// Lists the offsets of all runs, and waits.
    ///
    /// # Safety
    ///
    /// As for [`Queue::list_offsets`], and the search has ended.
    pub unsafe fn list_offsets(&self, runs: &SegmentBounds) -> Result<(), Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the context is entered.
            unsafe { queue.list_offsets(self, runs)? };
            queue.stream.synchronize().map_err(|error| self.failed("listing offsets", error))
        })
    }

    /// Returns the bytes of lent memory that a request of this shape takes.
    pub fn scratch_bytes(&self, types: &Types, shape: &Shape, block: u32) -> usize {
        match shape {
            &Shape::Whole { len, .. } => {
                area_bytes::<u64>(slots_of(&types.plan_on_a_device(len, block)) * types.words)
            }
            Shape::Segments(segments) => self.bytes_of_segments(types, segments, block),
            Shape::Columns(columns) => {
                let bytes_of = |alignment| {
                    let cut = types.cut_columns(columns, block, alignment);
                    if cut.has_partials() { Partials::bytes(cut.words(types.words), cut.counts()) } else { 0 }
                };
                bytes_of(1).max(bytes_of(4)).max(bytes_of(16))
            }
            // The keys may begin within a tile, wherever they lie.
            Shape::Runs(arguments) => {
                area_bytes::<u64>(runs_words(runs::tiles(0, arguments.len, types.bytes) + 1))
            }
        }
    }

    /// Returns the bytes of lent memory that segments take.
    pub(super) fn bytes_of_segments(&self, types: &Types, segments: &SegmentBounds, block: u32) -> usize {
        let bytes_of = |alignment| {
            let Needs { places, lists, long, slots, .. } = Needs::of(self, types, segments, block, alignment);
            Partials::bytes(places * types.words, places)
                + area_bytes::<u64>(lists + long)
                + area_bytes::<u64>(slots * types.words)
        };
        bytes_of(1).max(bytes_of(16))
    }
}

/// Returns the bytes, 16 at most, of which the addresses of all arrays of an input are multiples.
fn alignment(input: &Parameters) -> usize {
    // SAFETY: the parameters of an input are pointers to arrays.
    let addresses = input.as_slice().iter().map(|&array| unsafe { array.cast::<usize>().read() });
    1 << addresses.map(usize::trailing_zeros).min().unwrap_or(0).min(4)
}

/// Returns the slots of an input's chunks and of their groups.
fn slots_of(plan: &Plan) -> usize {
    plan.chunks as usize + plan.groups() as usize
}
