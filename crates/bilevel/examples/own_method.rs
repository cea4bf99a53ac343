//! Two custom hypergradient estimators, a page each.
//!
//! T1–T2 (Luketina and others, 2016) takes the inner Hessian for the identity, so that one mixed product is all it needs. It is
//! written from the ground up, in programs of the problem:
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   h = f_λ − γ·f_θᵀ·C
//!
//! The other, for an inner loss that is nearly flat in some directions, solves with a damped Hessian, twice, and extrapolates to no
//! damping. It is put together from parts of the library:
//!
//!   (H + μ·I)·q(μ) = f_θ,   q = 2·q(μ/2) − q(μ),   h = f_λ − qᵀ·C
//!
//!     cargo run --release -p bilevel --example own_method

use bilevel::diagnostics::Cause;
use bilevel::graph::{Graph, Program, gradient_or_zeros, mixed_vector};
use bilevel::methods::{LoopUse, Noise, Oracles};
use bilevel::parts::{ConjugateGradients, Ending, Implicit, Matrix};
use bilevel::prelude::*;
use bilevel::programs::{Routine, Trace, or_zeros};
use bilevel::{Error, Estimator, Hypergradient, Result, Session, State};

/// It has no settings: step and steps are those of the run's inner loop.
#[derive(Clone, Copy, Debug)]
struct T1T2;

/// The method, compiled for a problem.
struct Prepared {
    inner: InnerLoop,
    train: Routine,
    judge: Routine,
}

impl Method for T1T2 {
    fn name(&self) -> &'static str {
        "t1-t2"
    }

    /// The settings of the loop that it supports; others are refused.
    fn loop_use(&self) -> LoopUse {
        LoopUse { noise: Noise::Never, any_optimizer: false, ..LoopUse::PLAIN }
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let problem = session.problem();
        if problem.starts_from_lambda() {
            let reason = "it does not see how θ⁰ depends on λ; use rmd".into();
            return Err(Error::NotApplicable { method: self.name(), reason });
        }
        // One inner step; θ is carried from one to the next.
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let loss = trace.inner(&trace.theta, graph.step())?;
        let mut program = Program::builder(&graph).output("inner", loss);
        for (theta, slope) in trace.theta.iter().zip(gradient_or_zeros(loss, &trace.theta)?) {
            // γ is not compiled: it is told to the program before it runs.
            program = program.carry(*theta, *theta - slope * trace.gamma);
        }
        let train = Routine::new(&program.build()?, session)?;

        // h at the last θ; all products of it see the draw of one step.
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let (loss, outer) = (trace.inner(&trace.theta, graph.step())?, trace.outer(&trace.theta, graph.step())?);
        let f_theta = gradient_or_zeros(outer, &trace.theta)?;
        let f_lambda = gradient_or_zeros(outer, &trace.lambda)?;
        let mixed = or_zeros(mixed_vector(loss, &trace.theta, &f_theta, &trace.lambda)?, &trace.lambda);
        let mut program = Program::builder(&graph).output("outer", outer);
        for (i, (direct, mixed)) in f_lambda.into_iter().zip(mixed).enumerate() {
            program = program.output(format!("h.{i}"), direct - mixed * trace.gamma);
        }
        let judge = Routine::new(&program.build()?, session)?;
        Ok(Box::new(Prepared { inner: *inner, train, judge }))
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        // Training updates θ in place, in the state.
        self.inner.place(&mut self.train, gamma)?;
        self.train.bind_point(&state.lambda, &state.theta, key)?;
        self.train.run(0..self.inner.steps as u32)?;
        self.inner.place(&mut self.judge, gamma)?;
        self.judge.bind_point(&state.lambda, &state.theta, key)?;
        let value = self.judge.outputs("h")?;
        self.judge.run(self.inner.last())?;
        let inner_gradients = self.inner.steps as u64;
        let oracles = Oracles { inner_gradients, outer_gradients: 1, mixed_products: 1, ..Oracles::default() };
        // The outer loss at the last θ is known; the library evaluates the inner loss.
        Ok(Hypergradient::new(value, oracles).with_outer_loss(self.judge.number("outer")?))
    }
}

/// Settings of the damped solves.
#[derive(Clone, Copy, Debug)]
struct Damped {
    /// μ, above 0.
    damping: f64,
    /// Conjugate gradients of each solve.
    iterations: usize,
}

struct PreparedDamped {
    implicit: Implicit,
    solvers: [ConjugateGradients; 2],
    extrapolate: Routine,
}

impl Method for Damped {
    fn name(&self) -> &'static str {
        "damped"
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        if self.damping.is_nan() || self.damping <= 0.0 {
            return Err(Error::setting("damping", self.damping, "above 0"));
        }
        let solver = |identity: f64| {
            ConjugateGradients::new(session, inner, Matrix { hessian: 1.0, identity }, self.iterations, false)
        };
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let (more, less) = (trace.inputs_like("more", &trace.theta), trace.inputs_like("less", &trace.theta));
        let mut program = Program::builder(&graph);
        for (i, (more, less)) in more.into_iter().zip(less).enumerate() {
            program = program.output(format!("q.{i}"), less * 2.0 - more);
        }
        Ok(Box::new(PreparedDamped {
            implicit: Implicit::new(session, *inner, Ending { scale: 1.0, proximal: None })?,
            solvers: [solver(self.damping)?, solver(0.5 * self.damping)?],
            extrapolate: Routine::new(&program.build()?, session)?,
        }))
    }

    /// A minimum does not depend on the start of training.
    fn loop_use(&self) -> LoopUse {
        LoopUse::MINIMUM
    }
}

impl Estimator for PreparedDamped {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let point = self.implicit.descend(state, key, gamma)?;
        let [more, less] = &mut self.solvers;
        let (q_more, q_less) = (more.solve(&point, None)?, less.solve(&point, None)?);
        self.extrapolate.bind("more", &q_more.q)?;
        self.extrapolate.bind("less", &q_less.q)?;
        let q = self.extrapolate.outputs("q")?;
        self.extrapolate.run(0..1)?;
        let products = more.products() + less.products();
        let mut found = self.implicit.finish(point, &q, products, Cause::HessianNotPositive)?;
        found.diagnostics = q_less.diagnostics;
        Ok(found)
    }
}

fn main() -> Result<()> {
    // Which weight decay makes θ, trained towards a = (1, 2), end nearest to b = (0.5, 1.5)? Training ends at a/(1 + e^λ), which
    // is nearest to b at 1/(1 + e^λ) = a·b/a·a = 0.7, so at λ = log(3/7).
    let problem = Problem::builder(Leaf(Variable::constant([], -3.0)), Leaf(Variable::constant([2], 0.0)))
        .data("a", Array::from_f64([2], vec![1.0, 2.0])?)
        .data("b", Array::from_f64([2], vec![0.5, 1.5])?)
        .inner(|s, l, t| ((t.0 - s.data("a")).square() + l.0.exp() * t.0.square()).sum_all())
        .outer(|s, _, t| (t.0 - s.data("b")).square().sum_all())
        .build()?;
    let inner = InnerLoop::new(0.1, 60);
    let (own, damped, known) = (T1T2, Damped { damping: 0.1, iterations: 10 }, IftCg::default());
    // Before they are used: which of them can be trusted here?
    let report = problem.check().inner(inner).method(own).method(damped).method(known).run()?;
    println!("{}", report.methods_table());

    println!("{:8} {:>9} {:>10} {:>24}", "method", "λ", "outer loss", "Hessian, mixed products");
    let methods: [Box<dyn Method>; 3] = [Box::new(own), Box::new(damped), Box::new(known)];
    for method in methods {
        let name = method.name();
        let outcome =
            Driver::new(&problem, method).inner(inner).optimizer(Adam::default()).rate(0.05).iterations(300).run()?;
        let (lambda, loss) =
            (outcome.lambda.0.item().unwrap_or(f64::NAN), outcome.last.map_or(f64::NAN, |last| last.outer_loss));
        let products = format!("{}, {}", outcome.oracles.hessian_products, outcome.oracles.mixed_products);
        println!("{name:8} {lambda:9.5} {loss:10.6} {products:>24}");
    }
    println!("{:8} {:9.5} {:10.6}", "exact", (3.0_f64 / 7.0).ln(), 0.05);
    println!(
        "\nReplacing H by I makes the hypergradient too short; with one λ its sign is right, and so is the result."
    );
    Ok(())
}
