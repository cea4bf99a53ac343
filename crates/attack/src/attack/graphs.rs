//! Random programs: on one, two and three threads, against the graph as written and the reference, and their derivatives
//! against differences.

use super::Attack;
use super::tally::Tried;
use crate::error::Result;
use bilevel_cpu::Cpu;
use bilevel_graph::conformance::{Case, Dice, Differentiable, Size, agree, random_program, varied_program};
use bilevel_graph::{Array, DType, GradientCheck, Graph, Reference, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The part.
pub struct Graphs {
    cpus: [Cpu; 3],
}

impl Graphs {
    /// Teams of one, two and three threads.
    pub fn new() -> Self {
        Graphs { cpus: [1, 2, 3].map(Cpu::with_threads) }
    }

    /// Compares a program with the reference and with itself on other teams; returns the results of the reference.
    fn hold(&self, case: &Case, tried: &mut Tried) -> Result<Vec<Array>> {
        let expected = case.expected()?;
        for (threads, cpu) in (1..).zip(&self.cpus) {
            match case.run(cpu) {
                Err(failure) => tried.failures.push(format!("{failure} on {threads} threads")),
                Ok(found) => {
                    let apart = agree(&found, &expected, &case.tolerances).err();
                    tried.failures.extend(apart.map(|apart| format!("{}: {apart} on {threads} threads", case.name)));
                }
            }
        }
        Ok(expected)
    }

    /// A random program, simplified and as written.
    fn program(&self, seed: u64, dtype: DType, size: fn(&mut Dice) -> Size, tried: &mut Tried) -> Result<()> {
        let case = random_program(seed, &Graph::new(), dtype, size)?;
        let expected = self.hold(&case, tried)?;
        let plain = random_program(seed, &Graph::without_simplification(), dtype, size)?;
        let found = plain.expected()?;
        // Simplification may know that a derivative is zero which the plain graph computes; then the counts differ.
        let same = if found.len() == expected.len() { expected.len() } else { 1 };
        let apart = agree(&found[..same], &expected[..same], &case.tolerances[..same]).err();
        tried.failures.extend(apart.map(|apart| format!("{} as written and simplified: {apart}", case.name)));
        Ok(())
    }

    /// Gradient and products with the Hessian against extrapolated central differences, on either executor.
    fn derivatives(&self, seed: u64, tried: &mut Tried) -> Result<()> {
        let g = Graph::new();
        let made = Differentiable::new(seed, &g, DType::F64, Size::small)?;
        let point: Vec<(Tensor, Array)> =
            made.inputs.iter().map(|(tensor, _, value)| (*tensor, value.clone())).collect();
        let mut report = None;
        // A kink near the point spoils steps that reach it; a wrong derivative is wrong for every step.
        for step in [2f64.powi(-4), 2f64.powi(-10), 2f64.powi(-16)] {
            let mut check =
                GradientCheck::new(&g, made.loss, &made.variables, &point).coordinates(3).seed(seed).step(step);
            if seed.is_multiple_of(2) {
                check = check.executor(&self.cpus[1]);
            }
            let found = check.run()?;
            if found.passed(DERIVATIVE) {
                return Ok(());
            }
            report.get_or_insert(found);
        }
        let report = report.map_or(String::new(), |report| report.to_string());
        tried.failures.push(format!("derivatives of random program {seed} are not those of its loss:\n{report}"));
        Ok(())
    }
}

/// How well derivatives must agree with differences: extrapolated from long steps they have 8 good digits and more,
/// from the shortest steps, next to a kink, 6.
const DERIVATIVE: f64 = 1e-6;

/// Products and quotients of numbers near the limits of f32. If the graph as written gives the right number, that of
/// f64, simplification must not make it overflow, vanish or lose digits.
fn ranges(seed: u64, tried: &mut Tried) -> Result<()> {
    let mut values = vec![];
    let plain = Graph::without_simplification;
    for (g, dtype) in [(Graph::new(), DType::F32), (plain(), DType::F32), (plain(), DType::F64)] {
        let mut dice = Dice::new(seed);
        let wild = [1e-30, 1e-20, 1e-10, 1e-3, 0.5, 3.0, 1e3, 1e10, 1e20, 1e30];
        let inputs: Vec<(Tensor, Array)> =
            (0..3).map(|i| (g.input(format!("x{i}"), [], dtype), Array::scalar(dice.pick(&wild), dtype))).collect();
        let mut made: Vec<Tensor> = inputs.iter().map(|(tensor, _)| *tensor).collect();
        for _ in 0..2 + dice.below(6) {
            let (a, b, c) = (dice.pick(&made), dice.pick(&made), dice.pick(&wild));
            made.push(match dice.below(7) {
                0 => a * c,
                1 => a * b,
                2 => a / b,
                3 => a / c,
                4 => c / a,
                5 => -a,
                _ => a.sqrt() * c,
            });
        }
        let outputs = Reference::evaluate(&g, &inputs, &made[3..])?;
        values.push(outputs.iter().map(|array| array.item().unwrap_or(f64::NAN)).collect::<Vec<f64>>());
    }
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * b.abs();
    for (number, ((&simplified, &plain), &right)) in values[0].iter().zip(&values[1]).zip(&values[2]).enumerate() {
        // As written it may itself go through a number that f32 rounds coarsely or does not hold at all.
        let ordinary = plain.is_finite() && plain.abs() > 1e-30 && near(plain, right);
        if ordinary && !near(simplified, plain) {
            let found =
                format!("product {number} of seed {seed} is {plain:e} as written and {simplified:e} simplified");
            tried.failures.push(found);
        }
    }
    Ok(())
}

impl Attack for Graphs {
    fn attack(&self, seed: u64) -> Result<Tried> {
        let kind = Dice::new(!seed).below(20);
        let mut tried = Tried::new(match kind {
            0..=5 => "random programs in f64",
            6..=7 => "random programs in f32",
            8..=11 => "choices, integers, draws, carries",
            12 => "large random programs",
            13..=15 => "products near the range of f32",
            _ => "derivatives against differences",
        });
        let attacked = catch_unwind(AssertUnwindSafe(|| match kind {
            0..=5 => self.program(seed, DType::F64, Size::small, &mut tried),
            6..=7 => self.program(seed, DType::F32, Size::small, &mut tried),
            8..=11 => {
                let dtype = if kind == 8 { DType::F32 } else { DType::F64 };
                for g in [Graph::new(), Graph::without_simplification()] {
                    self.hold(&varied_program(seed, &g, dtype, Size::small)?, &mut tried)?;
                }
                Ok(())
            }
            12 => self.program(seed, DType::F64, Size::large, &mut tried),
            13..=15 => ranges(seed, &mut tried),
            _ => self.derivatives(seed, &mut tried),
        }));
        match attacked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tried.failures.push(format!("seed {seed} was refused: {error}")),
            Err(_) => tried.failures.push(format!("seed {seed} panicked")),
        }
        Ok(tried)
    }
}
