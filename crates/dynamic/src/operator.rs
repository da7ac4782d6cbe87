//! Operators as values, from the library's tables.

use std::fmt;
use std::str::FromStr;

use gpu_reduce::{for_each_integer_operator, for_each_operator, for_each_pair_operator};

/// Defines an enum of the operators of tables, by their names.
macro_rules! operators {
    ($Enum:ident, $what:literal $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        #[doc = concat!("An operator of ", $what, " of the library's tables.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Enum {
            $(
                #[doc = concat!("[`gpu_reduce::", stringify!($name), "`].")]
                $op,
            )*
        }

        impl $Enum {
            /// All operators.
            pub const ALL: &[Self] = &[$(Self::$op),*];

            /// The name of the library's function, such as `sum`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$op => stringify!($name),)*
                }
            }
        }

        impl fmt::Display for $Enum {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $Enum {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                match name {
                    $(stringify!($name) => Ok(Self::$op),)*
                    _ => Err(format!("no operator of {}", $what)),
                }
            }
        }
    };
}

/// Joins the rows of two tables.
macro_rules! of_elements {
    ({} $($rows:tt)*) => { for_each_integer_operator! { of_elements! { rows $($rows)* } } };
    ({ rows $($rows:tt)* } $($more:tt)*) => { operators! { Operator, "elements" $($rows)* $($more)* } };
}

for_each_operator! { of_elements! {} }

macro_rules! of_pairs {
    ({} $($rows:tt)*) => { operators! { PairOperator, "pairs of elements" $($rows)* } };
}

for_each_pair_operator! { of_pairs! {} }
