extreme! {
    /// The largest element; otherwise as [`Min`](crate::Min).
    Max "max": max greater gt, NaN is GREATEST, nothing is LEAST;
}
