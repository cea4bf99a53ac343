//! What the tests of the executor share: random programs and how to run and compare them.

#![allow(dead_code)]

pub mod counting;
pub mod sample;
pub mod varied;

use bilevel_graph::{Array, DType, Executor, Program, Result, Runnable, Tensor};

/// A small deterministic generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n.max(1)
    }

    /// A number in −1..1.
    pub fn uniform(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 31) as f64 * 2.0 - 1.0
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Numbers in −1..1.
    pub fn array(&mut self, shape: &[usize], dtype: DType) -> Array {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| self.uniform()).collect();
        Array::from_values(shape, &values, dtype).unwrap()
    }

    /// Whole numbers in 0..limit.
    pub fn indices(&mut self, shape: &[usize], limit: usize) -> Array {
        let values = (0..shape.iter().product()).map(|_| self.below(limit) as i32).collect();
        Array::from_i32(shape, values).unwrap()
    }
}

/// True where no axis is longer than this.
pub fn sized(x: Tensor, limit: usize) -> bool {
    x.shape().iter().all(|&n| n <= limit)
}

pub type Inputs = Vec<(String, Array)>;

/// All outputs, then what every carried input holds, after this many steps.
pub fn outputs(executor: &dyn Executor, program: &Program, inputs: &Inputs, steps: u32) -> Result<Vec<Array>> {
    let mut run = executor.compile(program)?;
    set_all(&mut *run, inputs)?;
    run.run(0..steps)?;
    results(&*run)
}

pub fn set_all(run: &mut dyn Runnable, inputs: &Inputs) -> Result<()> {
    for (name, value) in inputs {
        if let Ok(input) = run.program().input(name) {
            run.set(input, value)?;
        }
    }
    Ok(())
}

pub fn results(run: &dyn Runnable) -> Result<Vec<Array>> {
    let mut all = (0..run.program().outputs.len()).map(|i| run.output(i)).collect::<Result<Vec<_>>>()?;
    for carry in &run.program().carries {
        all.push(run.input(carry.input)?);
    }
    Ok(all)
}

/// True where both are the same number, two NaNs included.
pub fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

/// Fails where an element differs by more than `tolerance` times the largest of its array (at least 1).
#[track_caller]
pub fn assert_close(what: &str, found: &[Array], expected: &[Array], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}, result {i}");
        let (a, b) = (a.to_f64(), b.to_f64());
        let scale = b.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
        for (j, (&x, &y)) in a.iter().zip(&b).enumerate() {
            let close = same(x, y) || (x - y).abs() <= tolerance * scale;
            assert!(close, "{what}, result {i}[{j}]: {x:e} and {y:e}, scale {scale:e}");
        }
    }
}

/// Fails where an element differs at all; NaN is NaN.
#[track_caller]
pub fn assert_same(what: &str, found: &[Array], expected: &[Array]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}, result {i}");
        for (j, (x, y)) in a.to_f64().into_iter().zip(b.to_f64()).enumerate() {
            assert!(same(x, y), "{what}, result {i}[{j}]: {x:e} and {y:e}");
        }
    }
}
