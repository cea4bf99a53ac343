//! Renderers: how a GPU language spells a kernel.
//!
//! The statements of kernels are in the part of C++ that GPU languages share: arithmetic, arrays, loops, and calls of the
//! device library. A renderer spells everything else: the indices of threads, barriers, memory qualifiers, and the
//! kernel's signature.

use crate::codegen::kernel::Kernel;
use crate::codegen::parts::Parts;

/// A language of kernels.
pub trait Renderer: Sync {
    /// The index of a thread in its block.
    fn thread(&self) -> &'static str;

    /// The index of a block along x or y.
    fn block(&self, axis: usize) -> &'static str;

    /// The number of blocks along x.
    fn blocks(&self) -> &'static str;

    /// The statement that waits for all threads of a block.
    fn barrier(&self) -> &'static str;

    /// The qualifier of memory that the threads of a block share.
    fn shared(&self) -> &'static str;

    /// The specifier that aligns a variable to 16 bytes.
    fn aligned(&self) -> &'static str;

    /// The function that exchanges a number in memory atomically.
    fn atomic_exchange(&self) -> &'static str;

    /// Returns the definition of a kernel under this name.
    fn kernel(&self, kernel: &Kernel, name: &str) -> String;

    /// Returns the device library: its base, and these parts of it.
    fn library(&self, parts: Parts) -> String;
}

/// A reference to a renderer.
pub type Dialect = &'static dyn Renderer;

/// Returns a complete text with these kernels, named `kernel_0`, `kernel_1` and so on. Parts of the library that none
/// uses are omitted: compiling them takes longer than most kernels.
pub fn unit<'a>(renderer: &dyn Renderer, kernels: impl Iterator<Item = &'a Kernel> + Clone) -> String {
    let mut text = renderer.library(kernels.clone().map(|kernel| kernel.parts).collect());
    for (number, kernel) in kernels.enumerate() {
        let kernel = renderer.kernel(kernel, &format!("kernel_{number}"));
        text += &format!("namespace unit_{number} {{\n{kernel}}}\n");
    }
    text
}
