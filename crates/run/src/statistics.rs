//! Mean, spread and median.

/// Mean and standard deviation; the deviation is 0 for a single number, and both are NaN for none.
///
/// ```
/// assert_eq!(bilevel_run::statistics::mean_sd(&[1.0, 3.0]), (2.0, 2f64.sqrt()));
/// ```
pub fn mean_sd(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, if values.len() == 1 { 0.0 } else { (squares / (n - 1.0)).sqrt() })
}

/// The middle number, NaN for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}
