//! Tests with three emulated devices. They are a program apart from `suite`, because the number of devices is
//! the whole program's and set before the first device is opened.

mod groups;
mod own_reduce;
mod sharded;
