//! Problems of the suite with derivatives by hand: methods keep on them what they promise on the traced ones.

use bilevel::methods::AnyMethod;
use bilevel::oracle::{BilevelOracle, Oracle, OraclePoint, OracleResult};
use bilevel::{Array, Cpu, Method, Variable};
use bilevel_truth::{Effort, TruthProblem, Verdict, fitted, measure, problems};

/// L_T = ½·Σ e^λᵢ·θᵢ² and f = Σ θᵢ²/n.
struct Widths(usize);

impl BilevelOracle for Widths {
    fn sizes(&self) -> (usize, usize) {
        (self.0, self.0)
    }

    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
        (0..self.0).for_each(|i| gradient[i] = at.lambda[i].exp() * at.theta[i]);
        Ok(())
    }

    fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        (0..self.0).for_each(|i| product[i] = at.lambda[i].exp() * v[i]);
        Ok(())
    }

    fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        (0..self.0).for_each(|i| product[i] = at.lambda[i].exp() * at.theta[i] * v[i]);
        Ok(())
    }

    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
        by_lambda.fill(0.0);
        (0..self.0).for_each(|i| by_theta[i] = 2.0 * at.theta[i] / self.0 as f64);
        Ok(at.theta.iter().map(|t| t * t).sum::<f64>() / self.0 as f64)
    }

    fn inner_loss(&self, at: &OraclePoint) -> OracleResult<f64> {
        Ok(at.theta.iter().zip(at.lambda).map(|(t, l)| 0.5 * l.exp() * t * t).sum())
    }
}

/// L_T = ½·h·(θ − λ)² and f = ½·(θ − 1)².
struct Bowl(f64);

impl BilevelOracle for Bowl {
    fn sizes(&self) -> (usize, usize) {
        (1, 1)
    }

    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
        gradient[0] = self.0 * (at.theta[0] - at.lambda[0]);
        Ok(())
    }

    fn hessian_product(&self, _: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        product[0] = self.0 * v[0];
        Ok(())
    }

    fn mixed_product(&self, _: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        product[0] = -self.0 * v[0];
        Ok(())
    }

    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
        (by_lambda[0], by_theta[0]) = (0.0, at.theta[0] - 1.0);
        Ok(0.5 * (at.theta[0] - 1.0).powi(2))
    }
}

/// The problem of this name, with these derivatives in place of its losses.
fn by_hand(name: &str, oracle: impl BilevelOracle + 'static) -> TruthProblem {
    let (lambdas, thetas) = oracle.sizes();
    let known = problems().unwrap().into_iter().find(|problem| problem.name == name).unwrap();
    // Its first λ.
    let lambda = (0..lambdas).map(|i| 0.5 + 0.3 * (i as f64).sin()).collect();
    let lambda = Variable::fixed(Array::from_f64([lambdas], lambda).unwrap());
    let problem = Oracle::new(oracle).problem(lambda, Variable::constant([thetas], 0.2)).unwrap().erase();
    TruthProblem { problem, ..known }
}

#[test]
fn methods_keep_their_promises_with_derivatives_by_hand() {
    let (bowl, widths) = (by_hand("quadratic", Bowl(0.7)), by_hand("ten widths", Widths(10)));
    for (problem, names) in [(&bowl, &["ift-cg", "ift-neumann", "hoag"][..]), (&widths, &["langevin-adjoint"])] {
        for name in names {
            let (method, inner) = fitted(&AnyMethod::named(name).unwrap(), problem).unwrap();
            let row = measure((&method, &inner), problem, Effort::QUICK, &Cpu::with_threads(1)).unwrap();
            assert!(row.claimed && row.verdict == Verdict::Right, "{}: {row:?}", method.name());
        }
    }
}
