extreme! {
    /// The smallest element. A NaN makes the result NaN, as in NumPy and PyTorch; −0.0 is below +0.0 (IEEE 754-2019,
    /// `minimum`). Empty input is an error.
    Min "min": min lesser lt, NaN is LEAST, nothing is GREATEST;
}
