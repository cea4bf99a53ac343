//! The products of an oracle as functions of the host, each with the ones that are its derivatives.
//!
//!   L → ∇θL → H·v, vᵀ·C        f → f_λ, f_θ
//!
//! Operands are λ, θ, then v if the product takes one, then key and step if the oracle is random.

use super::{BilevelOracle, OraclePoint, OracleResult};
use crate::compiled::key::Key;
use bilevel_graph::{HostCall, HostFunction, Meta, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// The oracle, and the last outer loss it computed.
pub(super) struct Core {
    pub oracle: Box<dyn BilevelOracle>,
    /// f, f_λ and f_θ are three functions but one call of the oracle.
    last: Mutex<Option<Outer>>,
}

/// f with its gradients at a point.
#[derive(Clone)]
struct Outer {
    lambda: Vec<f64>,
    theta: Vec<f64>,
    key: Key,
    value: f64,
    by_lambda: Vec<f64>,
    by_theta: Vec<f64>,
}

impl Core {
    pub fn new(oracle: Box<dyn BilevelOracle>) -> Self {
        Core { oracle, last: Mutex::new(None) }
    }

    /// Passes f and its gradients at this point to `read`.
    fn outer<T>(&self, at: &OraclePoint, read: impl FnOnce(&Outer) -> T) -> OracleResult<T> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |a: &[f64], b: &[f64]| a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()));
        if let Some(known) = last
            .as_ref()
            .filter(|known| known.key == at.key && same(&known.lambda, at.lambda) && same(&known.theta, at.theta))
        {
            return Ok(read(known));
        }
        let (mut by_lambda, mut by_theta) = (vec![0.0; at.lambda.len()], vec![0.0; at.theta.len()]);
        let value = self.oracle.outer(at, &mut by_lambda, &mut by_theta)?;
        let (lambda, theta, key) = (at.lambda.to_vec(), at.theta.to_vec(), at.key);
        Ok(read(last.insert(Outer { lambda, theta, key, value, by_lambda, by_theta })))
    }
}

/// The two losses.
pub(super) struct Functions {
    pub inner: HostCall,
    pub outer: HostCall,
}

impl Functions {
    pub fn new(core: &Arc<Core>) -> Self {
        let of = |product: Product, derivatives: Vec<HostCall>| {
            HostCall::new(Function { core: core.clone(), product, derivatives })
        };
        let products = vec![of(Product::Mixed, vec![]), of(Product::Hessian, vec![])];
        let gradient = of(Product::InnerGradient, products);
        Functions {
            inner: of(Product::InnerLoss, vec![gradient]),
            outer: of(Product::OuterLoss, vec![of(Product::OuterByLambda, vec![]), of(Product::OuterByTheta, vec![])]),
        }
    }
}

/// The product that a function computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Product {
    InnerLoss,
    InnerGradient,
    Hessian,
    Mixed,
    OuterLoss,
    OuterByLambda,
    OuterByTheta,
}

impl Product {
    fn takes_vector(self) -> bool {
        matches!(self, Product::Hessian | Product::Mixed)
    }

    fn is_outer(self) -> bool {
        matches!(self, Product::OuterLoss | Product::OuterByLambda | Product::OuterByTheta)
    }
}

struct Function {
    core: Arc<Core>,
    product: Product,
    /// For the inner loss its gradient, and the products vᵀ·C and H·v of that; for the outer loss both gradients.
    derivatives: Vec<HostCall>,
}

impl Function {
    /// The operands with a vector in the place after λ and θ.
    fn along(operands: &[Tensor], vector: Tensor) -> Vec<Tensor> {
        [&operands[..2], &[vector], &operands[2..]].concat()
    }

    fn compute(&self, operands: &[&[f64]], result: &mut [f64]) -> OracleResult {
        let vectors = usize::from(self.product.takes_vector());
        let key = match operands[2 + vectors..] {
            // Both levels of one step have their own keys.
            [key, step] => Key::from([key[0] as i32, key[1] as i32])
                .fold_in(u32::from(self.product.is_outer()))
                .fold_in(step[0] as i32 as u32),
            _ => Key::from_seed(0),
        };
        let at = OraclePoint { lambda: operands[0], theta: operands[1], key };
        let (core, oracle) = (&self.core, &*self.core.oracle);
        match self.product {
            Product::InnerLoss => result[0] = oracle.inner_loss(&at)?,
            Product::InnerGradient => oracle.inner_gradient(&at, result)?,
            Product::Hessian => oracle.hessian_product(&at, operands[2], result)?,
            Product::Mixed => oracle.mixed_product(&at, operands[2], result)?,
            Product::OuterLoss => result[0] = core.outer(&at, |outer| outer.value)?,
            Product::OuterByLambda => core.outer(&at, |outer| result.copy_from_slice(&outer.by_lambda))?,
            Product::OuterByTheta => core.outer(&at, |outer| result.copy_from_slice(&outer.by_theta))?,
        }
        Ok(())
    }
}

impl HostFunction for Function {
    fn name(&self) -> &str {
        match self.product {
            Product::InnerLoss => "the oracle's inner loss",
            Product::InnerGradient => "the oracle's inner gradient",
            Product::Hessian => "the oracle's Hessian product",
            Product::Mixed => "the oracle's mixed product",
            Product::OuterLoss => "the oracle's outer loss",
            Product::OuterByLambda => "the oracle's outer gradient by λ",
            Product::OuterByTheta => "the oracle's outer gradient by θ",
        }
    }

    fn result(&self, operands: &[&Meta]) -> Result<Meta, String> {
        let (lambdas, thetas) = self.core.oracle.sizes();
        let (lambda, theta) = (operands[0], operands[1]);
        if lambda.shape != [lambdas] || theta.shape != [thetas] {
            return Err(format!(
                "the oracle's λ has {lambdas} numbers and its θ {thetas}, but these have the shapes {:?} and {:?}",
                lambda.shape, theta.shape
            ));
        }
        let shape = match self.product {
            Product::InnerLoss | Product::OuterLoss => vec![],
            Product::Mixed | Product::OuterByLambda => vec![lambdas],
            Product::InnerGradient | Product::Hessian | Product::OuterByTheta => vec![thetas],
        };
        Ok(Meta { dtype: theta.dtype, shape })
    }

    fn evaluate(&self, operands: &[&[f64]], result: &mut [f64]) -> Result<(), String> {
        self.compute(operands, result).map_err(|error| error.to_string())
    }

    fn pullback(&self, operands: &[Tensor], cotangent: Tensor, which: usize) -> Result<Option<Tensor>, String> {
        let by = |operand: usize| self.derivatives[operand].of(operands);
        Ok(Some(match (self.product, which) {
            (Product::InnerLoss, 1) => by(0) * cotangent,
            (Product::InnerGradient, 0 | 1) => self.derivatives[which].of(&Self::along(operands, cotangent)),
            (Product::OuterLoss, 0 | 1) => by(which) * cotangent,
            // H is symmetric.
            (Product::Hessian, 2) => {
                let again = Function { core: self.core.clone(), product: Product::Hessian, derivatives: vec![] };
                HostCall::new(again).of(&[&operands[..2], &[cotangent], &operands[3..]].concat())
            }
            (Product::InnerLoss, 0) => {
                return Err(
                    "an oracle has no derivative of the inner loss by λ alone; use a method that needs only its \
                            products, such as ift-cg, rmd or langevin-adjoint"
                        .into(),
                );
            }
            (Product::Mixed, 2) => {
                return Err("an oracle has vᵀ·C but not C·u; use a method in reverse mode, such as rmd".into());
            }
            (product, 0 | 1) if product != Product::InnerLoss => {
                return Err("an oracle has no higher derivatives; use a method that needs only its products".into());
            }
            // Keys and steps.
            _ => return Ok(None),
        }))
    }
}
