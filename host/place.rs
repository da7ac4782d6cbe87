//! On the CPU or on a GPU: the one distinction that devices, memory and data have in common.

/// What is on one side or the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place<C, G> {
    /// On the CPU.
    Cpu(C),
    /// On a GPU, of the driver or of the emulator.
    Gpu(G),
}
