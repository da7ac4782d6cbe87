//! Runs of equal neighbouring keys, by which values reduce.

use crate::data::{Data, gpu_of, other_device};
use crate::operators::Parts;
use crate::place::Place::{Cpu, Gpu};
use crate::request::Request;
use crate::segments::{OfKeys, Offsets};
use crate::{Buffer, Device, Element, Error, Item, Op, Reduce, Stream, View, cpu};
use gpu_reduce_kernels::runs::{Arguments, is_same, positions};
use gpu_reduce_kernels::shape::heads;
use std::ptr::null_mut;

/// The runs of equal neighbouring keys, and where each begins: what [`Reduce::runs`] returns.
///
/// They are segments of any array with as many items. Keys are equal as in NumPy's `unique`: −0.0 equals
/// +0.0, and NaN equals NaN.
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
    /// The number of keys.
    len: usize,
    keys: Buffer<K>,
    starts: Starts,
    number: Buffer<u64>,
    /// Where runs begin, as [`heads`]: on a GPU, unless all offsets are listed.
    bits: Option<Buffer<u64>>,
    /// Whether there is room for exactly the runs that there are.
    is_exact: bool,
}

/// Where runs begin, and where the last one ends.
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
    /// Allocates room on a device for up to `most` runs of `len` keys, for [`find`](Self::find).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn with_capacity(device: &Device, len: usize, most: usize) -> Result<Self, Error> {
        let most = most.min(len);
        let has_heads = matches!(device.0, Gpu(_)) && heads::are_kept(len as u64, most as u64);
        let words = heads::words(positions(len as u64));
        let bits = if has_heads { Some(device.zeros(words)?) } else { None };
        Ok(Self {
            len,
            keys: device.zeros(most)?,
            starts: Starts::zeros(device, len, most + 1)?,
            number: device.zeros(1)?,
            bits,
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

    /// The runs of keys on several devices. A run that crosses from one device to the next is joined. The
    /// result lies on the first device.
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
        Ok(Self { len, keys: device.upload(&keys)?, starts, number, bits: None, is_exact: true })
    }

    /// The runs of keys. They are counted first, so that no more is allocated than they need.
    fn of_view(keys: View<'_, K>) -> Result<Self, Error> {
        let (device, len) = (keys.device(), keys.len());
        let mut runs = Self {
            len,
            keys: device.zeros(0)?,
            starts: Starts::Short(device.zeros(0)?),
            number: device.zeros(1)?,
            bits: None,
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
                    let count = gpu.run(&runs.request(pointer), &mut [])?;
                    runs.make_room(&device, count as usize)?;
                    gpu.run(&runs.request(pointer), &mut [])?;
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

    /// The request to find the runs of keys on a GPU.
    fn request(&mut self, keys: *const K) -> Request<'static> {
        let (offsets, words, places) = match &mut self.starts {
            Starts::Short(starts) => (pointer(starts), 1, starts.len()),
            Starts::Long(starts) => (pointer(starts).cast(), 2, starts.len()),
        };
        Request::runs(Arguments {
            keys,
            len: self.len as u64,
            heads: pointer(&mut self.keys),
            offsets,
            words,
            capacity: places as u64,
            number: pointer(&mut self.number),
            bits: self.bits.as_mut().map_or(null_mut(), pointer),
            state: null_mut(),
            area: 0,
        })
    }

    /// Writes the runs of keys on the CPU; `pieces` has how many begin in each piece of the keys.
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

    /// Returns the key of each run: its first key, bit for bit. After [`find`](Self::find), it has as many
    /// elements as there is room for; those after the last run are unchanged.
    pub fn keys(&self) -> &Buffer<K> {
        &self.keys
    }

    /// Returns the key of each run.
    pub fn into_keys(self) -> Buffer<K> {
        self.keys
    }

    /// Returns the number of runs, on the device: one element. It may be more than there is room for.
    pub fn number(&self) -> &Buffer<u64> {
        &self.number
    }

    /// Returns the bytes of scratch memory that [`find`](Self::find) takes if the caller
    /// [lends](Stream::with_scratch) it to the stream; 0 on the CPU.
    pub fn scratch_bytes(&self) -> usize {
        let Some(gpu) = self.keys.gpu() else { return 0 };
        let request = Request::runs(Arguments::<K> { len: self.len as u64, ..Arguments::NONE });
        gpu.scratch_bytes(request.by.types, &request.shape, request.by.block)
    }

    /// Enqueues the search for the runs of keys on a stream of the device where they lie.
    ///
    /// The call waits for nothing, and allocates scratch memory only if it is the first of its kind; after
    /// that it may be captured in a CUDA graph, as [`Reduce::reduce_into`]. Only the device knows how many
    /// runs there are. Work that is enqueued on the same stream later, as
    /// [`Segments::reduce_into`](crate::Segments::reduce_into), reads the number there. Runs for which there
    /// is no room are counted and left out. On the CPU the runs are found when the call returns.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Runs, Sum};
    ///
    /// let device = Device::default_device();
    /// let keys = device.upload(&[7u8, 7, 3, 3, 3, 7])?;
    /// let values = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 8.0, 6.0])?;
    /// let stream = device.stream()?;
    /// let mut runs = Runs::with_capacity(&device, keys.len(), 4)?;
    /// let mut sums = device.zeros::<f32>(4)?;
    /// // SAFETY: all of them stay, and are not used otherwise, until the stream has been synchronized.
    /// unsafe {
    ///     runs.find(&keys, &stream)?;
    ///     values.segments(&runs)?.reduce_into::<Sum, 256>(&stream, &mut sums)?;
    /// }
    /// stream.synchronize()?;
    /// assert_eq!(runs.number().to_vec()?, [3]);
    /// assert_eq!(runs.keys().slice(..3)?.to_vec()?, [7, 3, 7]);
    /// assert_eq!(sums.slice(..3)?.to_vec()?, [3.0, 15.0, 6.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, neither the keys nor `self` are freed, the keys are not
    /// written, and only work on the same stream uses `self`.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`] if there are more or fewer keys than `self` was made for,
    /// [`Error::DeviceMismatch`], [`Error::Launch`], [`Error::OutOfMemory`] and [`Error::Driver`]. A launch
    /// that fails later is an error of the stream.
    pub unsafe fn find<'a, Q>(&mut self, keys: &'a Q, stream: &Stream) -> Result<(), Error>
    where
        Q: Reduce<Data<'a> = View<'a, K>> + ?Sized,
    {
        let keys = keys.data();
        if keys.len() != self.len {
            return Err(Error::LengthMismatch { first: self.len, second: keys.len() });
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
                stream.enqueue(&self.request(keys))
            },
            (place, _) => Err(other_device(gpu_of(&place), &on)),
        }
    }

    /// Where the runs begin, as offsets of segments.
    pub(crate) fn offsets(&self) -> Offsets<'_> {
        match &self.starts {
            Starts::Short(starts) => starts.into(),
            Starts::Long(starts) => starts.into(),
        }
    }

    /// What segments know of the runs.
    pub(crate) fn of_keys(&self) -> OfKeys<'_> {
        let number = || self.bits.as_ref().unwrap_or(&self.number).view();
        OfKeys { len: self.len, number: (!self.is_exact).then(number) }
    }
}

/// Reduces the values of each run of equal neighbouring keys, with BLOCK 256. Returns the key of each run,
/// and its result.
///
/// ```
/// let (keys, sums) = gpu_reduce::reduce_by_key(&[7u8, 7, 3, 3, 7], &[1i32, 2, 3, 4, 5], gpu_reduce::Sum)?;
/// assert_eq!((keys.to_vec()?, sums.to_vec()?), (vec![7, 3, 7], vec![3, 7, 5]));
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::LengthMismatch`], [`Error::DeviceMismatch`], and as [`Reduce::reduce`].
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
    let results = values.segments(&runs)?.run(op, None, 256)?;
    Ok((runs.into_keys(), results))
}

/// The elements of a buffer on the CPU.
fn elements<T: Item>(buffer: &mut Buffer<T>) -> &mut [T] {
    match buffer.whole_mut() {
        Cpu(elements) => elements,
        Gpu(_) => unreachable!("they lie on the CPU"),
    }
}

/// The address of a buffer's elements on a GPU.
fn pointer<T: Item>(buffer: &mut Buffer<T>) -> *mut T {
    match buffer.whole_mut() {
        Cpu(_) => unreachable!("they lie on a GPU"),
        Gpu(pointer) => pointer,
    }
}
