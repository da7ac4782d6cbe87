//! Histograms: how many items lie in each bin.

use crate::data::Data;
use crate::place::Place::{Cpu, Gpu};
use crate::{Buffer, Device, Element, Error, Item, MinMax, Op, Reduce, Sum, View, bincount, threads};
use gpu_reduce_kernels::indices;
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// The bins of a histogram, as NumPy's: a number of equal bins over the range of the items, `10`, or over a
/// given one, `(10, 0.0..=1.0)`; or edges, `&[0.0, 1.0, 10.0]`, one more than bins.
///
/// A bin has the values from its edge on that are less than the next edge; the last one has its last edge
/// too. What lies outside of all bins, and NaN, is not counted. Items and edges are compared as `f64`.
#[derive(Clone, Debug)]
pub enum Bins<'a> {
    /// Equal bins over the range of the items.
    Count(usize),
    /// Equal bins over a range.
    Range(usize, RangeInclusive<f64>),
    /// Bins between these edges, which do not descend.
    Edges(&'a [f64]),
}

impl From<usize> for Bins<'_> {
    fn from(count: usize) -> Self {
        Self::Count(count)
    }
}

impl From<(usize, RangeInclusive<f64>)> for Bins<'_> {
    fn from((count, range): (usize, RangeInclusive<f64>)) -> Self {
        Self::Range(count, range)
    }
}

impl<'a> From<&'a [f64]> for Bins<'a> {
    fn from(edges: &'a [f64]) -> Self {
        Self::Edges(edges)
    }
}

impl<'a> From<&'a Vec<f64>> for Bins<'a> {
    fn from(edges: &'a Vec<f64>) -> Self {
        Self::Edges(edges)
    }
}

impl<'a, const N: usize> From<&'a [f64; N]> for Bins<'a> {
    fn from(edges: &'a [f64; N]) -> Self {
        Self::Edges(edges)
    }
}

/// A histogram: what [`histogram`] and [`histogram_weighted`] return.
#[derive(Debug)]
pub struct Histogram<C: Item> {
    counts: Buffer<C>,
    edges: Vec<f64>,
}

impl<C: Item> Histogram<C> {
    /// Returns the number of items in each bin, or the sum of their weights, where the items lie.
    pub fn counts(&self) -> &Buffer<C> {
        &self.counts
    }

    /// Returns the edges of the bins, one more than there are bins.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }
}

/// Bins with their edges.
struct Edges {
    bins: indices::Bins,
    edges: Vec<f64>,
}

impl Edges {
    fn of<T: Element + Item>(bins: Bins, items: View<'_, T>) -> Result<Self, Error> {
        let (count, range) = match bins {
            Bins::Edges(edges) => {
                let descends = |pair: &[f64]| pair[0] > pair[1] || pair[0].is_nan() || pair[1].is_nan();
                if let Some(at) = edges.windows(2).position(descends) {
                    let (place, before, edge) = (at + 1, edges[at], edges[at + 1]);
                    return Err(bad(format!(
                        "edge {place} is {edge}, which is less than {before} before it or is not a number"
                    )));
                }
                if edges.len() < 2 {
                    return Err(bad(format!("{} edges make no bin: give at least 2", edges.len())));
                }
                let bins = indices::Bins { count: edges.len() as u64 - 1, scale: 0.0 };
                return Ok(Self { bins, edges: edges.to_vec() });
            }
            Bins::Range(count, range) => (count, range.into_inner()),
            Bins::Count(count) if items.is_empty() => (count, (0.0, 1.0)),
            Bins::Count(count) => {
                let range: [T; 2] = items.reduce::<MinMax, 256>()?;
                (count, (range[0].as_f64(), range[1].as_f64()))
            }
        };
        let (first, last) = range;
        if count == 0 {
            return Err(bad("0 bins: give at least 1".to_owned()));
        }
        if !(first <= last && (last - first).is_finite()) {
            return Err(bad(format!(
                "the range from {first} to {last} descends, or is not finite: give a range of finite numbers"
            )));
        }
        let (first, last) = if first == last { (first - 0.5, last + 0.5) } else { (first, last) };
        let step = (last - first) / count as f64;
        let mut edges: Vec<f64> = (0..count).map(|edge| first + edge as f64 * step).collect();
        edges.push(last);
        let scale = count as f64 / (last - first);
        let bins = indices::Bins { count: count as u64, scale: if scale.is_finite() { scale } else { 0.0 } };
        Ok(Self { bins, edges })
    }

    /// Returns the bin of each item; the number of bins for what lies outside.
    fn find<T: Element + Item>(&self, items: View<'_, T>) -> Result<Buffer<u32>, Error> {
        match items.place()? {
            Cpu(items) => {
                let find = |item: &T| self.bins.find(item.as_f64(), |edge| self.edges[edge]);
                let found = threads::install(|| items.par_iter().with_min_len(1 << 14).map(find).collect());
                Ok(Buffer::of_host(found))
            }
            Gpu((gpu, pointer)) => {
                let edges = Device(Gpu(gpu)).upload(&self.edges)?;
                let Gpu((_, edges)) = edges.view().place()? else { unreachable!("they lie on a GPU") };
                // SAFETY: the items are borrowed, and there are as many edges.
                unsafe { gpu.find_bins(pointer, items.len(), self.bins, edges) }
            }
        }
    }
}

#[cold]
fn bad(reason: String) -> Error {
    Error::BadBins { reason }
}

/// Counts the items in each bin, as NumPy's `histogram`.
///
/// ```
/// use gpu_reduce::{Device, histogram};
///
/// let x = Device::default_device().upload(&[0.5f32, 1.0, 1.5, 2.0, 2.5, 9.0])?;
/// assert_eq!(histogram(&x, (3, 0.0..=3.0))?.counts().to_vec()?, [1, 2, 2]);
/// assert_eq!(histogram(&x, &[0.0, 1.0, 10.0])?.counts().to_vec()?, [1, 5]);
/// assert_eq!(histogram(&x, 2)?.edges(), [0.5, 4.75, 9.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::BadBins`] for edges that descend, a range that is not finite, or no bins;
/// [`Error::TooManyGroups`]; [`Error::SeveralDevices`]; and as [`Reduce::reduce`].
pub fn histogram<'a, 'b, D, T>(x: &'a D, bins: impl Into<Bins<'b>>) -> Result<Histogram<u64>, Error>
where
    T: Element + Item,
    D: Reduce<Item = T, Data<'a>: Data<'a, Shard = View<'a, T>>> + ?Sized,
{
    let items = one_view(x.data())?;
    let edges = Edges::of(bins.into(), items)?;
    let count = edges.bins.count as usize;
    let mut counts = bincount(&edges.find(items)?, count + 1)?;
    counts.truncate(count);
    Ok(Histogram { counts, edges: edges.edges })
}

/// Sums the weights of the items in each bin, as NumPy's `histogram` with weights. Sums of floats are the
/// correctly rounded ones, in any order.
///
/// ```
/// use gpu_reduce::histogram_weighted;
///
/// let sums = histogram_weighted(&[0.5f64, 1.0, 1.5], (2, 0.0..=2.0), &[1.0f32, 2.0, 4.0])?;
/// assert_eq!(sums.counts().to_vec()?, [1.0, 6.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::LengthMismatch`] if there are more or fewer weights than items, [`Error::DeviceMismatch`], and as
/// [`histogram`].
pub fn histogram_weighted<'a, 'b, D, T, W>(
    x: &'a D,
    bins: impl Into<Bins<'b>>,
    weights: &W,
) -> Result<Histogram<<Sum as Op<W::Item>>::Output>, Error>
where
    T: Element + Item,
    D: Reduce<Item = T, Data<'a>: Data<'a, Shard = View<'a, T>>> + ?Sized,
    W: Reduce<Item: Element> + ?Sized,
    Sum: Op<W::Item, Output: Item>,
{
    let items = one_view(x.data())?;
    let edges = Edges::of(bins.into(), items)?;
    let count = edges.bins.count as usize;
    let found = edges.find(items)?;
    let mut counts = weights.by_index(&found, count + 1)?.reduce::<Sum, 256>()?;
    counts.truncate(count);
    Ok(Histogram { counts, edges: edges.edges })
}

/// The items, if they lie on one device.
fn one_view<'a, T: Item>(data: impl Data<'a, Shard = View<'a, T>>) -> Result<View<'a, T>, Error> {
    match data.shards()?[..] {
        [items] => Ok(items),
        ref shards => {
            let names = shards.iter().map(|shard| shard.device().to_string());
            Err(Error::SeveralDevices { devices: names.collect::<Vec<_>>().join(", ") })
        }
    }
}
