//! The checks that can be turned off. Each is a module behind [`Hooks`](super::hooks::Hooks).

mod arrays;
pub mod races;
mod unwritten;

use self::{arrays::Arrays, races::Races, unwritten::Unwritten};

/// All checks.
pub type Checks<'g> = (Arrays, (Unwritten<'g>, Races<'g>));
