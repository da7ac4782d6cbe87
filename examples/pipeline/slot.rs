//! A slot: what a piece of the file needs on its way.

use gpu_reduce::{Buffer, Device, Element, Error, PinnedBuffer, Reduce, Stream, Sum};

/// Threads a block.
const BLOCK: u32 = 256;

/// A stream, and memory on both sides for a piece and for the sums of its rows. Each step is enqueued after the one before; what other slots have enqueued
/// runs meanwhile.
pub struct Slot<T: Element> {
    stream: Stream<'static>,
    host: PinnedBuffer<T>,
    device: Buffer<T>,
    device_sums: Buffer<T::Wide>,
    host_sums: PinnedBuffer<T::Wide>,
    /// Elements of the piece.
    len: usize,
    /// Elements in a row.
    row: usize,
}

impl<T: Element> Slot<T> {
    /// For pieces of so many elements at most.
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

    /// Waits for all that is enqueued.
    pub fn wait(&self) -> Result<(), Error> {
        self.stream.wait()
    }

    /// Places for a piece of so many elements.
    pub fn fill(&mut self, len: usize) -> Result<&mut [T], Error> {
        self.wait()?;
        self.len = len;
        Ok(&mut self.host[..len])
    }

    /// Enqueues the piece's upload.
    pub fn upload(&mut self) -> Result<(), Error> {
        // SAFETY: both are this slot's, which uses them otherwise, and frees them, after it has waited for the stream.
        unsafe { self.stream.upload(&self.host[..self.len], &mut self.device) }
    }

    /// Enqueues all that is done with the piece.
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
            rows.rows(self.row)?.enqueue::<Sum, BLOCK>(&self.stream, &mut self.device_sums)?;
            if rest > 0 {
                let place = self.device_sums.slice_mut(self.len / self.row..)?;
                last.enqueue::<Sum, BLOCK>(&self.stream, place)?;
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

    /// Waits for the sums of the piece's rows.
    pub fn sums(&self) -> Result<&[T::Wide], Error> {
        self.wait()?;
        Ok(&self.host_sums[..self.len.div_ceil(self.row)])
    }
}

impl<T: Element> Drop for Slot<T> {
    fn drop(&mut self) {
        // What is enqueued uses the memory. After an error nothing does any more.
        let _ = self.wait();
    }
}
