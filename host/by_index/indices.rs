//! Indices of any integer type, and the order of items by their index.

use crate::data::Data;
use crate::place::Place::{Cpu, Gpu};
use crate::request::{MOST_ORDERED, Sorting};
use crate::segments::Offsets;
use crate::simd::with_simd;
use crate::{Buffer, Device, Error, Item, View, cuda, threads};
use gpu_reduce_kernels::segments::Cut;
use rayon::prelude::*;
use std::borrow::Cow;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null;

/// A type of the words of indices: `u32` or `u64`.
pub trait Index: Copy + Send + Sync {
    /// The index; of a negative one, more than any index.
    fn get(self) -> u64;
}

impl Index for u32 {
    #[inline(always)]
    fn get(self) -> u64 {
        self.into()
    }
}

impl Index for u64 {
    #[inline(always)]
    fn get(self) -> u64 {
        self
    }
}

/// Indices on the host, as unsigned integers: a negative one is more than 2^31, and so too large. Whatever
/// folds by them is compiled for these two types.
pub(crate) enum Words<'a> {
    Short(Cow<'a, [u32]>),
    Long(Cow<'a, [u64]>),
}

/// Calls `$work` with the slice of words, whatever their type.
macro_rules! with_words {
    ($words:expr, |$slice:ident| $work:expr) => {
        match $words {
            $crate::by_index::indices::Words::Short(words) => {
                let $slice = &words[..];
                $work
            }
            $crate::by_index::indices::Words::Long(words) => {
                let $slice = &words[..];
                $work
            }
        }
    };
}
pub(super) use with_words;

impl Words<'_> {
    pub fn len(&self) -> usize {
        with_words!(self, |words| words.len())
    }

    /// The index of the item at a place.
    #[inline(always)]
    pub fn get(&self, place: usize) -> u64 {
        with_words!(self, |words| words[place].get())
    }

    /// The indices of the items in a range.
    pub fn part(&self, range: Range<usize>) -> Words<'_> {
        match self {
            Self::Short(words) => Words::Short(words[range].into()),
            Self::Long(words) => Words::Long(words[range].into()),
        }
    }

    /// Returns the place of the first index that is not below `count`.
    pub fn first_wrong(&self, count: usize) -> Option<usize> {
        with_words!(self, |words| first_wrong(words, count))
    }
}

/// Indices of another type with as many bits, as words.
fn words<X: Item + bytemuck::Pod, W: bytemuck::Pod>(indices: Cow<'_, [X]>) -> Cow<'_, [W]> {
    match indices {
        Cow::Borrowed(indices) => bytemuck::cast_slice(indices).into(),
        Cow::Owned(indices) => bytemuck::cast_vec(indices).into(),
    }
}

/// The index of each item: `u32`, `u64`, `i32`, `i64`, or `usize`, on the host or on the items' device.
#[derive(Clone, Copy, Debug)]
pub struct Indices<'a>(pub(super) AnyIndices<'a>);

/// Indices with their type.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyIndices<'a> {
    U32(View<'a, u32>),
    U64(View<'a, u64>),
    I32(View<'a, i32>),
    I64(View<'a, i64>),
    Usize(View<'a, usize>),
}

/// Calls `$work` with the view of indices, whatever their type.
macro_rules! with_indices {
    ($indices:expr, |$view:ident| $work:expr) => {
        match $indices {
            AnyIndices::U32($view) => $work,
            AnyIndices::U64($view) => $work,
            AnyIndices::I32($view) => $work,
            AnyIndices::I64($view) => $work,
            AnyIndices::Usize($view) => $work,
        }
    };
}

macro_rules! indices {
    ($($type:ident $variant:ident)*) => {$(
        impl<'a> From<View<'a, $type>> for Indices<'a> {
            fn from(indices: View<'a, $type>) -> Self {
                Self(AnyIndices::$variant(indices))
            }
        }

        impl<'a> From<&'a Buffer<$type>> for Indices<'a> {
            fn from(indices: &'a Buffer<$type>) -> Self {
                indices.view().into()
            }
        }

        impl<'a> From<&'a [$type]> for Indices<'a> {
            fn from(indices: &'a [$type]) -> Self {
                View::host(indices).into()
            }
        }

        impl<'a> From<&'a Vec<$type>> for Indices<'a> {
            fn from(indices: &'a Vec<$type>) -> Self {
                indices[..].into()
            }
        }

        impl<'a, const N: usize> From<&'a [$type; N]> for Indices<'a> {
            fn from(indices: &'a [$type; N]) -> Self {
                indices[..].into()
            }
        }
    )*};
}

indices! { u32 U32 u64 U64 i32 I32 i64 I64 usize Usize }

impl<'a> Indices<'a> {
    /// Returns the number of indices.
    pub fn len(&self) -> usize {
        with_indices!(self.0, |view| view.len())
    }

    /// Whether there are no indices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device where they lie.
    pub(super) fn device(&self) -> Device {
        with_indices!(self.0, |view| view.device())
    }

    /// The address of the indices on a GPU, and the words of each.
    pub(super) fn on_gpu(&self, gpu: &'static cuda::Gpu) -> Result<(*const u32, u32), Error> {
        with_indices!(self.0, |view| match view.place()? {
            Gpu((own, indices)) if own == gpu => Ok((indices.cast(), words_of(indices))),
            _ => Err(Error::DeviceMismatch { buffer: self.device().to_string(), device: gpu.to_string() }),
        })
    }

    /// Returns the order of items by their index, each of which is below `count`, for items where the indices
    /// lie.
    pub fn order(&self, count: usize) -> Result<Order, Error> {
        match self.device().0 {
            Gpu(gpu) if self.can_be_sorted(count) => {
                let mut places = Buffer::<u32>::room(gpu, self.len())?;
                let Gpu(sorted) = places.whole_mut() else { unreachable!("they lie on a GPU") };
                // SAFETY: there is room for a place of each item.
                let offsets = unsafe { self.sort(gpu, count, (null(), 4), sorted.cast())? };
                Ok(Order::OfGpu { places, offsets })
            }
            _ => {
                let words = self.words()?;
                self.check_on_host(&words, count)?;
                with_words!(words, |indices| Ok(Order::of(indices, count)))
            }
        }
    }

    /// Whether a GPU can sort the items.
    pub fn can_be_sorted(&self, count: usize) -> bool {
        count > 0 && (1..=MOST_ORDERED).contains(&self.len())
    }

    /// Sorts items of 1, 2, 4 or 8 bytes by their index on the GPU where these lie; null stands for their
    /// places. Returns where those of each index begin.
    ///
    /// # Safety
    ///
    /// There are as many items, and room for them.
    pub unsafe fn sort(
        &self,
        gpu: &'static cuda::Gpu,
        count: usize,
        (items, bytes): (*const c_void, usize),
        sorted: *mut c_void,
    ) -> Result<Buffer<u32>, Error> {
        let mut offsets = Buffer::room(gpu, count + 1)?;
        let (indices, index_words) = self.on_gpu(gpu)?;
        let len = self.len();
        if let Gpu(offsets) = offsets.whole_mut() {
            let sorting = Sorting { items, bytes, indices, index_words, len, count: count as u64, sorted };
            // SAFETY: as the caller vouches; the indices are borrowed.
            let wrong = unsafe { gpu.sort(&sorting, offsets)? };
            if wrong != Cut::NOTHING {
                return Err(self.error(wrong, count));
            }
        }
        Ok(offsets)
    }

    /// The indices on the host.
    pub(super) fn words(&self) -> Result<Words<'a>, Error> {
        Ok(match self.0 {
            AnyIndices::U32(view) => Words::Short(on_host(view)?),
            AnyIndices::U64(view) => Words::Long(on_host(view)?),
            AnyIndices::I32(view) => Words::Short(words(on_host(view)?)),
            AnyIndices::I64(view) => Words::Long(words(on_host(view)?)),
            AnyIndices::Usize(view) if size_of::<usize>() == 4 => Words::Short(words(on_host(view)?)),
            AnyIndices::Usize(view) => Words::Long(words(on_host(view)?)),
        })
    }

    /// Returns an error if one of the indices, which `words` has, is not below `count`.
    pub(super) fn check_on_host(&self, words: &Words, count: usize) -> Result<(), Error> {
        words.first_wrong(count).map_or(Ok(()), |place| Err(self.error(place as u64, count)))
    }

    /// Returns the error of the index at a place.
    pub(super) fn error(&self, place: u64, count: usize) -> Error {
        let index = |place: usize| -> Result<i128, Error> {
            with_indices!(self.0, |view| {
                let index = view.slice(place..place + 1)?.to_vec()?;
                Ok(index.first().map_or(0, |&index| index as i128))
            })
        };
        match index(place as usize) {
            Ok(index) => Error::BadIndex { place, index, count },
            Err(error) => error,
        }
    }
}

fn words_of<X>(_: *const X) -> u32 {
    (size_of::<X>() / size_of::<u32>()) as u32
}

/// The places of items in the order of their indices, items of one index in their own order; and where those
/// of each index begin, and the last end.
pub enum Order {
    OfHost { places: Vec<usize>, offsets: Vec<u64> },
    OfGpu { places: Buffer<u32>, offsets: Buffer<u32> },
}

impl Order {
    /// Sorts by counting. The indices are below `count`.
    fn of<X: Index>(indices: &[X], count: usize) -> Self {
        let mut offsets = vec![0u64; count + 1];
        indices.iter().for_each(|index| offsets[index.get() as usize + 1] += 1);
        for index in 1..=count {
            offsets[index] += offsets[index - 1];
        }
        let mut next = offsets.clone();
        let mut places = vec![0; indices.len()];
        for (place, index) in indices.iter().enumerate() {
            let next = &mut next[index.get() as usize];
            places[*next as usize] = place;
            *next += 1;
        }
        Self::OfHost { places, offsets }
    }

    /// An order without indices, of items on a GPU.
    pub fn of_gpu(places: Buffer<u32>) -> Result<Self, Error> {
        let offsets = Buffer::zeros(&places.device(), 0)?;
        Ok(Self::OfGpu { places, offsets })
    }

    /// Where the items of each index begin, of items on a GPU that have been sorted.
    pub fn without_places(offsets: Buffer<u32>) -> Result<Self, Error> {
        let places = Buffer::zeros(&offsets.device(), 0)?;
        Ok(Self::OfGpu { places, offsets })
    }

    /// As [`of_gpu`](Self::of_gpu), of items on the host.
    pub fn of_host(places: Vec<usize>) -> Self {
        Self::OfHost { places, offsets: Vec::new() }
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        match self {
            Self::OfHost { places, .. } => places.len(),
            Self::OfGpu { places, .. } => places.len(),
        }
    }

    /// Where the items of each index begin.
    pub fn offsets(&self) -> Offsets<'_> {
        match self {
            Self::OfHost { offsets, .. } => offsets.into(),
            Self::OfGpu { offsets, .. } => offsets.into(),
        }
    }

    /// The elements in this order.
    pub fn gather<T: Item>(&self, elements: &[T]) -> Result<Vec<T>, Error> {
        match self {
            Self::OfHost { places, .. } => {
                let element = |&place: &usize| elements[place];
                if size_of_val(elements) < 1 << 20 {
                    return Ok(places.iter().map(element).collect());
                }
                let mut gathered = vec![T::zeroed(); places.len()];
                threads::each_part(&mut gathered, PIECE, &|part, gathered| {
                    gathered
                        .iter_mut()
                        .zip(&places[part * PIECE..])
                        .for_each(|(to, place)| *to = element(place));
                });
                Ok(gathered)
            }
            Self::OfGpu { places, .. } => {
                Ok(places.to_vec()?.into_iter().map(|place| elements[place as usize]).collect())
            }
        }
    }
}

/// Items that a thread takes at a time.
const PIECE: usize = 1 << 16;

/// Returns the place of the first index that is not below `count`.
fn first_wrong<X: Index>(indices: &[X], count: usize) -> Option<usize> {
    // Without a branch for each index, this becomes SIMD.
    let has_wrong = |piece: &[X]| {
        with_simd(
            #[inline(always)]
            || piece.iter().fold(false, |has, index| has | (index.get() >= count as u64)),
        )
    };
    let wrong = if indices.len() < PIECE {
        has_wrong(indices).then_some(0)
    } else {
        let len = indices.len();
        let is_wrong = threads::map(len.div_ceil(PIECE), &|piece| {
            has_wrong(&indices[piece * PIECE..len.min((piece + 1) * PIECE)])
        });
        is_wrong.into_iter().position(|is_wrong| is_wrong).map(|piece| piece * PIECE)
    };
    wrong.map(|start| {
        let found = indices[start..].iter().position(|index| index.get() >= count as u64);
        start + found.unwrap_or(0)
    })
}

/// The indices of the elements of rows, which have been checked.
pub(super) fn elements_of_rows<X: Index>(indices: &[X], columns: usize) -> Vec<u32> {
    let first = |index: &X| index.get() as u32 * columns as u32;
    if indices.len() * columns < 1 << 16 {
        return indices
            .iter()
            .flat_map(|index| (0..columns as u32).map(move |at| first(index) + at))
            .collect();
    }
    let mut elements = vec![0; indices.len() * columns];
    threads::install(|| {
        elements.par_chunks_mut(columns).zip(indices).with_min_len((1 << 14) / columns + 1).for_each(
            |(elements, index)| elements.iter_mut().zip(first(index)..).for_each(|(to, at)| *to = at),
        );
    });
    elements
}

/// The elements of a view on the host.
pub fn on_host<T: Item>(view: View<'_, T>) -> Result<Cow<'_, [T]>, Error> {
    Ok(match view.0 {
        Cpu(elements) => elements.into(),
        Gpu(_) => view.to_vec()?.into(),
    })
}
