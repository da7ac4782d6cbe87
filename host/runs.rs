//! Runs of equal neighbouring keys, by which values reduce.

use crate::call::RunsCall;
use crate::data::{Data, gpu_of, other_device};
use crate::place::Place::{Cpu, Gpu};
use crate::segments::{OfKeys, Offsets};
use crate::{Buffer, Device, Element, Error, Item, Op, Reduce, Stream, View, cpu};
use gpu_reduce_kernels::runs::{Arguments, is_same};
use std::ptr::null_mut;

/// The runs of equal neighbouring keys, and where each begins: what [`Reduce::runs`] gives, and segments of any values
/// that there are as many of.
///
/// Keys are equal as NumPy's `unique` has it: −0.0 is +0.0, and NaN is NaN.
///
/// ```
/// use gpu_reduce::{Device, Max, Mean, Reduce};
///
/// let device = Device::cpu();
/// let keys = device.upload(&[7u8, 7, 3, 3, 3, 7])?;
/// let values = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 8.0, 6.0])?;
/// let runs = keys.runs()?;
/// assert_eq!(runs.keys().to_vec()?, [7, 3, 7]);
/// assert_eq!(values.segments(&runs)?.reduce::<Mean, 256>()?.to_vec()?, [1.5, 5.0, 6.0]);
/// assert_eq!(values.segments(&runs)?.reduce::<Max, 256>()?.to_vec()?, [2.0, 8.0, 6.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Debug)]
pub struct Runs<K: Element> {
    /// How many keys there are.
    len: usize,
    keys: Buffer<K>,
    starts: Starts,
    number: Buffer<u64>,
    /// Whether there is room for just as many as there are.
    is_exact: bool,
}

/// Where runs begin, and the last one ends.
#[derive(Debug)]
enum Starts {
    Short(Buffer<u32>),
    Long(Buffer<u64>),
}

impl Starts {
    fn zeros(device: &Device, len: usize, places: usize) -> Result<Self, Error> {
        Ok(match u32::try_from(len) {
            Ok(_) => Self::Short(device.zeros(places)?),
            Err(_) => Self::Long(device.zeros(places)?),
        })
    }

    fn to_vec(&self) -> Result<Vec<u64>, Error> {
        match self {
            Self::Short(starts) => Ok(starts.to_vec()?.into_iter().map(u64::from).collect()),
            Self::Long(starts) => starts.to_vec(),
        }
    }
}

impl<K: Element> Runs<K> {
    /// Room on a device for up to `most` runs of `len` keys, for [`enqueue`](Self::enqueue).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn with_room(device: &Device, len: usize, most: usize) -> Result<Self, Error> {
        let most = most.min(len);
        Ok(Self {
            len,
            keys: device.zeros(most)?,
            starts: Starts::zeros(device, len, most + 1)?,
            number: device.zeros(1)?,
            is_exact: false,
        })
    }

    /// The runs of keys.
    pub(crate) fn of<'a, D: Data<'a, Shard = View<'a, K>>>(keys: D) -> Result<Self, Error> {
        match keys.shards()?[..] {
            [keys] => Self::of_view(keys),
            ref shards => Self::of_shards(shards),
        }
    }

    /// The runs of keys on several devices: those on each, of which the last may go on as the next one's first. They lie on the first device.
    fn of_shards(shards: &[View<'_, K>]) -> Result<Self, Error> {
        let device = shards.first().map_or(Device::cpu(), |shard| shard.device());
        let (mut keys, mut starts, mut len) = (Vec::<K>::new(), Vec::new(), 0);
        for &shard in shards {
            let runs = Self::of_view(shard)?;
            let of_shard = runs.keys.to_vec()?;
            let goes_on = matches!((keys.last(), of_shard.first()), (Some(&a), Some(&b)) if is_same(a, b));
            keys.extend(&of_shard[usize::from(goes_on)..]);
            let of_shard = &runs.starts.to_vec()?[..of_shard.len()];
            starts.extend(of_shard[usize::from(goes_on)..].iter().map(|start| start + len as u64));
            len += shard.len();
        }
        let number = device.upload(&[starts.len() as u64])?;
        starts.push(len as u64);
        let starts = match u32::try_from(len) {
            Ok(_) => {
                let starts: Vec<_> = starts.iter().map(|&start| start as u32).collect();
                Starts::Short(device.upload(&starts)?)
            }
            Err(_) => Starts::Long(device.upload(&starts)?),
        };
        Ok(Self { len, keys: device.upload(&keys)?, starts, number, is_exact: true })
    }

    /// The runs of keys, which are counted first, so that no more is allocated than they need.
    fn of_view(keys: View<'_, K>) -> Result<Self, Error> {
        let (device, len) = (keys.device(), keys.len());
        let mut runs = Self {
            len,
            keys: device.zeros(0)?,
            starts: Starts::Short(device.zeros(0)?),
            number: device.zeros(1)?,
            is_exact: true,
        };
        match keys.place()? {
            Cpu(keys) => {
                let pieces = cpu::count_runs(keys);
                let count = pieces.iter().sum();
                runs.make_room(&device, count)?;
                runs.write_on_host(keys, &pieces);
            }
            Gpu((gpu, pointer)) => {
                // SAFETY: the keys are borrowed, and `runs` is this call's own.
                unsafe {
                    let count = gpu.find_runs(&runs.call(pointer))?;
                    runs.make_room(&device, count as usize)?;
                    gpu.find_runs(&runs.call(pointer))?;
                }
            }
        }
        Ok(runs)
    }

    fn make_room(&mut self, device: &Device, count: usize) -> Result<(), Error> {
        self.keys = device.zeros(count)?;
        self.starts = Starts::zeros(device, self.len, count + 1)?;
        Ok(())
    }

    /// What finds the runs of keys on a GPU.
    fn call(&mut self, keys: *const K) -> RunsCall {
        let (offsets, words, places) = match &mut self.starts {
            Starts::Short(starts) => (pointer(starts), 1, starts.len()),
            Starts::Long(starts) => (pointer(starts).cast(), 2, starts.len()),
        };
        RunsCall::new(Arguments {
            keys,
            len: self.len as u64,
            heads: pointer(&mut self.keys),
            offsets,
            words,
            capacity: places as u64,
            number: pointer(&mut self.number),
            state: null_mut(),
            area: 0,
        })
    }

    /// Writes the runs of keys on the CPU, of which so many begin in each piece of the keys.
    fn write_on_host(&mut self, keys: &[K], pieces: &[usize]) {
        let (heads, number) = (elements(&mut self.keys), elements(&mut self.number));
        number[0] = pieces.iter().sum::<usize>() as u64;
        match &mut self.starts {
            Starts::Short(starts) => {
                cpu::write_runs(keys, pieces, heads, elements(starts), |index| index as u32)
            }
            Starts::Long(starts) => {
                cpu::write_runs(keys, pieces, heads, elements(starts), |index| index as u64)
            }
        }
    }

    /// The key of each run, the first of it as it is. Of runs that are [enqueued](Self::enqueue), there are so many as
    /// there is room for; after the last run they are what was there before.
    pub fn keys(&self) -> &Buffer<K> {
        &self.keys
    }

    /// The key of each run.
    pub fn into_keys(self) -> Buffer<K> {
        self.keys
    }

    /// How many runs there are, on the device: one element. It may be more than there is room for.
    pub fn number(&self) -> &Buffer<u64> {
        &self.number
    }

    /// Bytes of scratch memory that [`enqueue`](Self::enqueue) takes where the caller [lends](Stream::with_scratch) it to the stream; none on the CPU.
    pub fn scratch_bytes(&self) -> usize {
        self.keys.gpu().map_or(0, |gpu| gpu.scratch_bytes_of_runs(self.len as u64, size_of::<K>()))
    }

    /// Enqueues that the runs of some keys are found on a stream of the device where they lie; nothing is waited for,
    /// nothing allocated but by the first call of its kind, and it may be captured in a CUDA graph, as
    /// [`Reduce::enqueue`]. How many there are, the device alone knows; what is enqueued on the same stream after it,
    /// [`Segments::enqueue`](crate::Segments::enqueue), has the number from there. Runs that there is no room for are
    /// counted, and left out.
    ///
    /// On the CPU it is done when the call returns.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Runs, Sum};
    ///
    /// let device = Device::default_device();
    /// let keys = device.upload(&[7u8, 7, 3, 3, 3, 7])?;
    /// let values = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 8.0, 6.0])?;
    /// let stream = device.stream()?;
    /// let mut runs = Runs::with_room(&device, keys.len(), 4)?;
    /// let mut sums = device.zeros::<f32>(4)?;
    /// // SAFETY: all of them stay, and are not used otherwise, until the stream has been waited for.
    /// unsafe {
    ///     runs.enqueue(&keys, &stream)?;
    ///     values.segments(&runs)?.enqueue::<Sum, 256>(&stream, &mut sums)?;
    /// }
    /// stream.wait()?;
    /// assert_eq!(runs.number().to_vec()?, [3]);
    /// assert_eq!(runs.keys().slice(..3)?.to_vec()?, [7, 3, 7]);
    /// assert_eq!(sums.slice(..3)?.to_vec()?, [3.0, 15.0, 6.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the stream has been waited for, neither the keys nor `self` are freed, the keys are not written, and
    /// `self` is not used but by what is enqueued on the same stream.
    ///
    /// # Errors
    ///
    /// [`Error::OtherLength`] of more or fewer keys than `self` has room for, [`Error::OtherDevice`],
    /// [`Error::Launch`], [`Error::OutOfMemory`] and [`Error::Driver`]. A launch that fails later is an error of the
    /// stream.
    pub unsafe fn enqueue<'a, Q>(&mut self, keys: &'a Q, stream: &Stream) -> Result<(), Error>
    where
        Q: Reduce<Data<'a> = View<'a, K>> + ?Sized,
    {
        let keys = keys.data();
        if keys.len() != self.len {
            return Err(Error::OtherLength { first: self.len, second: keys.len() });
        }
        self.is_exact = false;
        let on = stream.device();
        match (keys.place()?, stream.on(self.keys.gpu())?) {
            (Cpu(keys), None) => {
                self.write_on_host(keys, &cpu::count_runs(keys));
                Ok(())
            }
            // SAFETY: as the caller vouches.
            (Gpu((gpu, keys)), Some(stream)) if gpu == stream.gpu() => unsafe {
                stream.enqueue_runs(&self.call(keys))
            },
            (place, _) => Err(other_device(gpu_of(&place), &on)),
        }
    }

    /// Where they begin, as segments.
    pub(crate) fn offsets(&self) -> Offsets<'_> {
        match &self.starts {
            Starts::Short(starts) => starts.into(),
            Starts::Long(starts) => starts.into(),
        }
    }

    /// What is known of them.
    pub(crate) fn of_keys(&self) -> OfKeys<'_> {
        OfKeys { len: self.len, number: (!self.is_exact).then(|| self.number.view()) }
    }
}

/// Reduces the values of each run of equal neighbouring keys, with BLOCK 256: the key of each, and its result.
///
/// ```
/// let (keys, sums) = gpu_reduce::reduce_by_key(&[7u8, 7, 3, 3, 7], &[1i32, 2, 3, 4, 5], gpu_reduce::Sum)?;
/// assert_eq!((keys.to_vec()?, sums.to_vec()?), (vec![7, 3, 7], vec![3, 7, 5]));
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::OtherLength`], [`Error::OtherDevice`], and as [`Reduce::reduce`].
pub fn reduce_by_key<'a, K, Q, D, O>(
    keys: &'a Q,
    values: &D,
    op: O,
) -> Result<(Buffer<K>, Buffer<O::Output>), Error>
where
    K: Element,
    Q: Reduce<Item = K, Data<'a>: Data<'a, Shard = View<'a, K>>> + ?Sized,
    D: Reduce + ?Sized,
    O: Op<D::Item, Output: Item>,
{
    let runs = Runs::of(keys.data())?;
    let results = values.segments(&runs)?.reduce_by::<O, 256>(op)?;
    Ok((runs.into_keys(), results))
}

/// A buffer's elements on the CPU.
fn elements<T: Item>(buffer: &mut Buffer<T>) -> &mut [T] {
    match buffer.whole_mut() {
        Cpu(elements) => elements,
        Gpu(_) => unreachable!("they lie on the CPU"),
    }
}

/// Where a buffer's elements lie on a GPU.
fn pointer<T: Item>(buffer: &mut Buffer<T>) -> *mut T {
    match buffer.whole_mut() {
        Cpu(_) => unreachable!("they lie on a GPU"),
        Gpu(pointer) => pointer,
    }
}
