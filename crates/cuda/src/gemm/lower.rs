//! Lowers matrix products to cuBLASLt's form: column-major, with one batch stride. Other operands are copied first.

use crate::codegen::cuda_cpp::CudaCpp;
use crate::codegen::gemm::batched_mma::batched_mma;
use crate::compile::step::{Call, Gemm, GemmMath, Matrix, Work};
use bilevel_gpu::codegen::naive_gemm::{AffineStore, Start, product};
use bilevel_gpu::codegen::{
    Arg, Elements, Launch, RoundedStorage, TransposeShape, VECTOR, gathered, scattered, transposed,
};
use bilevel_gpu::compile::workspace::Workspace;
use bilevel_graph::DType;
use bilevel_plan::{DotLayout, StorageType, View};

/// Smaller products are faster by a generated kernel than by launching the library's.
pub(crate) const MIN_LIBRARY_MULTIPLICATIONS: usize = 1 << 15;
/// Workspace of the library in bytes: the recommended size for recent GPUs, and a smaller one for products that do not
/// fill a GPU.
const WORKSPACE_BYTES: usize = 32 << 20;
const SMALL_WORKSPACE_BYTES: usize = 4 << 20;
const LARGE_GEMM_MULTIPLICATIONS: usize = 1 << 26;
/// The minimum m, n and k for which a tf32 product gains more from operands copied to fp16, or transposed to be
/// contiguous along k, than the copy costs. Measured from 768 on.
pub(crate) const MIN_COPIED_SIDE: usize = 256;

/// Returns the steps of a product. A bf16 result has bf16 operands, or operands that are rounded to bf16 here.
pub(crate) fn dot(
    layout: &DotLayout,
    dtype: DType,
    math: GemmMath,
    (a, b, c): (Start, Start, Start),
    workspace: &mut Workspace,
) -> Vec<Work> {
    let size = layout.size(math.precision);
    let (batch, work) = (size.batch, size.multiplications());
    if layout.m * layout.n * batch == 0 {
        return vec![];
    }
    if let Some(launch) = batched_mma(layout, math.precision, a, b, c) {
        return vec![Work::Kernel(launch)];
    }
    let own = dtype == DType::I32 || work < MIN_LIBRARY_MULTIPLICATIONS;
    let swapped = column_major(layout.m, layout.n, layout.c).is_none_or(|(transposed, _)| transposed);
    let result = if swapped { (layout.n, layout.m, (layout.c.1, layout.c.0)) } else { (layout.m, layout.n, layout.c) };
    let result = column_major(result.0, result.1, result.2).filter(|(transposed, _)| !transposed);
    let Some((_, leading)) = result.filter(|_| !own) else {
        return vec![Work::Kernel(product(&CudaCpp, layout, (dtype, math.precision), a, b, c, None))];
    };
    let Some(c_batch_stride) = batch_stride(&layout.batch, 2) else {
        return scattered_dot(layout, dtype, math, (a, b, c), workspace);
    };
    let mut works = vec![];
    let left = library_operand(layout, math, a, 0, (&mut works, workspace));
    let right = library_operand(layout, math, b, 1, (&mut works, workspace));
    let result = Matrix { at: address(c), transposed: false, leading, batch_stride: c_batch_stride };
    let space = workspace.take(workspace_bytes(work));
    let turned = |matrix: Matrix| Matrix { transposed: !matrix.transposed, ..matrix };
    let (m, n, left, right) =
        if swapped { (layout.n, layout.m, turned(right), turned(left)) } else { (layout.m, layout.n, left, right) };
    let mut product = Gemm {
        m,
        n,
        k: layout.k,
        batch,
        math,
        result: c.2,
        a: left,
        b: right,
        c: result,
        affine: AffineStore::NONE,
        workspace: space,
    };
    works.extend(along_the_sum(&mut product, workspace).map(Work::Kernel));
    works.push(Work::Library(Call::Gemm(product)));
    works
}

/// Returns the steps of a product whose result has no single batch stride: it is computed densely and then scattered.
fn scattered_dot(
    layout: &DotLayout,
    dtype: DType,
    math: GemmMath,
    (a, b, c): (Start, Start, Start),
    workspace: &mut Workspace,
) -> Vec<Work> {
    let batch = layout.size(math.precision).batch;
    let place = workspace.take(layout.m * layout.n * batch * c.2.size());
    let mut dense = DotLayout { c: (layout.n as isize, 1), ..layout.clone() };
    let mut stride = (layout.m * layout.n) as isize;
    for (length, strides) in dense.batch.iter_mut().rev() {
        strides[2] = stride;
        stride *= *length as isize;
    }
    let mut works = dot(&dense, dtype, math, (a, b, (place, 0, c.2)), workspace);
    let axes = layout.batch.iter().map(|(length, strides)| (*length, strides[2]));
    let axes = axes.chain([(layout.m, layout.c.0), (layout.n, layout.c.1)]);
    let (shape, strides) = axes.unzip();
    let view = View { shape, strides, offset: c.1 };
    works.push(Work::Kernel(scattered(&CudaCpp, (place, c.2), Elements { place: c.0, view: &view }, c.2)));
    works
}

/// Returns an operand as the library reads it: where it is, or a copy that a step added to `works` makes.
fn library_operand(
    layout: &DotLayout,
    math: GemmMath,
    start: Start,
    side: usize,
    (works, workspace): (&mut Vec<Work>, &mut Workspace),
) -> Matrix {
    let (rows, columns, strides) =
        if side == 0 { (layout.m, layout.k, layout.a) } else { (layout.k, layout.n, layout.b) };
    let fits = math != GemmMath::BF16 || start.2 == StorageType::Bf16;
    let direct = column_major(rows, columns, strides).zip(batch_stride(&layout.batch, side)).filter(|_| fits);
    if let Some(((transposed, leading), batch_stride)) = direct {
        return Matrix { at: address(start), transposed, leading, batch_stride };
    }
    // Copied in memory order: by rows if their elements are contiguous, otherwise by columns.
    let by_rows = strides.1.unsigned_abs() <= strides.0.unsigned_abs();
    let inner =
        if by_rows { [(rows, strides.0), (columns, strides.1)] } else { [(columns, strides.1), (rows, strides.0)] };
    let axes = layout.batch.iter().map(|(length, strides)| (*length, strides[side])).chain(inner);
    let (shape, strides): (Vec<usize>, Vec<isize>) = axes.unzip();
    // A matrix shared by the batch is copied once.
    let shared = !layout.batch.is_empty() && layout.batch.iter().all(|(_, strides)| strides[side] == 0);
    let skip = if shared { layout.batch.len() } else { 0 };
    let view = View { shape: shape[skip..].to_vec(), strides: strides[skip..].to_vec(), offset: start.1 };
    let size = if fits { start.2.size() } else { StorageType::Bf16.size() };
    let place = workspace.take(view.count() * size);
    let written = (!fits).then_some(RoundedStorage::Bf16);
    works.push(Work::Kernel(gathered(&CudaCpp, Elements { place: start.0, view: &view }, start.2, place, written)));
    Matrix {
        at: Arg::Memory(place, 0),
        transposed: by_rows,
        leading: if by_rows { columns } else { rows },
        batch_stride: if shared { 0 } else { rows * columns },
    }
}

/// Returns the steps of a product that is stored after an affine map, by the library or, if it is small, by the generic
/// kernel; `None` if neither can, as for a bias along the columns that the library sees.
pub(crate) fn affine_dot(
    layout: &DotLayout,
    dtype: DType,
    math: GemmMath,
    starts: (Start, Start, Start),
    affine: AffineStore,
    workspace: &mut Workspace,
) -> Option<Vec<Work>> {
    if layout.size(math.precision).multiplications() < MIN_LIBRARY_MULTIPLICATIONS {
        let (a, b, c) = starts;
        let launch = product(&CudaCpp, layout, (dtype, math.precision), a, b, c, Some(&affine));
        return Some(vec![Work::Kernel(launch)]);
    }
    let mut works = dot(layout, dtype, math, starts, workspace);
    let Some(Work::Library(Call::Gemm(gemm))) = works.last_mut() else { return None };
    // The library adds a bias to rows, which are columns here, and needs matrices of more than one row and column.
    let has_rows = gemm.m == layout.n && gemm.n > 1 && gemm.m > 1 && gemm.k > 1;
    let possible = gemm.result != StorageType::Bf16 && (affine.bias.is_none() || has_rows);
    possible.then(|| gemm.affine = affine)?;
    Some(works)
}

/// Copies the smaller operand of a tf32 product if neither is contiguous along k. Hopper's tensor instructions read
/// 32-bit operands only along k; otherwise the library uses older ones and takes up to 1.5 times as long. If both have
/// the same size, A is copied, which is faster.
fn along_the_sum(product: &mut Gemm, workspace: &mut Workspace) -> Option<Launch> {
    let Gemm { m, n, k, batch, math, a, b, .. } = *product;
    let across = !a.transposed && b.transposed;
    let by_16_bytes = |matrix: Matrix| matrix.leading.is_multiple_of(VECTOR) && matrix.alignment() >= 16;
    let worth_it =
        math == GemmMath::TF32 && batch == 1 && [m, n, k].into_iter().all(|length| length >= MIN_COPIED_SIDE);
    if !(worth_it && across && by_16_bytes(a) && by_16_bytes(b)) {
        return None;
    }
    let (length, smaller) = if m <= n { (m, &mut product.a) } else { (n, &mut product.b) };
    let Arg::Memory(place, bytes) = smaller.at else { return None };
    let lines = TransposeShape { count: k, length, stride: smaller.leading };
    let turned = lines.turned();
    let to = workspace.take(turned.reach() * size_of::<f32>());
    *smaller = Matrix {
        at: Arg::Memory(to, 0),
        transposed: !smaller.transposed,
        leading: turned.stride,
        batch_stride: smaller.batch_stride,
    };
    Some(transposed(&CudaCpp, lines, (place, bytes / size_of::<f32>() as isize), to))
}

/// Returns the bytes of workspace for this many multiplications.
pub(crate) fn workspace_bytes(work: usize) -> usize {
    if work >= LARGE_GEMM_MULTIPLICATIONS { WORKSPACE_BYTES } else { SMALL_WORKSPACE_BYTES }
}

fn address((place, elements, storage): Start) -> Arg {
    Arg::Memory(place, elements * storage.size() as isize)
}

/// Returns whether a matrix with these strides is a transposed column-major matrix, and its leading dimension.
fn column_major(rows: usize, columns: usize, (down, along): (isize, isize)) -> Option<(bool, usize)> {
    let far = |stride: isize, length: usize| usize::try_from(stride).ok().filter(|&stride| stride >= length);
    if rows == 1 || down == 1 {
        if columns == 1 {
            return Some((false, rows));
        }
        if let Some(leading) = far(along, rows) {
            return Some((false, leading));
        }
    }
    if columns == 1 || along == 1 {
        if rows == 1 {
            return Some((true, columns));
        }
        if let Some(leading) = far(down, columns) {
            return Some((true, leading));
        }
    }
    None
}

/// Returns the single batch stride of one side, if there is one.
fn batch_stride(batch: &[(usize, [isize; 3])], side: usize) -> Option<usize> {
    let axes = batch.iter().filter(|(length, _)| *length != 1).map(|(length, strides)| (*length, strides[side]));
    let (shape, strides): (Vec<usize>, Vec<isize>) = axes.unzip();
    match (View { shape, strides, offset: 0 }).runs()[..] {
        [] => Some(0),
        [run] => usize::try_from(run.stride).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_plan::{Place, Region};

    const HERE: Start = (Place { region: Region::Arena, offset: 0 }, 0, StorageType::F32);

    fn products(layout: &DotLayout, math: GemmMath) -> Vec<Work> {
        dot(layout, DType::F32, math, (HERE, HERE, HERE), &mut Workspace::new(None))
    }

    #[test]
    fn rows_by_rows_is_a_product_of_the_transposes_in_the_other_order() {
        let layout = DotLayout { m: 64, n: 48, k: 32, a: (32, 1), b: (48, 1), c: (48, 1), batch: vec![] };
        let works = products(&layout, GemmMath::F32);
        let [Work::Library(Call::Gemm(p))] = &works[..] else { panic!("{works:?}") };
        assert_eq!((p.m, p.n, p.k, p.batch), (48, 64, 32, 1));
        assert_eq!((p.a.transposed, p.a.leading, p.b.transposed, p.b.leading, p.c.leading), (false, 48, false, 32, 48));
    }

    #[test]
    fn heads_inside_rows_are_copied_first() {
        // Queries and keys of 2 images, 3 heads of 16, in rows of 144.
        let batch = vec![(2, [48 * 144, 48 * 144, 3 * 48 * 48]), (3, [16, 16, 48 * 48])];
        let layout = DotLayout { m: 48, n: 48, k: 16, a: (144, 1), b: (1, 144), c: (48, 1), batch };
        let works = products(&layout, GemmMath::F32);
        let [Work::Kernel(_), Work::Kernel(_), Work::Library(Call::Gemm(p))] = &works[..] else { panic!("{works:?}") };
        assert_eq!((p.batch, p.a.batch_stride, p.c.batch_stride), (6, 48 * 16, 48 * 48));
    }

    #[test]
    fn of_two_operands_across_the_sum_the_smaller_is_copied_along_it_in_tf32() {
        // C = Xᵀ·Y with contiguous rows of X and Y: column-major, A is Yᵀ and B is X.
        let layout = |m: usize, n: usize, k: usize| DotLayout {
            a: (1, m as isize),
            b: (n as isize, 1),
            c: (n as isize, 1),
            ..DotLayout { m, n, k, a: (0, 0), b: (0, 0), c: (0, 0), batch: vec![] }
        };
        for (m, n, of_a) in [(768, 3072, false), (3072, 768, true), (768, 768, true)] {
            let works = products(&layout(m, n, 1574), GemmMath::TF32);
            let [Work::Kernel(copy), Work::Library(Call::Gemm(p))] = &works[..] else { panic!("{works:?}") };
            assert_eq!((p.m, p.n, p.k, copy.grid), (n, m, 1574, [25 * 12, 1]));
            let (copied, other) = if of_a { (p.a, p.b) } else { (p.b, p.a) };
            // Either both A and B are transposed, with B contiguous across k, or neither is.
            assert_eq!((p.a.transposed, p.b.transposed), (of_a, of_a));
            assert_eq!((copied.leading, other.leading), (1576, m.max(n)));
            assert!(copied.at != other.at && copied.alignment() >= 16);
        }
        let as_it_is = |layout: &DotLayout, math| matches!(products(layout, math)[..], [Work::Library(Call::Gemm(_))]);
        let large = layout(768, 768, 1576);
        for math in [GemmMath::F32, GemmMath::TF32] {
            assert_eq!(as_it_is(&large, math), math == GemmMath::F32);
            for short in [layout(768, 768, 252), layout(252, 768, 1576), layout(768, 252, 1576)] {
                assert!(as_it_is(&short, math));
            }
            // One contiguous along k; rows not aligned to 16 bytes.
            assert!(as_it_is(&DotLayout { a: (1576, 1), ..large.clone() }, math));
            assert!(as_it_is(&DotLayout { b: (1, 1576), ..large.clone() }, math));
            assert!(as_it_is(&layout(767, 768, 1576), math));
        }
    }

    #[test]
    fn small_products_and_those_of_integers_are_our_own() {
        let layout = DotLayout { m: 4, n: 4, k: 4, a: (4, 1), b: (4, 1), c: (4, 1), batch: vec![] };
        assert!(matches!(products(&layout, GemmMath::F32)[..], [Work::Kernel(_)]));
    }
}
