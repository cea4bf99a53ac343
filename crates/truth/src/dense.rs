//! Small dense linear algebra, written plainly: the truths must not come from the code they are to judge.

/// Rows of a matrix.
pub(super) type Matrix = Vec<Vec<f64>>;

/// The solution of A·x = b by elimination with pivots.
pub(super) fn solve(mut a: Matrix, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs())).unwrap_or(k);
        a.swap(k, pivot);
        b.swap(k, pivot);
        let (top, below) = a.split_at_mut(k + 1);
        for (row, i) in below.iter_mut().zip(k + 1..n) {
            let factor = row[k] / top[k][k];
            row.iter_mut().zip(&top[k]).skip(k).for_each(|(x, p)| *x -= factor * p);
            b[i] -= factor * b[k];
        }
    }
    let mut x = vec![0.0; n];
    for k in (0..n).rev() {
        let rest: f64 = (k + 1..n).map(|j| a[k][j] * x[j]).sum();
        x[k] = (b[k] - rest) / a[k][k];
    }
    x
}

/// A·x.
pub(super) fn times(a: &Matrix, x: &[f64]) -> Vec<f64> {
    a.iter().map(|row| dot(row, x)).collect()
}

/// Aᵀ·x.
pub(super) fn transposed_times(a: &Matrix, x: &[f64]) -> Vec<f64> {
    let columns = a.first().map_or(0, Vec::len);
    (0..columns).map(|j| a.iter().zip(x).map(|(row, x)| row[j] * x).sum()).collect()
}

/// Aᵀ·A.
pub(super) fn gram(a: &Matrix) -> Matrix {
    let columns = a.first().map_or(0, Vec::len);
    let entry = |i: usize, j: usize| a.iter().map(|row| row[i] * row[j]).sum();
    (0..columns).map(|i| (0..columns).map(|j| entry(i, j)).collect()).collect()
}

/// Numbers as rows of this length.
pub(super) fn rows(numbers: &[f64], length: usize) -> Matrix {
    numbers.chunks(length).map(<[f64]>::to_vec).collect()
}

/// √Σx².
pub(super) fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
