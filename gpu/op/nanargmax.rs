operator! {
    /// The index of the largest element that is not NaN; of the first one if there are several.
    ///
    /// The result is a `u64`; it is 0 if all elements are NaN, which is an error in NumPy. −0.0 is below
    /// +0.0. Empty input is an error.
    NanArgMax "nanargmax": place::FirstExtreme<false, true>, crate::agent::extremes::FirstPlace::<false, true>
}
