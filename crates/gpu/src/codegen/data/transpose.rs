//! Transposes of f32 matrices: to[column][line] = from[line][column].
//!
//! A block reads a tile of 64 × 64 by lines and writes it by columns, both in 16-byte vectors, through shared memory.
//! The text is the same for all sizes.

use crate::codegen::kernel::{Code, Launch};
use crate::codegen::limits::VECTOR;
use crate::codegen::renderer::Dialect;
use bilevel_graph::DType;
use bilevel_plan::Place;

/// The side of a tile.
const SIDE: usize = 64;
/// Threads per line of a tile.
const ACROSS: usize = SIDE / VECTOR;
/// Threads per block, lines per pass, and passes per tile.
const THREADS: usize = 256;
const LINES: usize = THREADS / ACROSS;
const TIMES: usize = SIDE / LINES;

/// Lines of this length with this stride.
#[derive(Clone, Copy)]
pub struct TransposeShape {
    /// Number of lines.
    pub count: usize,
    /// Elements of a line.
    pub length: usize,
    /// Elements from one line to the next.
    pub stride: usize,
}

impl TransposeShape {
    /// Returns the shape of the transpose, with every line aligned to 16 bytes.
    pub fn turned(self) -> TransposeShape {
        TransposeShape { count: self.length, length: self.count, stride: self.count.next_multiple_of(VECTOR) }
    }

    /// Returns the extent in elements.
    pub fn reach(self) -> usize {
        self.count * self.stride
    }
}

/// Writes the transpose in the layout of [`TransposeShape::turned`]; the padding between lines becomes 0. Every line
/// must be aligned to 16 bytes.
pub fn transposed(dialect: Dialect, lines: TransposeShape, (place, first): (Place, isize), to: Place) -> Launch {
    let turned = lines.turned();
    let mut code = Code::new(dialect);
    // An index may be that of the last element of a partial tile.
    code.reaches((lines.count + SIDE) * lines.stride + SIDE);
    code.reaches((turned.count + SIDE) * turned.stride + SIDE);
    let squares = [lines.length.div_ceil(SIDE), lines.count.div_ceil(SIDE)];
    let (from, to) = (code.input(place, DType::F32, first), code.output(to, DType::F32, 0));
    let [count, length, stride, to_stride, across] =
        [lines.count, lines.length, lines.stride, turned.stride, squares[0]].map(|number| code.count(number as u64));
    // Padding by one avoids bank conflicts.
    code.shared(format!("float square[{SIDE}][{SIDE} + 1]"));
    let (thread, block) = (code.thread(), code.block());
    code.line(format!("const U left = {block} % {across} * {SIDE}, top = {block} / {across} * {SIDE};"));
    code.line(format!("const U first = {thread} % {ACROSS} * {VECTOR}, own = {thread} / {ACROSS};"));
    // All loads are in flight before the first is needed.
    code.line(format!("float v[{TIMES}][{VECTOR}];"));
    let times = |code: &mut Code| code.line(format!("#pragma unroll\n    for (int t = 0; t < {TIMES}; ++t) {{"));
    times(&mut code);
    code.line(format!("const U line = top + own + t * {LINES}, column = left + first;"));
    code.line(format!("const float* at = {from} + (line * {stride} + column);"));
    code.line(format!("const bool whole = line < {count} && column + {VECTOR} <= {length};"));
    code.line(format!("if (whole) load<float, {VECTOR}>(at, v[t]);"));
    code.line("else");
    code.lanes(VECTOR, format!("v[t][j] = line < {count} && column + j < {length} ? at[j] : 0.0f;"));
    code.line("}");
    times(&mut code);
    code.lanes(VECTOR, format!("square[own + t * {LINES}][first + j] = v[t][j];"));
    code.line("}");
    code.barrier();
    times(&mut code);
    code.line(format!("const U column = left + own + t * {LINES}, line = top + first;"));
    code.line(format!("if (column < {length} && line < {to_stride}) {{"));
    code.lanes(VECTOR, format!("v[t][j] = square[first + j][own + t * {LINES}];"));
    code.line(format!("store<float, {VECTOR}>({to} + (column * {to_stride} + line), v[t]);"));
    code.line("}");
    code.line("}");
    code.launch([squares[0] * squares[1], 1], THREADS as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::kernel::IndexWidth;
    use crate::host::HostCpp;
    use bilevel_plan::Region;

    fn example(count: usize, length: usize) -> Launch {
        let here = Place { region: Region::Arena, offset: 0 };
        transposed(&HostCpp, TransposeShape { count, length, stride: length.next_multiple_of(VECTOR) }, (here, 0), here)
    }

    #[test]
    fn every_number_has_a_square_and_sizes_are_no_part_of_the_text() {
        for (count, length, squares) in [(64, 64, 1), (65, 64, 2), (64, 65, 2), (1576, 768, 25 * 12), (1, 1, 1)] {
            let launch = example(count, length);
            assert_eq!((launch.grid, launch.kernel.block), ([squares, 1], 256), "{count} lines of {length}");
            assert_eq!(launch.kernel, example(64, 64).kernel);
        }
    }

    #[test]
    fn lines_of_the_transpose_begin_at_multiples_of_16_bytes() {
        let turned = TransposeShape { count: 270, length: 260, stride: 264 }.turned();
        assert_eq!((turned.count, turned.length, turned.stride, turned.reach()), (260, 270, 272, 260 * 272));
    }

    #[test]
    fn an_index_has_64_bits_where_a_square_that_is_cut_off_reaches_beyond_32() {
        let long = |count| example(count, 1 << 16).kernel.index == IndexWidth::Bits64;
        assert!(!long(32_000) && long(32_767));
    }
}
