//! Several operators in one pass, and items that come in pieces, have the bits of one call by one operator.

use std::cell::Cell;

use gpu_reduce_dynamic::gpu_reduce::{self, Kurtosis, Reduce, Sum, Var};
use gpu_reduce_dynamic::{Dtype, Error, Number, Operator, Reducer, Target, Values, with_type};

/// More than a mebibyte of f32, so that several threads fold it; no whole number of chunks or rows.
const LONG: usize = 300_001;

fn items<T: Number>(len: usize) -> Vec<T> {
    let bytes = (0..len * size_of::<T>()).map(|place| (place * place / 7 + place / 3) as u8);
    gpu_reduce_dynamic::cast(&bytes.collect::<Vec<_>>()).into_owned()
}

fn same(found: &Values, expected: &Values, what: impl Fn() -> String) {
    assert_eq!((found.type_name(), found.bytes()), (expected.type_name(), expected.bytes()), "{}", what());
}

#[test]
fn all_operators_in_passes() {
    for dtype in [Dtype::f32, Dtype::f64, Dtype::f16, Dtype::i8, Dtype::u64] {
        for len in [1, 5000, LONG] {
            with_type!(dtype, T => {
                let items = items::<T>(len);
                let target = Target::All(items.data());
                let takes = |operator: &&Operator| target.reduce(**operator, 1).is_ok();
                let operators: Vec<_> = Operator::ALL.iter().filter(takes).copied().collect();
                let found = target.reduce_all(&operators, 1, &|| true).unwrap();
                assert_eq!(found.len(), operators.len());
                for (operator, found) in operators.iter().zip(found) {
                    let expected = target.reduce(*operator, 1).unwrap();
                    same(&found, &expected, || format!("{operator} of {len} {dtype}"));
                }
            });
        }
    }
}

#[test]
fn errors_of_any_operator() {
    let (items, none): ([f32; 2], [f32; 0]) = ([1.5, 2.5], []);
    let of = |data: &[f32], operators: &[Operator]| {
        Target::All(data.data()).reduce_all(operators, 0, &|| true).map(|all| format!("{all:?}"))
    };
    let not_integers = Error::NotIntegers { operator: Operator::BitOr, dtype: Dtype::f32 };
    assert_eq!(of(&items, &[Operator::Sum, Operator::BitOr, Operator::Max]), Err(not_integers));
    let empty = Error::Reduce(gpu_reduce::Error::EmptyInput { op: "max" });
    assert_eq!(of(&none, &[Operator::Sum, Operator::Max]), Err(empty));
    assert_eq!(of(&none, &[Operator::Sum, Operator::Any]).unwrap(), r#"[["0.0"], ["false"]]"#);
    assert_eq!(of(&items, &[]).unwrap(), "[]");
}

/// On a GPU, operators that the library has one kernel for share a pass, with the bits that each has alone.
#[test]
fn several_operators_share_kernels() {
    use Operator::{ArgMax, ArgMin, Max, Mean, Min, Std, Sum, SumSq, Var};
    let device = gpu_reduce::Device::emulator().unwrap();
    // The operators, and the passes over all items and over long segments.
    let cases: [(&[Operator], [usize; 2]); 9] = [
        (&[Max, Sum, Min], [1, 2]),
        (&[Sum, Max], [1, 2]),
        (&[Max, Min], [1, 1]),
        (&[ArgMax, ArgMin], [1, 1]),
        (&[Var, Mean], [1, 2]),
        (&[Mean, Std, Sum, Sum, Min], [3, 5]),
        (&[Sum, SumSq], [2, 2]),
        (&[Mean, Var, Std], [2, 3]),
        (&[Mean, Sum, ArgMin, Std, Max, ArgMax], [3, 5]),
    ];
    for dtype in [Dtype::f32, Dtype::i8] {
        with_type!(dtype, T => {
            let items = items::<T>(10_000);
            let there = device.upload(&items).unwrap();
            let offsets = [0u32, 1, 10_000];
            let targets: [(Target<T>, Target<T>); 5] = [
                (Target::All(there.data()), Target::All(items.data())),
                (Target::Each(there.rows(5000).unwrap()), Target::Each(items.rows(5000).unwrap())),
                (Target::Each(there.columns(2).unwrap()), Target::Each(items.columns(2).unwrap())),
                (Target::Each(there.segments(&offsets).unwrap()), Target::Each(items.segments(&offsets).unwrap())),
                (Target::Each(there.rows(100).unwrap()), Target::Each(items.rows(100).unwrap())),
            ];
            for (which, (target, on_host)) in targets.iter().enumerate() {
                for (operators, [of_all, of_long]) in cases {
                    let passes = [of_all, of_long, of_long, of_long, operators.len()][which];
                    let asked = Cell::new(0);
                    let go_on = || asked.replace(asked.get() + 1) < 9;
                    let found = target.reduce_all(operators, 1, &go_on).unwrap();
                    assert_eq!(asked.get() + 1, passes, "{operators:?}");
                    for (operator, found) in operators.iter().zip(found) {
                        let expected = on_host.reduce(*operator, 1).unwrap();
                        same(&found, &expected, || format!("{operator} of {operators:?}, {dtype}"));
                    }
                }
            }
        });
    }
    // Without a result, the operator says so.
    let none = device.upload::<f32>(&[]).unwrap();
    let empty = Target::All(none.data()).reduce_all(&[Sum, Max], 0, &|| true).map(|_| ());
    assert_eq!(empty, Err(Error::Reduce(gpu_reduce::Error::EmptyInput { op: "max" })));
    let some = device.upload(&[1.5f32]).unwrap();
    let stopped = Target::All(some.data()).reduce_all(&[Sum, Max, Mean], 0, &|| false).map(|_| ());
    assert_eq!(stopped, Err(Error::Stopped));
}

/// What a stream writes has the type that is described, and the bits of a call that waits.
#[test]
fn enqueued_results() {
    let device = gpu_reduce::Device::emulator().unwrap();
    let stream = device.stream().unwrap();
    for dtype in [Dtype::f32, Dtype::i8] {
        with_type!(dtype, T => {
            let items = device.upload(&items::<T>(600)).unwrap();
            let targets = [
                Target::All(items.data()),
                Target::Each(items.rows(100).unwrap()),
                Target::Each(items.columns(20).unwrap()),
            ];
            for (target, len) in targets.iter().zip([1, 6, 20]) {
                for &operator in Operator::ALL {
                    let waited = match target.reduce(operator, 1) {
                        Ok(waited) => waited,
                        Err(error) => {
                            assert_eq!(target.describe(operator, 1), Err(error));
                            continue;
                        }
                    };
                    let described = target.describe(operator, 1).unwrap();
                    assert_eq!((described.type_name, described.width), (waited.type_name(), waited.width()));
                    assert_eq!(waited.len(), len);
                    // A word more, for results that end within one.
                    let mut places = device.zeros::<u64>(waited.bytes().len() / 8 + 1).unwrap();
                    // SAFETY: there is a place for each result, and all stay until the stream has been synchronized.
                    unsafe {
                        let first = places.view_mut().as_mut_ptr().cast();
                        target.enqueue(operator, 1, &stream, first).unwrap();
                    }
                    stream.synchronize().unwrap();
                    let words = places.to_vec().unwrap();
                    let found: &[u8] = bytemuck::cast_slice(&words);
                    assert_eq!(&found[..waited.bytes().len()], waited.bytes(), "{operator} of {len} {dtype}");
                }
            }
        });
    }
    let groups = [1.5f32, 2.5];
    let groups = Target::ByIndex(groups.by_index(&[0u32, 0], 1).unwrap());
    assert_eq!(groups.describe(Operator::Sum, 0), Err(Error::Grouped));
    // SAFETY: nothing is written.
    let on_host = unsafe {
        let items = [1.5f32];
        Target::All(items.data()).enqueue(Operator::Sum, 0, &stream, std::ptr::null_mut())
    };
    assert!(matches!(on_host, Err(Error::Reduce(gpu_reduce::Error::DeviceMismatch { .. }))));
}

#[test]
fn segments_go_one_after_another() {
    let items = items::<f32>(LONG);
    let rows = || Target::Each(items[1..].rows(100).unwrap());
    let found = rows().reduce_all(&[Operator::Sum, Operator::ArgMin], 0, &|| true).unwrap();
    same(&found[0], &rows().reduce(Operator::Sum, 0).unwrap(), || "sum".into());
    same(&found[1], &rows().reduce(Operator::ArgMin, 0).unwrap(), || "argmin".into());
}

/// A long pass asks whether to go on, also of one operator.
#[test]
fn passes_stop() {
    let items = vec![1u8; (1 << 26) + 12_345];
    let target = Target::All(items.data());
    for operators in [&[Operator::Sum, Operator::Max][..], &[Operator::Sum]] {
        let asked = Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() < 2
        };
        let stopped = target.reduce_all(operators, 0, &go_on).map(|_| ());
        assert_eq!((stopped, asked.get()), (Err(Error::Stopped), 2));
        let found = target.reduce_all(operators, 0, &|| true).unwrap();
        assert_eq!(found[0].text(0), items.len().to_string());
    }
}

#[test]
fn pieces_of_one_array() {
    for dtype in [Dtype::f32, Dtype::f64, Dtype::f16, Dtype::i8, Dtype::u64] {
        with_type!(dtype, T => {
            let items = items::<T>(LONG);
            let target = Target::All(items.data());
            for &operator in Operator::ALL {
                let Ok(expected) = target.reduce(operator, 1) else { continue };
                for cuts in [vec![], vec![0, 1, 2, 77_777, 250_000], vec![LONG - 1]] {
                    let mut reducer = Reducer::new(operator, dtype, 1, Some(LONG as u64)).unwrap();
                    let ends = cuts.iter().copied().chain([LONG]);
                    let mut start = 0;
                    for end in ends {
                        assert_eq!(reducer.count(), start as u64);
                        reducer.push(bytes(&items[start..end])).unwrap();
                        start = end;
                    }
                    same(&reducer.finish().unwrap(), &expected, || format!("{operator} of {dtype}"));
                }
            }
        });
    }
}

fn bytes<T: Number>(items: &[T]) -> &[u8] {
    bytemuck::cast_slice(items)
}

/// If the number of items is not known, results have the bits of the typed `Reducer`.
#[test]
fn pieces_of_any_number() {
    let items = items::<i16>(LONG).into_iter().map(f32::from).collect::<Vec<_>>();
    macro_rules! check {
        ($op:expr, $operator:ident, $pieces:expr) => {
            let mut typed = gpu_reduce::Reducer::<_, f32, 256>::new($op);
            let mut reducer = Reducer::new(Operator::$operator, Dtype::f32, 1, None).unwrap();
            for piece in $pieces {
                typed.push(piece).unwrap();
                reducer.push(bytes(piece)).unwrap();
                let expected = Values::of(vec![typed.finish().unwrap()]);
                same(&reducer.finish().unwrap(), &expected, || stringify!($operator).into());
            }
        };
    }
    check!(Sum, Sum, items.chunks(40_000));
    check!(Var::new(1), Var, items.chunks(150_000));
    check!(Kurtosis, Kurtosis, items.chunks(299_999));
}

#[test]
fn errors_of_pieces() {
    let new = |operator, len| Reducer::new(operator, Dtype::f64, 0, len);
    let not_integers = Error::NotIntegers { operator: Operator::BitXor, dtype: Dtype::f64 };
    assert_eq!(new(Operator::BitXor, None).err(), Some(not_integers));
    let text = |reducer: &Reducer| reducer.finish().map(|values| values.text(0));
    assert_eq!(text(&new(Operator::Sum, None).unwrap()).unwrap(), "0.0");
    let empty = gpu_reduce::Error::EmptyInput { op: "min" };
    assert_eq!(text(&new(Operator::Min, None).unwrap()), Err(empty.into()));

    let mut two = new(Operator::Sum, Some(2)).unwrap();
    let incomplete = |count| Err(gpu_reduce::Error::Incomplete { count, len: 2 }.into());
    assert_eq!(text(&two), incomplete(0));
    let too_many = gpu_reduce::Error::OutOfBounds { start: 0, end: 3, len: 2 };
    assert_eq!(two.push(bytes(&[5.0, 6.0, 7.0])), Err(too_many.into()));
    two.push(bytes(&[1.5])).unwrap();
    assert_eq!(text(&two), incomplete(1));
    let before = two.clone();
    two.push(bytes(&[2.5])).unwrap();
    assert_eq!((text(&two).unwrap(), before.count()), ("4.0".into(), 1));
}
