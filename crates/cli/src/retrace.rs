//! A problem's two losses as tensors of a graph of one's own, in 64-bit floats whatever the problem computes in.
//!
//! The library hands programs to an executor. The executor here runs nothing: it keeps the program and the values its inputs
//! are given, and the losses are traced again from there, operation by operation.

use crate::errors::Result;
use bilevel::{Evaluator, Problem, State};
use bilevel_graph::{Array, DType, Executor, Graph, Op, Program, ReduceOp, Runnable, STEP, Tensor};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A program and the values of its inputs.
#[derive(Default)]
struct Kept {
    program: Option<Program>,
    values: Vec<Option<Array>>,
}

/// Keeps what it is given and runs nothing.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Kept>>);

impl Keeper {
    fn with<R>(&self, look: impl FnOnce(&mut Kept) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct KeptRun {
    program: Program,
    keeper: Keeper,
}

impl Executor for Keeper {
    fn compile(&self, program: &Program) -> bilevel_graph::Result<Box<dyn Runnable>> {
        let values = vec![None; program.inputs.len()];
        self.with(|kept| *kept = Kept { program: Some(program.clone()), values });
        Ok(Box::new(KeptRun { program: program.clone(), keeper: self.clone() }))
    }
}

impl Runnable for KeptRun {
    fn set(&mut self, input: usize, value: &Array) -> bilevel_graph::Result<()> {
        self.program.check_input(input, value)?;
        self.keeper.with(|kept| kept.values[input] = Some(value.clone()));
        Ok(())
    }

    fn run(&mut self, _: Range<u32>) -> bilevel_graph::Result<()> {
        Ok(())
    }

    fn read(&self, output: usize, into: &mut Array) -> bilevel_graph::Result<()> {
        self.program.check_output(output, into)
    }

    fn read_input(&self, input: usize, into: &mut Array) -> bilevel_graph::Result<()> {
        self.program.check_input(input, into)
    }

    fn program(&self) -> &Program {
        &self.program
    }
}

/// Both losses, what they are functions of, and a value for everything that goes in.
pub struct Losses {
    /// L_T.
    pub inner: Tensor,
    /// f.
    pub outer: Tensor,
    /// λ, leaf by leaf.
    pub lambda: Vec<Tensor>,
    /// θ, leaf by leaf.
    pub theta: Vec<Tensor>,
    /// Values of λ, θ, the data and the random key.
    pub point: Vec<(Tensor, Array)>,
    /// Their names.
    pub names: Vec<String>,
}

impl Losses {
    /// Traces the losses on `graph`, at this state and with the draws of this key.
    pub fn trace(graph: &Graph, problem: &Problem, state: &State, key: [i32; 2]) -> Result<Self> {
        let keeper = Keeper::default();
        Evaluator::new(problem, &keeper)?.at(state, key)?;
        let kept = keeper.with(std::mem::take);
        let mut point: Vec<(Tensor, Array)> = vec![];
        let mut named: Vec<(String, Tensor)> = vec![];
        let mut declare = |name: &str, value: &Array| -> Result<Tensor> {
            let dtype = wide(value.dtype());
            let tensor = graph.input(name, value.shape(), dtype);
            point.push((tensor, Array::from_values(value.shape(), &value.to_f64(), dtype)?));
            named.push((name.to_string(), tensor));
            Ok(tensor)
        };
        // A leaf that neither loss looks at is no input of the program, but a variable of the problem all the same.
        let (mut lambda, mut theta) = (vec![], vec![]);
        for (name, value) in problem.lambda_names().iter().zip(&state.lambda) {
            lambda.push(declare(&format!("lambda.{name}"), value)?);
        }
        for (name, value) in problem.theta_names().iter().zip(&state.theta) {
            theta.push(declare(&format!("theta.{name}"), value)?);
        }
        let Some(program) = kept.program else {
            let reason = "the problem gave no program to trace its losses from".into();
            return Err(bilevel::Error::Problem { reason }.into());
        };
        for (port, value) in program.inputs.iter().zip(&kept.values) {
            if let Some(value) = value
                && !port.name.starts_with("lambda.")
                && !port.name.starts_with("theta.")
            {
                declare(&port.name, value)?;
            }
        }
        let outputs = replay(graph, &program, &named);
        let names = named.into_iter().map(|(name, _)| name).collect();
        Ok(Losses { inner: outputs[0].check()?, outer: outputs[1].check()?, lambda, theta, point, names })
    }
}

/// 64 bits for floats.
fn wide(dtype: DType) -> DType {
    if dtype == DType::I32 { DType::I32 } else { DType::F64 }
}

/// The first two outputs of a program, made again on another graph.
fn replay(graph: &Graph, program: &Program, named: &[(String, Tensor)]) -> [Tensor; 2] {
    let ends = [0, 1].map(|i| program.outputs.get(i).and_then(|port| port.node).unwrap_or(0));
    let mut live = vec![false; program.nodes.len()];
    ends.iter().for_each(|&end| live[end] = true);
    for number in (0..live.len()).rev() {
        if live[number] {
            program.nodes[number].inputs.iter().for_each(|&operand| live[operand] = true);
        }
    }
    let nothing = graph.scalar(0.0, DType::F64);
    let mut made = vec![nothing; program.nodes.len()];
    for (number, node) in program.nodes.iter().enumerate().filter(|(number, _)| live[*number]) {
        let (shape, dtype) = (&node.meta.shape, wide(node.meta.dtype));
        let x = |i: usize| made[node.inputs[i]];
        made[number] = match &node.op {
            Op::Input(_) => {
                let port = program.inputs.iter().find(|port| port.node == Some(number));
                let name = port.map_or("", |port| port.name.as_str());
                match named.iter().find(|(known, _)| known == name) {
                    Some((_, tensor)) => *tensor,
                    None if name == STEP => graph.step(),
                    None => graph.input(name, shape, dtype),
                }
            }
            Op::Constant(bits) => graph.constant(f64::from_bits(*bits), shape, dtype),
            Op::Iota(axis) => graph.iota(shape, *axis, dtype),
            Op::Random(kind, stream) => x(0).random(x(1), *kind, *stream, shape, dtype),
            Op::Unary(op) => x(0).unary(*op),
            Op::Binary(op) => x(0).binary(*op, x(1)),
            Op::Select => x(0).select(x(1), x(2)),
            Op::Convert(to) => x(0).convert(wide(*to)),
            Op::CheckIndex(limit) => x(0).check_index(*limit),
            Op::StopGradient => x(0).stop_gradient(),
            Op::Reshape => x(0).reshape(shape),
            Op::Transpose(perm) => x(0).transpose(perm),
            Op::Broadcast(axes) => x(0).broadcast(axes, shape),
            Op::Slice { start, stop, step } => x(0).slice_all(start.clone(), stop.clone(), step.clone()),
            Op::Pad { low, high, interior } => x(0).pad_all(low.clone(), high.clone(), interior.clone()),
            Op::Concat(axis) => {
                let others: Vec<Tensor> = (1..node.inputs.len()).map(x).collect();
                x(0).concat(&others, *axis)
            }
            Op::Reverse(axes) => x(0).reverse(axes),
            Op::Reduce(ReduceOp::Sum, axes) => x(0).sum(axes),
            Op::Reduce(ReduceOp::Max, axes) => x(0).max(axes),
            Op::ArgMax(axis) => x(0).argmax(*axis),
            Op::Dot(dims) => x(0).dot(x(1), dims.clone()),
            Op::Conv(dims) => x(0).conv(x(1), dims.clone()),
            Op::Gather { batch } => x(0).gather(x(1), *batch),
            Op::ScatterAdd { batch, size } => x(1).scatter_add(x(0), *batch, *size),
            Op::WindowArgMax(dims) => x(0).window_argmax(dims.clone()),
            Op::CumSum { axis, reverse } => x(0).cumsum_from(*axis, *reverse),
        };
    }
    ends.map(|end| made.get(end).copied().unwrap_or(nothing))
}
