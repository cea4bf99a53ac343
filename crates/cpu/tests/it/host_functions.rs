//! Functions that user code computes run on the CPU as on the reference, in every type and between compiled operations.

use bilevel_cpu::Cpu;
use bilevel_graph::{
    Array, DType, ErrorKind, Executor, Graph, HostCall, HostFunction, Meta, Program, Reference, Tensor, gradient,
};

/// x·x + step, element by element; refuses a step beyond a limit.
struct Squares {
    limit: f64,
}

impl HostFunction for Squares {
    fn name(&self) -> &str {
        "squares"
    }

    fn result(&self, operands: &[&Meta]) -> Result<Meta, String> {
        match operands {
            [x, step] if step.shape.is_empty() => Ok((*x).clone()),
            _ => Err("needs an array and a number".into()),
        }
    }

    fn evaluate(&self, operands: &[&[f64]], result: &mut [f64]) -> Result<(), String> {
        let step = operands[1][0];
        if step > self.limit {
            return Err(format!("step {step} is beyond {}", self.limit));
        }
        result.iter_mut().zip(operands[0]).for_each(|(result, x)| *result = x * x + step);
        Ok(())
    }

    fn pullback(&self, operands: &[Tensor], cotangent: Tensor, which: usize) -> Result<Option<Tensor>, String> {
        Ok((which == 0).then(|| operands[0] * cotangent * 2.0))
    }
}

/// A carried x, moved along the gradient of a loss that calls the function on a view of it.
fn program(dtype: DType, limit: f64) -> Program {
    let g = Graph::new();
    let x = g.input("x", [3, 5], dtype);
    let squares = HostCall::new(Squares { limit }).of(&[x.t().slice(0, 1, 4), g.step()]);
    let loss = (squares.exp() * 0.01).sum_all();
    let slope = gradient(loss, &[x]).unwrap()[0].unwrap();
    Program::builder(&g).output("loss", loss).carry(x, x - slope * 0.1).build().unwrap()
}

fn run(executor: &dyn Executor, program: &Program, steps: u32) -> bilevel_graph::Result<Vec<f64>> {
    let mut run = executor.compile(program)?;
    let dtype = run.program().inputs[0].meta.dtype;
    let values: Vec<f64> = (0..15).map(|i| 0.1 * i as f64 - 0.7).collect();
    run.set(0, &Array::from_values([3, 5], &values, dtype)?)?;
    run.run(0..steps)?;
    Ok(run.output(0)?.to_f64())
}

#[test]
fn a_function_of_the_host_and_its_derivative_agree_with_the_reference_on_views_and_across_steps() {
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-5)] {
        let program = program(dtype, 10.0);
        let wanted = run(&Reference, &program, 4).unwrap();
        for threads in [1, 3] {
            let found = run(&Cpu::with_threads(threads), &program, 4).unwrap();
            assert!((found[0] - wanted[0]).abs() <= tolerance * wanted[0].abs(), "{dtype}: {found:?} {wanted:?}");
        }
    }
}

#[test]
fn an_error_of_the_function_ends_the_run_and_names_it() {
    for executor in [&Reference as &dyn Executor, &Cpu::with_threads(1)] {
        let error = run(executor, &program(DType::F64, 1.5), 4).unwrap_err();
        assert!(matches!(&error.kind, ErrorKind::HostFunction { name, .. } if name == "squares"), "{error}");
        assert!(error.to_string().starts_with("squares failed: step 2 is beyond 1.5"), "{error}");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused_when_the_tensor_is_made() {
    let g = Graph::new();
    let x = g.input("x", [3], DType::F64);
    let error = HostCall::new(Squares { limit: 1.0 }).of(&[x, x]).check().unwrap_err();
    assert!(error.to_string().contains("needs an array and a number"), "{error}");
}
