//! Transposes through shared memory, so that both reads and writes are coalesced.

use crate::codegen::kernel::{Code, decode};
use bilevel_plan::{Run, View};

/// Threads of a block.
pub const THREADS: usize = 256;
/// The maximum length of a short contiguous run, and the minimum length of the axis across it.
const MAX_INNER_RUN: usize = 16;
const MIN_OUTER_RUN: usize = 32;
/// The side of a tile in shared memory.
const SIDE: usize = 32;

/// A view whose last axis is strided, while the axis before it is contiguous:
///
///   view\[o, j, i\] = memory\[outer(o) + i·neighbours + j\],   j < neighbours, i < lines
///
/// Short runs, such as the taps of a kernel with channels last, are moved together with many lines. Long runs, such as
/// the channels of an image, are moved in square tiles.
pub struct SmemTranspose<'a> {
    outer: &'a [Run],
    neighbours: usize,
    lines: usize,
}

/// Returns true if a view is copied through shared memory.
pub fn is_smem_transpose(view: &View) -> bool {
    SmemTranspose::of(&view.runs()).is_some()
}

impl<'a> SmemTranspose<'a> {
    /// Recognises a view by its runs.
    pub fn of(runs: &'a [Run]) -> Option<Self> {
        let [outer @ .., along, across] = runs else { return None };
        let lies = along.stride == 1 && across.stride == along.length as isize;
        let worth =
            if along.length > MAX_INNER_RUN { across.length > MAX_INNER_RUN } else { across.length >= MIN_OUTER_RUN };
        (lies && worth).then_some(SmemTranspose { outer, neighbours: along.length, lines: across.length })
    }

    fn has_few(&self) -> bool {
        self.neighbours <= MAX_INNER_RUN
    }

    /// Distributes `count` elements of type `c` over blocks, and returns their number. A block starts `at` an offset in
    /// memory, and at `first` in the order of the view.
    pub fn begin(&self, code: &mut Code, count: usize, c: &str) -> usize {
        let SmemTranspose { outer, neighbours, lines } = *self;
        let matrices = count / (neighbours * lines);
        let (thread, block) = (code.thread(), code.block());
        if self.has_few() {
            let parts = lines.div_ceil(THREADS);
            code.shared(format!("{c} held[{}]", neighbours * THREADS));
            code.line(format!("const U o = {block} / {parts}, i = {block} % {parts} * {THREADS};"));
            code.line(format!("const U own = ({lines} - i < {THREADS} ? {lines} - i : {THREADS}) * {neighbours};"));
            code.line(format!("const I at = {} + (I)i * {neighbours};", decode(outer, "o")));
            code.line(format!("const bool here = i + {thread} < {lines};"));
            code.line(format!("const U first = o * {} + i + {thread};", neighbours * lines));
            return matrices * parts;
        }
        let (across, squares) = (neighbours.div_ceil(SIDE), neighbours.div_ceil(SIDE) * lines.div_ceil(SIDE));
        // Padding by one avoids bank conflicts.
        code.shared(format!("{c} square[{SIDE}][{SIDE} + 1]"));
        code.line(format!("const U o = {block} / {squares}, left = {block} % {squares} % {across} * {SIDE};"));
        code.line(format!("const U top = {block} % {squares} / {across} * {SIDE};"));
        code.line(format!("const U x = {thread} % {SIDE}, y = {thread} / {SIDE};"));
        code.line(format!("const I at = {};", decode(outer, "o")));
        code.line(format!("const U first = o * {};", neighbours * lines));
        matrices * squares
    }

    /// Emits a statement for each element of a block in memory order, given its shared-memory slot and its offset.
    pub fn in_memory(&self, code: &mut Code, make: impl Fn(&str, &str) -> String) {
        if self.has_few() {
            let each = format!("for (U k = {}; k < own; k += {THREADS})", code.thread());
            return code.line(format!("{each} {}", make("held[k]", "at + k")));
        }
        let place = format!("at + (I)(i * {} + k)", self.neighbours);
        self.squares(code, ["top + y + t", "left + x"], &make("square[y + t][x]", &place));
    }

    /// The same in the order of the view.
    pub fn in_view(&self, code: &mut Code, make: impl Fn(&str, &str) -> String) {
        let SmemTranspose { neighbours, lines, .. } = *self;
        if self.has_few() {
            let held = format!("held[{} * {neighbours} + j]", code.thread());
            let place = format!("first + j * {lines}");
            return code.lanes(neighbours, format!("if (here) {}", make(&held, &place)));
        }
        let place = format!("first + k * {lines} + i");
        self.squares(code, ["top + x", "left + y + t"], &make("square[x][y + t]", &place));
    }

    /// Emits a statement for each element of a tile: element k of line i.
    fn squares(&self, code: &mut Code, [line, column]: [&str; 2], made: &str) {
        code.line(format!("#pragma unroll\n    for (int t = 0; t < {SIDE}; t += {}) {{", THREADS / SIDE));
        code.line(format!("const U i = {line}, k = {column};"));
        code.line(format!("if (i < {} && k < {}) {made}", self.lines, self.neighbours));
        code.line("}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::data::copy::{Elements, gathered, scattered};
    use crate::codegen::renderer::Renderer;
    use crate::host::HostCpp;
    use bilevel_graph::DType;
    use bilevel_plan::StorageType;
    use bilevel_plan::{Place, Region};

    const FLOAT: StorageType = StorageType::F32;

    /// Returns the number of blocks for a copy in each direction through shared memory of this name.
    fn blocks(name: &str, shape: &[usize], order: &[usize]) -> [Option<u32>; 2] {
        let place = Place { region: Region::Arena, offset: 0 };
        let view = View::contiguous(shape).transpose(order);
        let moved = Elements { place, view: &view };
        let launches =
            [gathered(&HostCpp, moved, DType::F32, place, None), scattered(&HostCpp, (place, FLOAT), moved, FLOAT)];
        launches.map(|launch| HostCpp.kernel(&launch.kernel, "kernel").contains(name).then_some(launch.grid[0]))
    }

    #[test]
    fn the_places_of_a_kernel_go_through_shared_memory_with_many_channels() {
        assert_eq!(blocks("held", &[8, 40, 3, 3], &[0, 2, 3, 1]), [Some(8); 2]);
        assert_eq!(blocks("held", &[8, 600, 3], &[0, 2, 1]), [Some(24); 2], "three parts of 256 channels at most");
        assert_eq!(blocks("held", &[8, 31, 3, 3], &[0, 2, 3, 1]), [None; 2], "too few channels to be worth it");
        assert_eq!(blocks("held", &[8, 40, 17], &[0, 2, 1]), [None; 2], "too many places");
    }

    #[test]
    fn images_go_through_squares() {
        assert_eq!(blocks("square", &[8, 5, 7, 40], &[0, 3, 1, 2]), [Some(8 * 2 * 2); 2], "40 channels of 35 pixels");
        assert_eq!(blocks("square", &[8, 40, 5, 7], &[0, 2, 3, 1]), [Some(8 * 2 * 2); 2]);
        assert_eq!(blocks("square", &[8, 40, 3, 3], &[0, 2, 3, 1]), [None; 2], "few pixels");
        assert_eq!(blocks("square", &[40, 8, 35], &[1, 0, 2]), [None; 2], "neighbours stay neighbours");
    }
}
