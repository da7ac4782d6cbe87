//! `merge_sorted` against a merge that takes the first of the smallest heads, one after another.

use gpu_reduce::{Device, Element, Error, merge_sorted};
use proptest::prelude::*;
use std::sync::LazyLock;
use support::reference::Ordered;
use support::{devices, for_each_element, hash};

static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(devices);

/// The elements, each with the list that it comes from.
fn expected<T: Ordered>(lists: &[Vec<T>]) -> (Vec<T>, Vec<u32>) {
    let mut heads: Vec<_> = lists.iter().map(|list| list.iter().peekable()).collect();
    let mut merged = Vec::new();
    loop {
        let filled = (0..heads.len()).filter_map(|list| Some((list, *heads[list].peek()?)));
        // `min_by` returns the first of equal elements.
        let least = filled.collect::<Vec<_>>().into_iter().min_by(|(_, a), (_, b)| a.order(b));
        let Some((list, &element)) = least else { return merged.into_iter().unzip() };
        heads[list].next();
        merged.push((element, list as u32));
    }
}

fn test_lists<T: Ordered>(lists: &[Vec<T>]) {
    let (values, numbers) = expected(lists);
    let slices: Vec<&[T]> = lists.iter().map(Vec::as_slice).collect();
    for device in &*DEVICES {
        let merged = merge_sorted(device, &slices).unwrap();
        let context = format!("{} lists of {} on {device}", lists.len(), T::NAME);
        // Compares bytes, because each NaN keeps its bits.
        let bytes = |values: &[T]| bytemuck::cast_slice::<T, u8>(values).to_vec();
        assert!(bytes(&merged.values) == bytes(&values), "{context}: {:?} for {values:?}", merged.values);
        assert_eq!(merged.lists, numbers, "{context}");
    }
}

/// One of few values, so that many elements are equal: the sentinel's bits, extremes, and some between. As
/// floats they are NaNs of different bits, zeros of both signs, and numbers.
fn value<T: Element>(hash: u64) -> T {
    const BITS: [u64; 8] =
        [u64::MAX, u64::MAX >> 1, 1 << 63, 0, 0x3f, 0xbf, 0x7fff_ffff, 0x1234_5678_9abc_def0];
    let bits = BITS[hash as usize % BITS.len()];
    // The high bytes, for types of any size.
    bytemuck::pod_read_unaligned(&bits.to_le_bytes()[8 - size_of::<T>()..])
}

/// Makes `count` sorted lists of up to `longest` elements.
fn lists<T: Ordered>(count: usize, longest: u64) -> Vec<Vec<T>> {
    let list = |list: u64| {
        let mut elements: Vec<T> =
            (0..hash(list) % (longest + 1)).map(|index| value(hash(list << 32 | index))).collect();
        elements.sort_by(T::order);
        elements
    };
    (0..count as u64).map(list).collect()
}

macro_rules! test_types {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        #[test]
        fn $type() {
            #[allow(unused_imports)]
            use gpu_reduce::{bf16, f16};
            for (count, longest) in [(0, 0), (1, 300), (2, 100), (31, 9), (32, 9), (33, 9), (1024, 3), (1025, 1)] {
                test_lists(&lists::<$type>(count, longest));
            }
            // Many empty lists, and a long one.
            let mut lists = lists::<$type>(70, 0);
            lists[40] = self::lists(1, 100).remove(0);
            test_lists(&lists);
        }
    )*};
}

for_each_element! { test_types! {} }

#[test]
fn a_list_out_of_order_is_refused() {
    for device in &*DEVICES {
        let error = merge_sorted(device, &[&[1.0f32, 2.0][..], &[0.0, 3.0, f32::NAN]]).unwrap_err();
        assert_eq!(error, Error::NotSorted { list: 1, index: 2 });
        assert_eq!(
            error.to_string(),
            "list 1 is not sorted: its element 2 is less than the one before it (NaN is the least)"
        );
    }
}

proptest! {
    #![proptest_config(support::cases(32))]

    #[test]
    fn random_lists(mut lists in proptest::collection::vec(proptest::collection::vec(-20i16..20, 0..30), 0..50)) {
        lists.iter_mut().for_each(|list| list.sort());
        test_lists(&lists);
    }
}
