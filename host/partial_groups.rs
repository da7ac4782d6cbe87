//! Groups in parts: made from pieces of the data, by other processes, on other machines, at other times.

mod form;
mod keys;
mod sums;

pub use keys::{GroupKey, IndexKey};

use crate::buffer::zeroed;
use crate::by_index::indices::on_host;
use crate::cpu::Source;
use crate::data::{Data, gpu_of, lies_on};
use crate::partial::{name, parameters, same};
use crate::place::Place::{Cpu, Gpu};
use crate::{Buffer, Error, Groups, Item, Keys, Op, Reduce, threads};
use gpu_reduce_kernels::agent::{Agent, in_any_order};
use keys::KeyList;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use sums::{Layout, LayoutOf, Numbered, Sums};

/// Groups in parts: the partial results of items by key, made from pieces of the data.
///
/// Each worker adds the pieces that it has, and sends its part as [bytes](Self::to_bytes). Whoever gathers
/// the parts [merges](Self::merge) them, in any order and any grouping. The results have the bits of
/// [`group_by`](Reduce::group_by) with all items at once: sums and means of floats are the correctly rounded
/// ones, because a part holds them exactly. A part has no items, and the length of the data need not be
/// known: it is also the [`Reducer`](crate::Reducer) of groups.
///
/// ```
/// use gpu_reduce::{PartialGroups, Sum};
///
/// let mut here = PartialGroups::new(Sum);
/// here.add(&[30i64, 10, 30], &[1e30f32, 2.0, 1.0])?;
///
/// // Elsewhere.
/// let mut there = PartialGroups::new(Sum);
/// there.add(&[30i64, 20], &[-1e30f32, 8.0])?;
/// let bytes = there.to_bytes();
///
/// here.merge(PartialGroups::from_bytes(Sum, &bytes)?)?;
/// let (keys, sums) = here.finish()?;
/// assert_eq!(keys.to_vec()?, [10, 20, 30]);
/// assert_eq!(sums.to_vec()?, [2.0, 8.0, 1.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Operators
///
/// Those for which the order of the items does not matter: sums and means of any numbers, extremes, counts,
/// bits, exact operators, what adds up integers. (Those for which a [`Sharded`](crate::Sharded) array needs
/// no plan, and sums and means.) Other operators do not compile: those whose order counts, those that tell
/// places, such as `ArgMax`, for a place depends on the cut, and operators of your own.
///
/// ```compile_fail
/// use gpu_reduce::{PartialGroups, Var};
///
/// let part = PartialGroups::<Var, i32, f64>::new(Var::default());
/// ```
///
/// ```compile_fail
/// use gpu_reduce::{ArgMax, PartialGroups};
///
/// let part = PartialGroups::<ArgMax, i32, f64>::new(ArgMax);
/// ```
///
/// # Keys
///
/// All that [`group_by`](Reduce::group_by) takes: elements, or pairs of columns, `&(&a, &b)`, of 16 bytes at
/// most. Indices are keys, too, with [results by index](Self::finish_by_index). Zeros are one key, which is
/// +0.0 in the end, and NaN are one, which is the canonical NaN: the first item is not known.
///
/// # Size
///
/// A part has, for each group, the bytes of its key and an accumulator. The accumulator of a sum or mean is
/// the significant words of the exact sum: 8 to 24 bytes if a group's floats have similar magnitudes, and up
/// to 48 (`f32`) or 272 (`f64`). As bytes, a group of up to 10,000 such floats takes some 15 to 21 with a key
/// of 8 bytes.
///
#[doc = include_str!("partial_groups/form.md")]
pub struct PartialGroups<O: Op<T>, K: GroupKey, T: Copy + 'static> {
    op: O,
    /// Groups of pieces. Each has at most half as many groups as the one before, so that a group is merged
    /// once for each doubling.
    runs: Vec<Run<O::Accumulator, K>>,
    of: PhantomData<fn() -> T>,
}

/// Groups that ascend by key.
#[derive(Clone)]
struct Run<A, K> {
    keys: KeyList<K>,
    accumulators: Accumulators<A>,
}

/// What groups have accumulated.
#[derive(Clone)]
enum Accumulators<A> {
    /// Exact sums, of operators that make something of a sum.
    Sums(Sums),
    /// The operator's accumulators, and the number of items.
    Each(Vec<(A, u64)>),
}

impl<O: Op<T>, K: GroupKey, T: Copy + 'static> PartialGroups<O, K, T> {
    /// Returns a part without groups.
    pub fn new(op: O) -> Self {
        const {
            assert!(
                in_any_order::<O, T>(),
                "the order of the items counts for this operator, or it tells their places: it has no partial groups"
            );
            assert!(K::BYTES <= 16, "keys have at most 16 bytes, all columns together");
        }
        Self { op, runs: Vec::new(), of: PhantomData }
    }

    /// Adds items, each to the group of its key.
    ///
    /// Keys and items lie on one device, or as [`Sharded`](crate::Sharded) on several, cut at the same
    /// places. A GPU numbers its keys; the numbers and the items are then copied to the CPU, which adds them
    /// up.
    ///
    /// # Errors
    ///
    /// If there is an error, the part stays as it was. [`Error::LengthMismatch`], [`Error::ShardMismatch`],
    /// [`Error::DeviceMismatch`]; as [`Groups::of`].
    pub fn add<'a, Q, D>(&mut self, keys: &'a Q, items: &'a D) -> Result<(), Error>
    where
        Q: Reduce<Item = K, Data<'a>: Data<'a, Shard: Keys<'a, Owned = K::Columns>>> + ?Sized,
        D: Reduce<Item = T> + ?Sized,
    {
        let accumulate =
            |items: ShardOf<'a, D>, numbers: &[u32], count| self.accumulate(items, numbers, count);
        let runs = runs::<K, Q, D, _>(keys, items, &accumulate)?;
        let layout = self.layout();
        push_all(&mut self.runs, runs, layout, &ByOp::new(&self.op));
        Ok(())
    }

    /// Adds items that are grouped already: [`Groups::of`] numbers keys once, for several arrays and
    /// operators.
    ///
    /// ```
    /// use gpu_reduce::{Groups, Max, Mean, PartialGroups};
    ///
    /// let groups = Groups::of(&[7i32, -3, 7])?;
    /// let (mut means, mut maxima) = (PartialGroups::new(Mean), PartialGroups::new(Max));
    /// means.add_groups(&groups, &[1.0f32, 2.0, 4.0])?;
    /// maxima.add_groups(&groups, &[10u8, 20, 40])?;
    /// assert_eq!(means.finish()?.1.to_vec()?, [2.0, 2.5]);
    /// assert_eq!(maxima.finish()?.1.to_vec()?, [20, 40]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_groups<C, D>(&mut self, groups: &Groups<C>, items: &D) -> Result<(), Error>
    where
        C: Reduce<Item = K>,
        K: GroupKey<Columns = C>,
        D: Reduce<Item = T> + ?Sized,
    {
        let items = items.data();
        let (first, second) = (groups.numbers().len(), items.len());
        if first != second {
            return Err(Error::LengthMismatch { first, second });
        }
        if first > 0 {
            lies_on(gpu_of(&items.place()?), &groups.numbers().device())?;
            let run = run(groups, |numbers, count| self.accumulate(items, numbers, count))?;
            let layout = self.layout();
            push_all(&mut self.runs, vec![run], layout, &ByOp::new(&self.op));
        }
        Ok(())
    }

    /// Adds the groups of another part.
    ///
    /// # Errors
    ///
    /// If there is an error, the part stays as it was. [`Error::ReductionMismatch`] if the other part is by
    /// an operator with other parameters.
    pub fn merge(&mut self, other: Self) -> Result<(), Error> {
        same("operator's parameters", &parameters(&other.op), &parameters(&self.op))?;
        let layout = self.layout();
        push_all(&mut self.runs, other.runs, layout, &ByOp::new(&self.op));
        Ok(())
    }

    /// Returns the keys in ascending order, and the result of each group, in host memory. Others may follow.
    ///
    /// # Errors
    ///
    /// [`Error::EmptySegment`] if the operator has no value for a group, with the group's place.
    pub fn finish(&self) -> Result<(K::Columns, Buffer<O::Output>), Error>
    where
        O::Output: Item,
    {
        let all = self.all();
        let results = self.results(&all)?;
        Ok((K::columns(all.keys.iter().collect()), Buffer::of_host(results)))
    }

    /// Returns a result for each index, `0..count`, if the keys are indices, as
    /// [`by_index`](Reduce::by_index) does; of an index without items, `without`. Others may follow.
    ///
    /// ```
    /// use gpu_reduce::{PartialGroups, Sharded, Sum};
    ///
    /// // Shards may be buffers on several GPUs.
    /// let indices = Sharded::from(vec![vec![3u32, 0], vec![3]]);
    /// let x = Sharded::from(vec![vec![0.5f32, 2.0], vec![1.0]]);
    /// let mut part = PartialGroups::new(Sum);
    /// part.add(&indices, &x)?;
    /// assert_eq!(part.finish_by_index(4, 0.0)?.to_vec()?, [2.0, 0.0, 0.0, 1.5]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::BadIndex`] for an index that is negative or too large, with its place among the indices that
    /// there are; [`Error::OutOfMemory`], and as [`finish`](Self::finish).
    pub fn finish_by_index(&self, count: usize, without: O::Output) -> Result<Buffer<O::Output>, Error>
    where
        K: IndexKey,
        O::Output: Item,
    {
        let all = self.all();
        check(&all.keys, count)?;
        by_index(&all.keys, self.results(&all)?, count, without)
    }

    fn results(&self, all: &Run<O::Accumulator, K>) -> Result<Vec<O::Output>, Error>
    where
        O::Output: Item,
    {
        Ok(match &all.accumulators {
            Accumulators::Sums(sums) => {
                let results = O::agent().by_index(&self.op, sums);
                results.unwrap_or_else(|| unreachable!("the operator makes something of sums"))
            }
            Accumulators::Each(each) => finish_each(each, &ByOp::new(&self.op), O::NAME)?,
        })
    }

    /// The operator.
    #[cfg(feature = "mpi")]
    pub(crate) fn op(&self) -> O {
        self.op
    }

    /// What the sums hold, if the operator makes something of sums.
    fn layout(&self) -> Option<Layout> {
        O::agent().by_index(&self.op, LayoutOf)
    }

    /// Returns what groups of items on one device accumulate; each item has the number of its group.
    fn accumulate<'a>(
        &self,
        items: impl Data<'a, Item = T>,
        numbers: &[u32],
        count: usize,
    ) -> Result<Accumulators<O::Accumulator>, Error> {
        Ok(match items.place()? {
            Cpu(items) => self.accumulate_on_host(Numbered { items, numbers, count }),
            Gpu(_) => match items.to_host()?.data().place()? {
                Cpu(items) => self.accumulate_on_host(Numbered { items, numbers, count }),
                Gpu(_) => unreachable!("they have been copied to the host"),
            },
        })
    }

    fn accumulate_on_host<S: Source<Item = T>>(&self, items: Numbered<S>) -> Accumulators<O::Accumulator> {
        match O::agent().by_index(&self.op, items) {
            Some(sums) => Accumulators::Sums(sums),
            None => Accumulators::Each(each(&self.op, items)),
        }
    }

    /// Returns all groups.
    fn all(&self) -> Cow<'_, Run<O::Accumulator, K>> {
        all(&self.runs, self.layout(), &ByOp::new(&self.op))
    }
}

/// An operator over items of type `T`.
struct ByOp<'a, O, T> {
    op: &'a O,
    of: PhantomData<fn() -> T>,
}

impl<'a, O, T> ByOp<'a, O, T> {
    fn new(op: &'a O) -> Self {
        Self { op, of: PhantomData }
    }
}

// What follows is compiled for each type of accumulators, not for each operator.

/// How accumulators merge. (The compiler would copy the body of a `dyn Fn` to a function that nothing calls,
/// for
/// `FnOnce`.)
trait Combine<A> {
    fn combine(&self, a: A, b: A) -> A;
}

impl<O: Op<T>, T: Copy + 'static> Combine<O::Accumulator> for ByOp<'_, O, T> {
    fn combine(&self, a: O::Accumulator, b: O::Accumulator) -> O::Accumulator {
        self.op.combine(a, b)
    }
}

/// What accumulators come to.
trait Finish<A, V> {
    fn finish(&self, all: A, count: u64) -> Option<V>;
}

impl<O: Op<T>, T: Copy + 'static> Finish<O::Accumulator, O::Output> for ByOp<'_, O, T> {
    fn finish(&self, all: O::Accumulator, count: u64) -> Option<O::Output> {
        self.op.finish(all, count)
    }
}

/// Returns the result of each group.
#[inline(never)]
fn finish_each<A: Copy, V>(
    each: &[(A, u64)],
    by: &dyn Finish<A, V>,
    op: &'static str,
) -> Result<Vec<V>, Error> {
    let result = |(group, &(all, count)): (usize, &(A, u64))| {
        let no_value = || Error::EmptySegment { op, segment: group as u64 };
        by.finish(all, count).ok_or_else(no_value)
    };
    each.iter().enumerate().map(result).collect()
}

/// The items of one device.
type ShardOf<'a, D> = <<D as Reduce>::Data<'a> as Data<'a>>::Shard;

/// What accumulates the items of a device. It takes the items, the number of each one's group, and the number
/// of groups.
type Accumulate<'f, S, A> = &'f (dyn Fn(S, &[u32], usize) -> Result<Accumulators<A>, Error> + Sync);

/// Returns the groups of items, of each device.
fn runs<'a, K, Q, D, A: Send>(
    keys: &'a Q,
    items: &'a D,
    accumulate: Accumulate<ShardOf<'a, D>, A>,
) -> Result<Vec<Run<A, K>>, Error>
where
    K: GroupKey,
    Q: Reduce<Item = K, Data<'a>: Data<'a, Shard: Keys<'a, Owned = K::Columns>>> + ?Sized,
    D: Reduce + ?Sized,
{
    let data = (keys.data(), items.data());
    let (first, second) = (data.0.len(), data.1.len());
    if first != second {
        return Err(Error::LengthMismatch { first, second });
    }
    let shards: Vec<_> = data.shards()?.into_iter().filter(|shard| !shard.is_empty()).collect();
    let of_shard = |shard: (_, _)| {
        // Fails if they lie on different devices.
        shard.place()?;
        let (keys, items) = shard;
        run(&Groups::new(keys, false)?, |numbers, count| accumulate(items, numbers, count))
    };
    match shards[..] {
        [shard] => Ok(vec![of_shard(shard)?]),
        _ => threads::map(shards.len(), &|number| of_shard(shards[number])).into_iter().collect(),
    }
}

/// Returns the groups of items on one device, whose keys have been numbered. `accumulate` takes the number of
/// each item's group, and the number of groups.
fn run<A, K: GroupKey>(
    groups: &Groups<K::Columns>,
    accumulate: impl FnOnce(&[u32], usize) -> Result<Accumulators<A>, Error>,
) -> Result<Run<A, K>, Error> {
    let mut bits = K::bits(groups.keys())?;
    let mut numbers = on_host(groups.numbers().view())?;
    if !bits.is_sorted() {
        // They are numbered in the order of appearance.
        sort(&mut bits, numbers.to_mut());
    }
    Ok(Run { keys: KeyList::of(&bits), accumulators: accumulate(&numbers, groups.len())? })
}

/// Adds groups to those of pieces.
#[inline(never)]
fn push_all<A: Copy, K: GroupKey>(
    runs: &mut Vec<Run<A, K>>,
    others: Vec<Run<A, K>>,
    layout: Option<Layout>,
    by: &dyn Combine<A>,
) {
    for mut run in others {
        while let Some(last) = runs.pop_if(|last| last.keys.len() < 2 * run.keys.len()) {
            run = both(&last, &run, layout, by);
        }
        runs.push(run);
    }
}

/// Returns all groups.
#[inline(never)]
fn all<'a, A: Copy, K: GroupKey>(
    runs: &'a [Run<A, K>],
    layout: Option<Layout>,
    by: &dyn Combine<A>,
) -> Cow<'a, Run<A, K>> {
    let mut runs = runs.iter().rev();
    let Some(last) = runs.next() else {
        let accumulators = match layout {
            Some(_) => Accumulators::Sums(Sums::default()),
            None => Accumulators::Each(Vec::new()),
        };
        return Cow::Owned(Run { keys: KeyList::with_capacity(0), accumulators });
    };
    runs.fold(Cow::Borrowed(last), |all, run| Cow::Owned(both(run, &all, layout, by)))
}

/// Returns the groups of both.
fn both<A: Copy, K: GroupKey>(
    a: &Run<A, K>,
    b: &Run<A, K>,
    layout: Option<Layout>,
    by: &dyn Combine<A>,
) -> Run<A, K> {
    let mut keys = KeyList::with_capacity(a.keys.len() + b.keys.len());
    let accumulators = match (&a.accumulators, &b.accumulators, layout) {
        (Accumulators::Sums(of_a), Accumulators::Sums(of_b), Some(layout)) => {
            let of_both = (&mut keys, [&a.keys, &b.keys]);
            Accumulators::Sums(both_sums(of_both, [of_a, of_b], layout))
        }
        (Accumulators::Each(of_a), Accumulators::Each(of_b), _) => {
            let mut all = Vec::with_capacity(of_a.len() + of_b.len());
            let (a, b) = (a.keys.iter().zip(of_a), b.keys.iter().zip(of_b));
            for_each_of_both(a, b, |key, of_a, of_b| {
                keys.push(key);
                all.extend(match (of_a, of_b) {
                    (Some(a), Some(b)) => Some((by.combine(a.0, b.0), a.1.wrapping_add(b.1))),
                    (one, other) => one.or(other).copied(),
                });
            });
            Accumulators::Each(all)
        }
        _ => unreachable!("accumulators of one operator are of one kind"),
    };
    Run { keys, accumulators }
}

/// Returns the sums of the groups of both, whose keys it appends to `all`.
fn both_sums<K: GroupKey>(
    (all, [a, b]): (&mut KeyList<K>, [&KeyList<K>; 2]),
    [of_a, of_b]: [&Sums; 2],
    layout: Layout,
) -> Sums {
    let mut sums = Sums::for_both(of_a, of_b);
    let (a, b) = (a.iter().zip(of_a.iter()), b.iter().zip(of_b.iter()));
    for_each_of_both(a, b, |key, of_a, of_b| {
        all.push(key);
        match (of_a, of_b) {
            (Some(a), Some(b)) => sums.push_both(layout, a, b),
            (one, other) => one.or(other).into_iter().for_each(|sum| sums.push(layout, sum)),
        }
    });
    sums
}

/// Fails if a key is no index of `count`.
#[inline(never)]
fn check<K: IndexKey>(keys: &KeyList<K>, count: usize) -> Result<(), Error> {
    let wrong = |&(_, index): &(u64, i128)| index < 0 || index >= count as i128;
    match (0..).zip(keys.iter().map(K::index)).find(wrong) {
        Some((place, index)) => Err(Error::BadIndex { place, index, count }),
        None => Ok(()),
    }
}

/// Returns a result for each index: those of the keys, and else `without`.
#[inline(never)]
fn by_index<K: IndexKey, V: Item>(
    keys: &KeyList<K>,
    of_keys: Vec<V>,
    count: usize,
    without: V,
) -> Result<Buffer<V>, Error> {
    let mut results = zeroed(count)?;
    results.fill(without);
    for (index, result) in keys.iter().map(K::index).zip(of_keys) {
        results[index as usize] = result;
    }
    Ok(Buffer::of_host(results))
}

/// Sorts keys, and renumbers the items' numbers of keys. (One function for all operators, keys and items: a
/// sort compiles to much code.)
fn sort(keys: &mut [u128], numbers: &mut [u32]) {
    let mut order: Vec<_> = (0..keys.len()).collect();
    order.sort_unstable_by_key(|&key| keys[key]);
    let mut ranks = vec![0; keys.len()];
    order.iter().zip(0..).for_each(|(&key, rank)| ranks[key] = rank);
    numbers.iter_mut().for_each(|number| *number = ranks[*number as usize]);
    keys.sort_unstable();
}

/// Calls `each` with each key of either list, and what the lists have for it.
fn for_each_of_both<V>(
    a: impl Iterator<Item = (u128, V)>,
    b: impl Iterator<Item = (u128, V)>,
    mut each: impl FnMut(u128, Option<V>, Option<V>),
) {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let of_a = if order.is_le() { a.next() } else { None };
        let of_b = if order.is_ge() { b.next() } else { None };
        if let Some(key) = of_a.as_ref().or(of_b.as_ref()).map(|&(key, _)| key) {
            each(key, of_a.map(|(_, value)| value), of_b.map(|(_, value)| value));
        }
    }
}

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Folds the items of each group, and counts them. Threads have accumulators of their own.
fn each<O: Op<S::Item>, S: Source>(op: &O, all: Numbered<S>) -> Vec<(O::Accumulator, u64)> {
    let (len, count) = (all.numbers.len(), all.count);
    fold_shares(&EachBy { op, all }, len, count)
}

/// Numbered items and their operator.
struct EachBy<'a, O, S> {
    op: &'a O,
    all: Numbered<'a, S>,
}

/// How the items of groups fold.
trait FoldEach<A>: Combine<A> + Sync {
    /// Folds a range of the items: returns the accumulator and the number of items of each group.
    fn fold(&self, places: Range<usize>) -> Vec<(A, u64)>;
}

impl<O: Op<S::Item>, S: Source> Combine<O::Accumulator> for EachBy<'_, O, S> {
    fn combine(&self, a: O::Accumulator, b: O::Accumulator) -> O::Accumulator {
        self.op.combine(a, b)
    }
}

impl<O: Op<S::Item>, S: Source> FoldEach<O::Accumulator> for EachBy<'_, O, S> {
    fn fold(&self, places: Range<usize>) -> Vec<(O::Accumulator, u64)> {
        let Self { op, all: Numbered { items, numbers, count } } = *self;
        let mut groups = vec![(op.identity(), 0); count];
        for (place, &number) in (places.start..).zip(&numbers[places]) {
            let (all, count) = &mut groups[number as usize];
            // SAFETY: there are as many items as numbers.
            O::agent().fold_item(op, all, unsafe { items.get(place) }, 0);
            *count += 1;
        }
        groups
    }
}

/// Folds `len` items of `count` groups.
#[inline(never)]
fn fold_shares<A: Copy + Send>(by: &dyn FoldEach<A>, len: usize, count: usize) -> Vec<(A, u64)> {
    // A thread's share has several items for each group, or merging them would take longer than adding.
    let share = (len / threads::count()).max(PARALLEL / 2).max(8 * count);
    if len < PARALLEL || share >= len {
        return by.fold(0..len);
    }
    let merge = |groups: &mut Vec<_>, others: Vec<_>| {
        for ((all, count), (other, others)) in groups.iter_mut().zip(others) {
            (*all, *count) = (by.combine(*all, other), *count + others);
        }
    };
    let shares =
        threads::map(len.div_ceil(share), &|number| by.fold(number * share..len.min((number + 1) * share)));
    threads::merged(shares, &merge).unwrap_or_default()
}

impl<O: Op<T>, K: GroupKey, T: Copy + 'static> Clone for PartialGroups<O, K, T> {
    fn clone(&self) -> Self {
        Self { op: self.op, runs: self.runs.clone(), of: PhantomData }
    }
}

/// `PartialGroups { op: "sum", groups: [1000, 20] }`: the groups of pieces that have not been merged.
impl<O: Op<T>, K: GroupKey, T: Copy + 'static> fmt::Debug for PartialGroups<O, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let groups: Vec<_> = self.runs.iter().map(|run| run.keys.len()).collect();
        f.debug_struct("PartialGroups").field("op", &name(&self.op)).field("groups", &groups).finish()
    }
}
