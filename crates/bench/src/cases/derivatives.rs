//! Programs for a loss's gradient, and gradient with Hessian-vector product.

use crate::cases::case::{Case, Start};
use crate::cases::values::values;
use crate::error::Result;
use bilevel_graph::{Array, Graph, Program, Tensor, gradient, vjp};

/// The products that a program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// Loss and gradient.
    Gradient,
    /// Loss, gradient and Hessian-vector product.
    GradientAndHessian,
}

/// The program of a case; its outputs are named loss, g0, g1, …, h0, h1, …
pub fn program(g: &Graph, case: &Case, products: Products) -> Result<Program> {
    let wrt: Vec<_> = case.parameters.iter().map(|(p, _)| *p).collect();
    program_of(g, case.loss, &wrt, products)
}

/// The same of any loss, by these of its inputs.
pub fn program_of(g: &Graph, loss: Tensor, wrt: &[Tensor], products: Products) -> Result<Program> {
    let first = gradient(loss, wrt)?;
    let mut builder = Program::builder(g).output("loss", loss);
    for (i, d) in first.iter().enumerate() {
        builder = builder.output(format!("g{i}"), d.unwrap_or_else(|| wrt[i].zeros_like()));
    }
    if products == Products::GradientAndHessian {
        let v: Vec<_> = wrt.iter().enumerate().map(|(i, p)| g.input(format!("v{i}"), p.shape(), p.dtype())).collect();
        // Hv is the derivative of Σ gᵢ·vᵢ: the pullback of v through the gradient.
        let (known, v_known): (Vec<_>, Vec<_>) = first.iter().zip(&v).filter_map(|(d, v)| Some(((*d)?, *v))).unzip();
        for (i, h) in vjp(&known, &v_known, wrt)?.iter().enumerate() {
            builder = builder.output(format!("h{i}"), h.unwrap_or_else(|| wrt[i].zeros_like()));
        }
    }
    Ok(builder.build()?)
}

/// Numbers of the vectors' draws; those of parameters lie below.
const VECTORS: u32 = 10_000;
/// Numbers of the data's draws.
const DATA: u32 = 20_000;

/// Everything a case is given, with its value from a seed: p0, v0, p1, v1, …, x0, x1, …
pub fn given(case: &Case, seed: u32) -> Result<Vec<(String, Array)>> {
    let mut all = vec![];
    for (i, (tensor, start)) in case.parameters.iter().enumerate() {
        all.push((format!("p{i}"), values(*tensor, *start, i as u32, seed)?));
        all.push((format!("v{i}"), vector(*tensor, i, seed)?));
    }
    for (i, (tensor, start)) in case.data.iter().enumerate() {
        all.push((format!("x{i}"), values(*tensor, *start, DATA + i as u32, seed)?));
    }
    Ok(all)
}

/// The vector of the Hessian product, for parameter number i.
pub fn vector(like: Tensor, i: usize, seed: u32) -> Result<Array> {
    values(like, Start::Uniform(1.0), VECTORS + i as u32, seed)
}

/// Those that are inputs of the program.
pub fn inputs(case: &Case, program: &Program, seed: u32) -> Result<Vec<(String, Array)>> {
    let mut all = given(case, seed)?;
    all.retain(|(name, _)| program.input(name).is_ok());
    Ok(all)
}
