place! {
    /// The index of the smallest element, of the first where there are several; that of the first NaN if there is one, as in NumPy and
    /// PyTorch. −0.0 is below +0.0. Empty input is an error.
    ArgMin "argmin": lt min lesser, from GREATEST, NaN is LEAST;
}
