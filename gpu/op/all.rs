quantifier! {
    /// Whether all elements are not zero; a NaN is not. Of no elements: yes.
    All "all": & &=, of nothing true;
}
