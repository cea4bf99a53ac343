//! The limits of GPUs that generated kernels keep. They hold for every GPU of today; the speeds of a machine are in its
//! cost model.

/// The bytes of the widest load and store of a thread.
pub const VECTOR_BYTES: usize = 16;
/// The 32-bit elements of the widest load.
pub const VECTOR: usize = VECTOR_BYTES / size_of::<f32>();
/// The threads of a warp, which reduce by shuffles.
pub const WARP: usize = 32;
/// The maximum number of threads per block.
pub const MAX_BLOCK_THREADS: usize = 1024;
/// The shared memory of a block in bytes, without asking for more.
pub const SMEM_BYTES: usize = 48 << 10;
/// The blocks that a large GPU runs at once: eight for each of some 130 multiprocessors.
pub const RESIDENT_BLOCKS: usize = 1024;
/// The bytes of arguments of a kernel that every driver accepts.
pub const MAX_ARGUMENT_BYTES: usize = 4096;
/// The maximum number of blocks along any axis of a grid but x.
pub const MAX_GRID_ROWS: usize = 65535;

/// Returns true if a thread of a block of this many threads has only 64 registers; otherwise it has at least 128.
pub fn has_few_registers(block: usize) -> bool {
    block > MAX_BLOCK_THREADS / 2
}
