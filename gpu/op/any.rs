quantifier! {
    /// Whether any element is not zero; a NaN is not. Of no elements: no.
    Any "any": | |=, of nothing false;
}
