//! What variance and standard deviation have in common.

use bytemuck::{Pod, Zeroable};

/// Items by their distances from one of them, in `f64`: differences of neighbours in value lose nothing, and there is nothing to
/// divide by before the end. (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", 1983, on
/// shifted data.)
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Spread {
    /// How many, a whole number.
    count: f64,
    /// One of them; NaN where any is infinite or a NaN.
    origin: f64,
    /// The sum of the distances from it.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl Spread {
    pub(super) const NONE: Self = Self { count: 0.0, origin: 0.0, sum: 0.0, squares: 0.0 };

    /// That of one item.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN of what is not finite")]
    pub(super) fn of(value: f64) -> Self {
        Self { count: 1.0, origin: value + (value - value), sum: 0.0, squares: 0.0 }
    }

    /// That of both, around the origin of the first that has items.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN of a NaN")]
    pub(super) fn with(self, other: Self) -> Self {
        if self.count == 0.0 {
            return other;
        }
        if other.count == 0.0 {
            return self;
        }
        let apart = other.origin - self.origin;
        let shift = other.count * apart;
        Self {
            count: self.count + other.count,
            origin: self.origin + (other.origin - other.origin),
            sum: self.sum + (other.sum + shift),
            squares: self.squares + (other.squares + (other.sum + other.sum + shift) * apart),
        }
    }

    /// The sum of the squares of the distances from the mean, over the count less `ddof`.
    #[inline(always)]
    pub(super) fn variance(self, ddof: u64) -> f64 {
        let freedom = self.count - ddof as f64;
        if freedom <= 0.0 || self.origin.is_nan() {
            return f64::NAN;
        }
        let around_mean = self.squares - self.sum * (self.sum / self.count);
        match around_mean {
            // Finite items whose distances overflow.
            overflowed if overflowed.is_nan() => f64::INFINITY,
            // Rounding may leave less than nothing.
            negative if negative < 0.0 => 0.0,
            around_mean => around_mean / freedom,
        }
    }
}
