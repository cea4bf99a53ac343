//! Euclidean norms of leaves, summed in 64-bit floats on the device of the leaves.

use crate::Result;
use crate::compiled::leaves::Leaves;
use bilevel_graph::{DType, Executor, Graph, Meta, Program, ProgramBuilder, Runnable, Tensor};
use std::sync::Arc;

/// Adds Σx² over tensors and the largest |x|, both 64-bit, as outputs `name.square` and `name.largest`; nothing if
/// there is no number at all.
fn outputs<'g>(builder: ProgramBuilder<'g>, name: &str, tensors: &[Tensor]) -> ProgramBuilder<'g> {
    let Some([square, largest]) = sums(tensors) else { return builder };
    builder.output(format!("{name}.square"), square).output(format!("{name}.largest"), largest)
}

/// Σx² over tensors and the largest |x|, both 64-bit; `None` if there is no number at all.
pub(crate) fn sums(tensors: &[Tensor]) -> Option<[Tensor; 2]> {
    // The label of several chains has no numbers, and so no largest.
    let tensors: Vec<Tensor> = tensors.iter().filter(|t| !t.is_empty()).copied().collect();
    let all_axes = |t: &Tensor| (0..t.rank()).collect::<Vec<_>>();
    let largest = tensors.iter().map(|t| t.abs().max(all_axes(t)).convert(DType::F64)).reduce(|a, b| a.maximum(b));
    Some([square_norm(&tensors)?, largest?])
}

/// Σx² over tensors, in 64-bit floats; `None` if there are none.
pub(crate) fn square_norm(tensors: &[Tensor]) -> Option<Tensor> {
    tensors.iter().map(|t| t.convert(DType::F64).square().sum_all()).reduce(|a, b| a + b)
}

/// √Σx² of numbers on the host.
pub(crate) fn euclidean(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Returns true if any of these leaves has a number, and so a norm to compute.
pub(crate) fn has_numbers(leaves: &Leaves) -> bool {
    leaves.iter().any(|leaf| !leaf.is_empty())
}

/// The norm of these leaves, whose Σx² and largest |x| are already known. If squares over- or underflow, it is
/// recomputed from the leaves themselves.
pub(crate) fn norm(square: f64, largest: f64, leaves: &Leaves) -> Result<f64> {
    // A maximum may pass over a NaN; a sum does not.
    if square.is_nan() || !largest.is_finite() || largest == 0.0 {
        return Ok(if square.is_nan() { f64::NAN } else { largest });
    }
    if square.is_finite() && square > f64::MIN_POSITIVE / f64::EPSILON {
        return Ok(square.sqrt());
    }
    // The power of two below the largest: to scale by it rounds nothing.
    let scale = f64::from_bits(largest.to_bits() & f64::INFINITY.to_bits()).max(f64::MIN_POSITIVE);
    Ok(scale * leaves.numbers()?.iter().map(|v| (v / scale).powi(2)).sum::<f64>().sqrt())
}

/// A program that computes the norms of groups of leaves in one call.
pub(crate) struct Norms {
    run: Box<dyn Runnable>,
    /// The types and shapes that it was compiled for.
    metas: Vec<Vec<Meta>>,
}

impl Norms {
    /// Compiles the norms of groups of leaves like these.
    pub fn new(groups: &[&Leaves], executor: &dyn Executor) -> Result<Self> {
        let metas: Vec<Vec<Meta>> = groups.iter().map(|g| g.iter().map(|leaf| leaf.meta().clone()).collect()).collect();
        let graph = Graph::new();
        let mut builder = Program::builder(&graph);
        for (number, metas) in metas.iter().enumerate() {
            let input = |(i, m): (usize, &Meta)| graph.input(format!("{number}.{i}"), &m.shape, m.dtype);
            let tensors: Vec<Tensor> = metas.iter().enumerate().map(input).collect();
            builder = tensors.iter().fold(builder, |builder, tensor| builder.keep_input(*tensor));
            builder = outputs(builder, &number.to_string(), &tensors);
        }
        Ok(Norms { run: executor.compile(&builder.build()?)?, metas })
    }

    /// Returns true if it was compiled for groups of these types and shapes.
    pub fn fits(&self, groups: &[&Leaves]) -> bool {
        let same = |(leaves, metas): (&&Leaves, &Vec<Meta>)| leaves.iter().map(|leaf| leaf.meta()).eq(metas);
        groups.len() == self.metas.len() && groups.iter().zip(&self.metas).all(same)
    }

    /// The norm of each group; 0 of one without numbers.
    pub fn of(&mut self, groups: &[&Leaves]) -> Result<Vec<f64>> {
        for (number, leaves) in groups.iter().enumerate() {
            for (i, leaf) in leaves.iter().enumerate() {
                let input = self.run.program().input(&format!("{number}.{i}"))?;
                self.run.bind_input(input, leaf)?;
            }
        }
        self.run.run(0..1)?;
        // The code that computed them may use their memory again.
        (0..self.run.program().inputs.len()).for_each(|input| self.run.unbind_input(input));
        let number = |name: String| -> Result<f64> {
            let output = self.run.program().output(&name)?;
            Ok(self.run.output(output)?.item().unwrap_or(f64::NAN))
        };
        let norm = |(group, leaves): (usize, &&Leaves)| match has_numbers(leaves) {
            false => Ok(0.0),
            true => norm(number(format!("{group}.square"))?, number(format!("{group}.largest"))?, leaves),
        };
        groups.iter().enumerate().map(norm).collect()
    }
}

/// The Euclidean norm of leaves, compiled at first use and summed in 64-bit floats on their device. It is infinite or
/// NaN if one of their numbers is, and finite otherwise.
///
/// ```
/// use bilevel::parts::LazyNorm;
/// use bilevel::programs::Leaves;
/// use bilevel::{Array, Cpu};
/// let cpu = Cpu::with_threads(1);
/// let mut norm = LazyNorm::new(&cpu);
/// let leaves = Leaves::upload(&cpu, &[Array::from_f64([2], vec![3.0, 4.0])?])?;
/// assert_eq!(norm.of(&leaves)?, 5.0);
/// leaves.write(&[Array::from_f64([2], vec![3.0, f64::NAN])?])?;
/// assert!(!norm.of(&leaves)?.is_finite());
/// # Ok::<(), bilevel::Error>(())
/// ```
pub struct LazyNorm {
    executor: Arc<dyn Executor>,
    norms: Option<Norms>,
    /// The buffers, with their versions, of which the norm was found last.
    known: Option<(Vec<(u64, u64)>, f64)>,
}

impl LazyNorm {
    /// A norm on this executor.
    pub fn new(executor: &dyn Executor) -> Self {
        LazyNorm { executor: executor.share(), norms: None, known: None }
    }

    /// The norm of these leaves, cached until they are written to.
    pub fn of(&mut self, leaves: &Leaves) -> Result<f64> {
        let now: Vec<(u64, u64)> = leaves.iter().map(|leaf| (leaf.id(), leaf.version())).collect();
        if let Some((_, norm)) = self.known.as_ref().filter(|(then, _)| *then == now) {
            return Ok(*norm);
        }
        if self.norms.as_ref().is_none_or(|norms| !norms.fits(&[leaves])) {
            self.norms = Some(Norms::new(&[leaves], &*self.executor)?);
        }
        let Some(norms) = &mut self.norms else { return Ok(f64::NAN) };
        let norm = norms.of(&[leaves])?.first().copied().unwrap_or(f64::NAN);
        self.known = Some((now, norm));
        Ok(norm)
    }
}
