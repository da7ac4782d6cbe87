//! Arrays of the crate `ndarray` reduced over an axis, with random shapes, orders of axes and slices.

use gpu_reduce::{
    ArgMin, Device, Error, Item, Max, Mean, Min, Op, Prod, Reduce, ReduceAxis, Std, Sum, Var, argmax_axis,
    argmin_axis, max_axis, mean_axis, min_axis, prod_axis, std_axis, sum_axis, var_axis,
};
use ndarray::{Array, ArrayD, ArrayViewD, Axis, Dimension, IxDyn, RemoveAxis, ShapeBuilder, Slice, array, s};
use proptest::prelude::*;
use std::fmt::Debug;
use support::{devices, hash};

/// How a view is made from an array.
#[derive(Clone, Debug)]
struct Case {
    /// The length of each axis, and how it is sliced.
    axes: Vec<(usize, Change)>,
    is_column_major: bool,
    /// Decides the order of the axes and the axis that is reduced.
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Whole,
    /// Leaves out the first `skip` items, and of the rest keeps every `step`th; in descending order if
    /// `step` is negative.
    Sliced {
        skip: usize,
        step: isize,
    },
    /// Repeats one of the items.
    Repeated(usize),
}

fn cases() -> impl Strategy<Value = Case> {
    let change = prop_oneof![
        4 => Just(Change::Whole),
        1 => Just(Change::Sliced { skip: 0, step: -1 }),
        1 => (0..3usize, prop_oneof![Just(1isize), Just(2), Just(-2), Just(3)])
            .prop_map(|(skip, step)| Change::Sliced { skip, step }),
        1 => (1..5usize).prop_map(Change::Repeated),
    ];
    let axis = (prop_oneof![8 => 1..9usize, 1 => Just(0usize), 1 => 30..70usize], change);
    (proptest::collection::vec(axis, 1..5), any::<bool>(), any::<u64>())
        .prop_map(|(axes, is_column_major, seed)| Case { axes, is_column_major, seed })
}

impl Case {
    fn array<T>(&self, from: impl Fn(u64) -> T) -> ArrayD<T> {
        let shape: Vec<usize> = self.axes.iter().map(|&(len, _)| len).collect();
        let mut index = self.seed;
        Array::from_shape_simple_fn(IxDyn(&shape).set_f(self.is_column_major), || {
            index = index.wrapping_add(1);
            from(hash(index))
        })
    }

    fn with_view<T>(&self, array: &ArrayD<T>, test: impl FnOnce(&ArrayViewD<T>)) {
        let mut view = array.view();
        let mut times = vec![None; self.axes.len()];
        for (index, &(len, change)) in self.axes.iter().enumerate() {
            match change {
                Change::Sliced { skip, step } => {
                    view.slice_axis_inplace(Axis(index), Slice::new(skip.min(len) as isize, None, step));
                }
                Change::Repeated(count) if len > 0 => {
                    view.slice_axis_inplace(Axis(index), Slice::from(len - 1..));
                    times[index] = Some(count);
                }
                _ => {}
            }
        }
        let shape: Vec<usize> =
            times.iter().zip(view.shape()).map(|(times, &len)| times.unwrap_or(len)).collect();
        let mut order: Vec<usize> = (0..self.axes.len()).collect();
        order.sort_by_key(|&axis| hash(self.seed ^ axis as u64));
        test(&view.broadcast(&shape[..]).unwrap().permuted_axes(&order[..]));
    }

    fn axis(&self) -> Axis {
        Axis((self.seed >> 40) as usize % self.axes.len())
    }
}

/// Compares as text, in which NaNs are equal and zeros of different signs are not.
fn text<R: Debug>(result: R) -> String {
    format!("{result:?}")
}

/// Panics unless each result is that of its lane alone.
fn compare<O: Op<T, Output: Item> + Default, T: Item>(
    view: &ArrayViewD<T>,
    axis: Axis,
    got: Result<ArrayD<O::Output>, Error>,
) {
    let lanes: Vec<Vec<T>> =
        view.lanes(axis).into_iter().map(|lane| lane.iter().copied().collect()).collect();
    let alone: Result<Vec<_>, Error> = lanes.iter().map(|lane| lane.reduce::<O, 64>()).collect();
    match (got, alone) {
        (Ok(got), Ok(alone)) => {
            assert_eq!(got.shape(), view.raw_dim().remove_axis(axis).slice(), "{axis:?}");
            for (got, alone) in got.iter().zip(alone) {
                assert_eq!(text(got), text(alone), "{} {:?} {:?}", O::NAME, view.shape(), view.strides());
            }
        }
        (got, alone) => assert!(
            matches!(got, Err(Error::EmptySegment { .. })) && alone.is_err(),
            "{got:?} {alone:?} {:?}",
            view.shape()
        ),
    }
}

proptest! {
    #![proptest_config(support::cases(100))]

    #[test]
    fn integers(case in cases()) {
        let axis = case.axis();
        case.with_view(&case.array(|hash| hash as i64 >> 32), |view| {
            assert_eq!(sum_axis(view, axis).unwrap(), view.sum_axis(axis));
            if view.len_of(axis) > 0 {
                let least = view.map_axis(axis, |lane| *lane.iter().min().unwrap());
                let most = view.map_axis(axis, |lane| *lane.iter().max().unwrap());
                assert_eq!(min_axis(view, axis).unwrap(), least);
                assert_eq!(max_axis(view, axis).unwrap(), most);
            }
        });
        case.with_view(&case.array(|hash| hash as i64 % 3), |view| {
            assert_eq!(prod_axis(view, axis).unwrap(), view.product_axis(axis));
        });
    }

    #[test]
    fn floats(case in cases()) {
        let axis = case.axis();
        case.with_view(&case.array(|hash| (hash as i32 >> 8) as f32 * 2f32.powi(-(hash as i32 & 15))), |view| {
            compare::<Sum, f32>(view, axis, view.reduce_axis::<Sum, 64>(axis));
            compare::<Var, f32>(view, axis, view.reduce_axis_by::<_, 64>(Var::new(0), axis));
            compare::<ArgMin, f32>(view, axis, view.reduce_axis::<ArgMin, 64>(axis));
            let items: Vec<f32> = view.iter().copied().collect();
            assert_eq!(text(view.reduce_all::<Sum, 64>()), text(items.reduce::<Sum, 64>()));
            assert_eq!(view.reduce_all::<ArgMin, 64>(), items.reduce::<ArgMin, 64>());
            assert_eq!(text(view.reduce_all_by::<_, 64>(Var::new(0))), text(items.by(Var::new(0)).block::<64>().run()));
        });
    }

    #[test]
    fn bytes(case in cases()) {
        let axis = case.axis();
        case.with_view(&case.array(|hash| hash as u8 % 5), |view| {
            compare::<Mean, u8>(view, axis, view.reduce_axis::<Mean, 64>(axis));
            compare::<ArgMin, u8>(view, axis, view.reduce_axis::<ArgMin, 64>(axis));
        });
    }
}

#[test]
fn on_devices() {
    let x =
        Array::from_shape_fn((5, 300, 7), |(a, b, c)| (hash((a * 2_100 + b * 7 + c) as u64) as i32) as f32);
    let views = [x.view(), x.view().permuted_axes([2, 0, 1]), x.slice(s![..;-1, 3..;2, ..])];
    for device in devices() {
        for view in &views {
            for axis in (0..3).map(Axis) {
                let got = view.reduce_axis_on::<Sum, 256>(axis, &device).unwrap();
                let on_host = view.reduce_axis::<Sum, 256>(axis).unwrap();
                assert_eq!(got, on_host, "{axis:?} on {device}");
                let least = view.reduce_axis_on::<Min, 32>(axis, &device).unwrap();
                assert_eq!(least, min_axis(view, axis).unwrap(), "{axis:?} on {device}");
            }
        }
    }
}

/// Element types, of arrays whose number of axes is known.
#[test]
fn functions() {
    let x = array![[1.0f32, 4.0], [3.0, 8.0]];
    let of_one_axis: ndarray::Array1<f32> = sum_axis(&x, Axis(0)).unwrap();
    assert_eq!(of_one_axis, array![4.0, 12.0]);
    let of_none: ndarray::Array0<f32> = sum_axis(&of_one_axis, Axis(0)).unwrap();
    assert_eq!(of_none.into_scalar(), 16.0);
    assert_eq!(prod_axis(&x.t(), Axis(0)).unwrap(), array![4.0, 24.0]);
    assert_eq!(mean_axis(&x, Axis(1)).unwrap(), array![2.5, 5.5]);
    assert_eq!(max_axis(&x.row(1), Axis(0)).unwrap().into_scalar(), 8.0);
    assert_eq!(argmin_axis(&x, Axis(0)).unwrap(), array![0, 0]);
    assert_eq!(argmax_axis(&x.slice(s![.., ..;-1]), Axis(1)).unwrap(), array![0, 0]);
    assert_eq!(var_axis(&x, Axis(0), 1).unwrap(), array![2.0, 8.0]);
    assert_eq!(std_axis(&x, Axis(0), 0).unwrap(), array![1.0, 2.0]);
    assert_eq!(x.reduce_axis_by::<_, 32>(Std::new(0), Axis(0)).unwrap(), array![1.0, 2.0]);
    assert_eq!(x.reduce_axis::<Prod, 32>(Axis(1)).unwrap(), array![4.0, 24.0]);
}

#[test]
fn what_is_no_axis() {
    let x = array![[1.0f32, 4.0], [3.0, 8.0]];
    assert_eq!(sum_axis(&x, Axis(2)).err(), Some(Error::Axes { start: 2, end: 3, axes: 2 }));
    assert!(sum_axis(&x, Axis(usize::MAX)).is_err());
    let none = Array::<f32, _>::zeros((3, 0, 2));
    assert_eq!(sum_axis(&none, Axis(1)).unwrap(), Array::<f32, _>::zeros((3, 2)));
    assert_eq!(sum_axis(&none, Axis(0)).unwrap().shape(), [0, 2]);
    assert_eq!(max_axis(&none, Axis(2)).unwrap().shape(), [3, 0]);
    assert_eq!(max_axis(&none, Axis(1)).err(), Some(Error::EmptySegment { op: "max", segment: 0 }));
    assert_eq!(none.reduce_axis_on::<Max, 32>(Axis(0), &Device::cpu()).unwrap().len(), 0);
}

/// The one-line functions take arrays and views of any order, with the bits of their items in row-major
/// order.
#[test]
fn whole_arrays_in_one_line() {
    let x = Array::from_shape_fn((7, 30, 11), |(a, b, c)| hash((a * 330 + b * 11 + c) as u64) as i32 as f32);
    let items: Vec<f32> = x.iter().copied().collect();
    assert_eq!(gpu_reduce::sum(&x), gpu_reduce::sum(&items));
    assert_eq!(gpu_reduce::reduce(&x, (Mean, Max)), gpu_reduce::reduce(&items, (Mean, Max)));
    let above = gpu_reduce::Comparison::Greater(0.0);
    assert_eq!(gpu_reduce::count_where(&x, above), gpu_reduce::count_where(&items, above));

    let transposed = x.t();
    let items: Vec<f32> = transposed.iter().copied().collect();
    assert_eq!(gpu_reduce::argmax(&transposed), gpu_reduce::argmax(&items));
    let view = x.slice(s![..;-2, 3.., ..;3]);
    let items: Vec<f32> = view.iter().copied().collect();
    assert_eq!(gpu_reduce::sum(&view), gpu_reduce::sum(&items));
    assert_eq!(gpu_reduce::sum(&view.into_dyn()), gpu_reduce::sum(&items));
    assert_eq!(gpu_reduce::dot(&view.t(), &items).unwrap(), {
        let turned: Vec<f32> = view.t().iter().copied().collect();
        gpu_reduce::dot(&turned, &items).unwrap()
    });
    let of_array: &ndarray::ArrayRef<f32, _> = &x;
    assert_eq!(gpu_reduce::min(of_array), gpu_reduce::min(&x));

    assert_eq!(gpu_reduce::sum(&ndarray::arr0(5u8)), Ok(5));
    assert_eq!(gpu_reduce::sum(&Array::<f64, _>::zeros((3, 0))), Ok(0.0));
    assert_eq!(gpu_reduce::max(&Array::<f64, _>::zeros(0)), Err(Error::EmptyInput { op: "max" }));
}
