//! A slot: a stream and the memory for one piece of the file.

use gpu_reduce::{Buffer, Device, Element, Error, PinnedBuffer, Reduce, Stream, Sum};

/// Threads per block.
const BLOCK: u32 = 256;

/// A stream, and host and device memory for a piece and the sums of its rows. Steps of one slot run in order;
/// steps of different slots may overlap.
pub struct Slot<T: Element> {
    stream: Stream<'static>,
    host: PinnedBuffer<T>,
    device: Buffer<T>,
    device_sums: Buffer<T::Wide>,
    host_sums: PinnedBuffer<T::Wide>,
    /// The number of elements in the current piece.
    len: usize,
    /// Elements per row.
    row: usize,
}

impl<T: Element> Slot<T> {
    /// A slot for pieces of up to `piece` elements.
    pub fn new(device: &Device, piece: usize, row: usize) -> Result<Self, Error> {
        let rows = piece.div_ceil(row);
        Ok(Self {
            stream: device.stream()?,
            host: device.pinned(piece)?,
            device: device.zeros(piece)?,
            device_sums: device.zeros(rows)?,
            host_sums: device.pinned(rows)?,
            len: 0,
            row,
        })
    }

    /// Waits for all enqueued work.
    pub fn wait(&self) -> Result<(), Error> {
        self.stream.synchronize()
    }

    /// Waits for the slot; returns host memory for a piece of `len` elements.
    pub fn fill(&mut self, len: usize) -> Result<&mut [T], Error> {
        self.wait()?;
        self.len = len;
        Ok(&mut self.host[..len])
    }

    /// Enqueues the piece's upload.
    pub fn upload(&mut self) -> Result<(), Error> {
        // SAFETY: both buffers belong to this slot, which uses or frees them only after it has waited for the
        // stream.
        unsafe { self.stream.upload(&self.host[..self.len], &mut self.device) }
    }

    /// Enqueues all work on the piece.
    pub fn enqueue(&mut self) -> Result<(), Error> {
        self.upload()?;
        self.reduce()?;
        self.download()
    }

    /// Enqueues the sum of each row.
    fn reduce(&mut self) -> Result<(), Error> {
        let rest = self.len % self.row;
        let (rows, last) =
            (self.device.slice(..self.len - rest)?, self.device.slice(self.len - rest..self.len)?);
        // SAFETY: as above.
        unsafe {
            rows.rows(self.row)?.reduce_into::<Sum, BLOCK>(&self.stream, &mut self.device_sums)?;
            if rest > 0 {
                let place = self.device_sums.slice_mut(self.len / self.row..)?;
                last.reduce_into::<Sum, BLOCK>(&self.stream, place)?;
            }
        }
        Ok(())
    }

    /// Enqueues the download of the sums.
    fn download(&mut self) -> Result<(), Error> {
        let sums = self.device_sums.slice(..self.len.div_ceil(self.row))?;
        // SAFETY: as above.
        unsafe { self.stream.download(sums, &mut self.host_sums) }
    }

    /// Waits for the piece; returns the sums of its rows.
    pub fn sums(&self) -> Result<&[T::Wide], Error> {
        self.wait()?;
        Ok(&self.host_sums[..self.len.div_ceil(self.row)])
    }
}

impl<T: Element> Drop for Slot<T> {
    fn drop(&mut self) {
        // Enqueued work uses the memory. After an error, nothing is running.
        let _ = self.wait();
    }
}
