place! {
    /// The index of the largest element that is not NaN; otherwise as [`NanArgMin`](crate::NanArgMin).
    NanArgMax "nanargmax": gt max greater, from LEAST, NaN is LEAST;
}
