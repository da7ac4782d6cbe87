//! The distinction between CPU and GPU that devices, memory and data share.

/// A value for the CPU or one for a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place<C, G> {
    /// The CPU's value.
    Cpu(C),
    /// A GPU's value; the emulator's device counts as a GPU.
    Gpu(G),
}
