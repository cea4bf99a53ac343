//! GEMM keys: a matrix product without its addresses, the problem for which an algorithm is selected.

use crate::compile::step::{Gemm, GemmMath, Matrix};
use crate::gemm::lower::workspace_bytes;
use bilevel_plan::StorageType;

/// A GEMM problem. A network has hundreds of products, but few distinct problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmKey {
    /// Rows of C, columns of C, and the length of the contracted axis.
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Number of products.
    pub batch: usize,
    /// How A and B are stored and multiplied.
    pub math: GemmMath,
    /// How C is stored.
    pub result: StorageType,
    /// Whether a bias is added to C.
    pub bias: bool,
    /// The layouts of A, B and C; what is added to C is aligned as C is.
    pub matrices: [MatrixLayout; 3],
}

/// The layout of a column-major matrix, or of a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatrixLayout {
    /// Whether it is transposed.
    pub transposed: bool,
    /// Elements from one column to the next.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
    /// The alignment of its address in bytes.
    pub alignment: u32,
}

/// The serialised size of a [`GemmKey`], in words and in bytes.
const WORDS: usize = 19;
pub(crate) const BYTES: usize = 8 * WORDS;

/// By number in a serialised key.
const MATHS: [GemmMath; 5] = [GemmMath::F32, GemmMath::TF32, GemmMath::BF16, GemmMath::F64, GemmMath::F16];

/// The storage type of a result, of which a serialised key has one bit.
fn stored_result(math: GemmMath, is_bf16: bool) -> StorageType {
    match math {
        _ if is_bf16 => StorageType::Bf16,
        GemmMath::F64 => StorageType::F64,
        _ => StorageType::F32,
    }
}

impl GemmKey {
    pub fn new(product: &Gemm) -> Self {
        let Gemm { m, n, k, batch, math, result, a, b, c, affine, .. } = *product;
        let matrix_layout = |matrix: Matrix| MatrixLayout {
            transposed: matrix.transposed,
            leading: matrix.leading,
            batch_stride: matrix.batch_stride,
            alignment: matrix.alignment(),
        };
        let mut matrices = [a, b, c].map(matrix_layout);
        matrices[2].alignment = product.result_alignment();
        GemmKey { m, n, k, batch, math, result, bias: affine.bias.is_some(), matrices }
    }

    /// Returns the number of multiplications.
    pub fn work(&self) -> usize {
        self.m.saturating_mul(self.n).saturating_mul(self.k).saturating_mul(self.batch)
    }

    /// Returns the bytes of workspace.
    pub fn workspace_bytes(&self) -> usize {
        workspace_bytes(self.work())
    }

    /// Returns the rows and columns of A, B and C as stored.
    pub fn stored(&self) -> [(usize, usize); 3] {
        let [a, b, c] = self.matrices;
        let turned = |matrix_layout: MatrixLayout, rows, columns| {
            if matrix_layout.transposed { (columns, rows) } else { (rows, columns) }
        };
        [turned(a, self.m, self.k), turned(b, self.k, self.n), turned(c, self.m, self.n)]
    }

    /// Returns the bytes from the first to the last element of A, B and C.
    pub fn extents(&self) -> [usize; 3] {
        let [operand, result] = [self.math.operands, self.result].map(StorageType::size);
        let (stored, sizes) = (self.stored(), [operand, operand, result]);
        std::array::from_fn(|i| {
            let (MatrixLayout { leading, batch_stride, .. }, (rows, columns)) = (self.matrices[i], stored[i]);
            ((self.batch - 1) * batch_stride + (columns - 1) * leading + rows) * sizes[i]
        })
    }

    /// Returns the key as numbers.
    pub fn words(&self) -> [u64; WORDS] {
        let math = MATHS.iter().position(|math| *math == self.math).unwrap_or(0);
        let [is_bf16, bias] = [self.result == StorageType::Bf16, self.bias].map(usize::from);
        let sizes = [self.m, self.n, self.k, self.batch, math, is_bf16, bias];
        let layouts = self.matrices.iter().flat_map(|layout| {
            [usize::from(layout.transposed), layout.leading, layout.batch_stride, layout.alignment as usize]
        });
        let mut words = [0; WORDS];
        words.iter_mut().zip(sizes.into_iter().chain(layouts)).for_each(|(word, number)| *word = number as u64);
        words
    }

    /// Serialises the key.
    pub fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes
            .chunks_exact_mut(8)
            .zip(self.words())
            .for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Deserialises a key; `None` if it is invalid.
    pub fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut words = [0usize; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()?;
        }
        let [m, n, k, batch, math, is_bf16, bias, layouts @ ..] = words;
        let truth = |word: usize| [false, true].get(word).copied();
        let matrix_layout = |i: usize| -> Option<MatrixLayout> {
            let [transposed, leading, batch_stride, alignment] = layouts[4 * i..4 * i + 4] else { return None };
            let alignment = u32::try_from(alignment).ok()?;
            Some(MatrixLayout { transposed: truth(transposed)?, leading, batch_stride, alignment })
        };
        let matrices = [matrix_layout(0)?, matrix_layout(1)?, matrix_layout(2)?];
        let (math, is_bf16, bias) = (*MATHS.get(math)?, truth(is_bf16)?, truth(bias)?);
        Some(GemmKey { m, n, k, batch, math, result: stored_result(math, is_bf16), bias, matrices })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A batch of products of 5 × 7 and 7 × 3 matrices, the right operand transposed.
    pub fn example(batch: usize) -> GemmKey {
        let matrix_layout =
            |transposed, leading, batch_stride| MatrixLayout { transposed, leading, batch_stride, alignment: 256 };
        let matrices = [matrix_layout(false, 6, 42), matrix_layout(true, 3, 0), matrix_layout(false, 5, 15)];
        GemmKey { m: 5, n: 3, k: 7, batch, math: GemmMath::BF16, result: StorageType::F32, bias: false, matrices }
    }

    #[test]
    fn a_serialised_key_is_read_back() {
        for (math, bit) in MATHS.into_iter().flat_map(|math| [(math, false), (math, true)]) {
            let key = GemmKey { math, result: stored_result(math, bit), bias: !bit, ..example(4) };
            assert_eq!(GemmKey::read(&key.bytes()), Some(key));
        }
        for (word, wrong) in [(4, 5), (5, 2), (6, 2), (7, 2), (10, u64::MAX)] {
            let mut bytes = example(4).bytes();
            bytes[8 * word..8 * (word + 1)].copy_from_slice(&wrong.to_le_bytes());
            assert_eq!(GemmKey::read(&bytes), None, "word {word}");
        }
    }

    #[test]
    fn an_operand_reaches_to_the_last_element_of_the_last_matrix() {
        // A has 7 columns with stride 6; B as stored has 3 rows and 7 columns, shared by the batch; C has 3 columns of
        // 5.
        assert_eq!(example(4).stored(), [(5, 7), (3, 7), (5, 3)]);
        let (a, b, c) = (3 * 42 + 6 * 6 + 5, 21, 60);
        assert_eq!(example(4).extents(), [2 * a, 2 * b, 4 * c]);
        assert_eq!(GemmKey { result: StorageType::Bf16, ..example(4) }.extents(), [2 * a, 2 * b, 2 * c]);
    }
}
