//! Histograms, on every device, against a search through the edges.

use gpu_reduce::{Bins, Error, ExactSum, Reduce, bf16, f16, histogram, histogram_weighted};
use support::{Sample, devices, for_each_element, hash, samples};

/// The bin of a value, if it has one.
fn bin(value: f64, edges: &[f64]) -> Option<usize> {
    let count = edges.len() - 1;
    if value == edges[count] {
        return Some(count - 1);
    }
    (0..count).rev().find(|&bin| value >= edges[bin] && value < edges[bin + 1])
}

fn check<T: Sample + gpu_reduce::Item>(items: &[T], bins: Bins, edges: &[f64], case: &str) {
    let values: Vec<f64> = items.iter().map(|item| item.as_f64()).collect();
    let weights: Vec<f32> = (0..items.len()).map(|place| hash(place as u64) as f32 * 1e-7).collect();
    let mut counts = vec![0; edges.len() - 1];
    let mut sums = vec![Vec::new(); edges.len() - 1];
    for (&value, &weight) in values.iter().zip(&weights) {
        if let Some(bin) = bin(value, edges) {
            counts[bin] += 1;
            sums[bin].push(weight);
        }
    }
    let sums: Vec<f32> = sums.iter().map(|sums| sums.reduce::<ExactSum, 256>().unwrap()).collect();
    for device in devices() {
        let case = format!("{case}: {} on {device}", T::NAME);
        let (x, weights) = (device.upload(items).unwrap(), device.upload(&weights).unwrap());
        let got = histogram(&x, bins.clone()).unwrap();
        assert_eq!(got.edges(), edges, "{case}");
        assert_eq!(got.counts().to_vec().unwrap(), counts, "{case}");
        let got = histogram_weighted(&x, bins.clone(), &weights).unwrap();
        assert_eq!(got.counts().to_vec().unwrap(), sums, "{case}");
    }
}

fn equal(first: f64, last: f64, count: usize) -> Vec<f64> {
    let step = (last - first) / count as f64;
    (0..count).map(|edge| first + edge as f64 * step).chain([last]).collect()
}

fn of_type<T: Sample + gpu_reduce::Item>() {
    let items = samples(5000, T::any);
    check(&items, Bins::Range(10, -3.0..=90.0), &equal(-3.0, 90.0, 10), "a range");
    check(&items, Bins::Range(7, 0.1..=0.7), &equal(0.1, 0.7, 7), "tenths");
    check(&items, Bins::Range(1, 5.0..=5.0), &[4.5, 5.5], "no range");
    let edges = [f64::NEG_INFINITY, -1.0, 0.0, 0.0, 3.5, 64.0, f64::INFINITY];
    check(&items, Bins::Edges(&edges), &edges, "edges");
}

#[test]
fn histograms_of_every_type() {
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => { $( of_type::<$type>(); )* };
    }
    for_each_element! { all! {} }
}

#[test]
fn values_on_edges() {
    for count in [3, 10, 49, 1000] {
        for (first, last) in [(0.0, 1.0), (-0.3, 0.6), (1e-300, 3e-300), (0.0, 5e-324), (-1e300, 1e300)] {
            let edges = equal(first, last, count);
            let near = |edge: &f64| [edge.next_down(), *edge, edge.next_up()];
            let items: Vec<f64> = edges.iter().flat_map(near).collect();
            check(
                &items,
                Bins::Range(count, first..=last),
                &edges,
                &format!("{count} bins {first} to {last}"),
            );
        }
    }
    let edges: Vec<f64> = (0..3000).map(|edge| f64::from(edge).sqrt()).collect();
    let items: Vec<f64> =
        (0..4000).map(|place| (hash(place) % 3_100_000) as f64 / 1e6).map(|x| x * 17.0).collect();
    check(&items, Bins::Edges(&edges), &edges, "many edges");
}

#[test]
fn the_range_of_the_items() {
    let items = [3i32, 9, -4, 7, 7];
    check(&items, 4.into(), &equal(-4.0, 9.0, 4), "their range");
    check(&[2.5f32; 9], 2.into(), &[2.0, 2.5, 3.0], "one value");
    check::<u8>(&[], 2.into(), &[0.0, 0.5, 1.0], "no items");
}

#[test]
fn bad_bins_are_errors() {
    for device in devices() {
        let x = device.upload(&[1.0f64, f64::NAN]).unwrap();
        let is_bad = |bins: Bins| matches!(histogram(&x, bins).map(drop), Err(Error::BadBins { .. }));
        assert!(is_bad(3.into()), "{device}: the items' range has NaN");
        assert!(is_bad((0, 0.0..=1.0).into()) && is_bad((3, 2.0..=1.0).into()), "{device}");
        assert!(is_bad((3, f64::NAN..=1.0).into()) && is_bad((3, 0.0..=f64::INFINITY).into()), "{device}");
        assert!(is_bad((&[1.0]).into()) && is_bad((&[1.0, 0.5]).into()), "{device}");
        assert!(is_bad((&[1.0, f64::NAN, 2.0]).into()), "{device}");
        let error = histogram(&x, &[0.0, 2.0, 1.0]).map(drop).unwrap_err().to_string();
        assert_eq!(error, "bins: edge 2 is 1, which is less than 2 before it or is not a number");
        let weights = device.upload(&[1.0f32]).unwrap();
        let error = histogram_weighted(&x, &[0.0, 2.0], &weights).map(drop);
        assert_eq!(error, Err(Error::LengthMismatch { first: 1, second: 2 }), "{device}");
    }
}
