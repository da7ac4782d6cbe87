place! {
    /// The index of the smallest element that is not NaN, of the first where there are several; 0 where all are NaN, which is an error in
    /// NumPy. −0.0 is below +0.0. Empty input is an error.
    NanArgMin "nanargmin": lt min lesser, from GREATEST, NaN is GREATEST;
}
