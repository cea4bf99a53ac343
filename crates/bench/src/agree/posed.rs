//! A loss with everything that either side needs to compute it and its derivatives from the same numbers.
//!
//! The peer does not repeat a task's random draws: the random numbers, and the chosen rows of the data, are outputs of
//! our program, and inputs of the peer.

use super::tasks::TaskCase;
use crate::cases::case::Case;
use crate::cases::derivatives::{self, Products, program_of};
use crate::differences;
use crate::error::Result;
use bilevel_cpu::{Cpu, CpuRun};
use bilevel_graph::{Array, Graph, Op, Port, Program, RandomKind, Runnable, Tensor};
use bilevel_run::Context;
use std::collections::BTreeMap;

/// Something that goes in.
pub struct Given {
    /// The input of our program; the program need not have it.
    pub port: String,
    /// Its file: p0, p1, … are parameters, v0, v1, … the vectors of the Hessian product, x0, x1, … all others.
    pub file: String,
    /// Its name for the peer.
    pub name: String,
    /// The numbers.
    pub value: Array,
}

/// A loss, its derivatives and its inputs.
pub struct Posed {
    /// Computes the loss, the gradient and the product.
    pub program: Program,
    /// All that goes in.
    pub given: Vec<Given>,
    /// The number of parameters' arrays.
    pub arrays: usize,
    /// The number of parameters.
    pub parameters: usize,
}

/// Which loss of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// L_T.
    Inner,
    /// f.
    Outer,
}

impl Level {
    /// For people and peers.
    pub fn word(self) -> &'static str {
        match self {
            Level::Inner => "inner",
            Level::Outer => "outer",
        }
    }
}

impl Posed {
    /// A case at the values of this seed.
    pub fn case(graph: &Graph, case: &Case, seed: u32) -> Result<Self> {
        let program = derivatives::program(graph, case, Products::GradientAndHessian)?;
        let known: BTreeMap<String, &String> =
            case.names.iter().enumerate().map(|(i, name)| (format!("p{i}"), name)).collect();
        let one = |(port, value): (String, Array)| {
            let name = known.get(&port).map_or(&port, |name| *name).clone();
            Given { file: port.clone(), name, port, value }
        };
        let given = derivatives::given(case, seed)?.into_iter().map(one).collect();
        let parameters = case.parameters.iter().map(|(tensor, _)| tensor.len()).sum();
        Ok(Posed { program, given, arrays: case.parameters.len(), parameters })
    }

    /// A loss of a task, by λ and θ together, so that the Hessian has the mixed derivatives in it.
    pub fn task(graph: &Graph, task: &TaskCase, level: Level, cpu: &Cpu, context: &Context) -> Result<Self> {
        let losses = task.losses(graph, cpu, context)?;
        let loss = if level == Level::Inner { losses.inner } else { losses.outer };
        let wrt: Vec<Tensor> = losses.lambda.iter().chain(&losses.theta).copied().collect();
        let program = revealing_draws(program_of(graph, loss, &wrt, Products::GradientAndHessian)?);
        let mut given = vec![];
        for (number, (tensor, value)) in losses.point.into_iter().enumerate() {
            let port = input_name(graph, tensor)?;
            let (letter, place) = if number < wrt.len() { ('p', number) } else { ('x', number - wrt.len()) };
            given.push(Given { name: port.clone(), port, file: format!("{letter}{place}"), value });
        }
        for (number, tensor) in wrt.iter().enumerate() {
            let port = format!("v{number}");
            let value = derivatives::vector(*tensor, number, context.seed as u32)?;
            given.push(Given { file: port.clone(), name: port.clone(), port, value });
        }
        let parameters = wrt.iter().map(|tensor| tensor.len()).sum();
        Ok(Posed { program, given, arrays: wrt.len(), parameters })
    }

    /// Our results. Its draws become inputs of the peer.
    pub fn run(&mut self, cpu: &Cpu) -> Result<differences::Products> {
        let given: Vec<(&str, &Array)> = self.given.iter().map(|given| (&given.port[..], &given.value)).collect();
        let run = ran(cpu, &self.program, &given)?;
        let first = self.given.iter().filter(|given| given.file.starts_with('x')).count();
        let drawn = self.program.outputs.iter().enumerate().skip(1 + 2 * self.arrays);
        let drawn = drawn.enumerate().map(|(number, (output, port))| {
            let (file, name) = (format!("x{}", first + number), port.name.clone());
            Ok(Given { port: name.clone(), file, name, value: run.output(output)? })
        });
        let drawn = drawn.collect::<Result<Vec<_>>>()?;
        self.given.extend(drawn);
        products(&run, self.arrays)
    }
}

/// A run of a program once, with those of the given values that it has inputs for.
pub fn ran(cpu: &Cpu, program: &Program, given: &[(&str, &Array)]) -> Result<CpuRun> {
    let mut run = cpu.plan(program)?;
    for (port, value) in given {
        if let Ok(input) = program.input(port) {
            run.set(input, value)?;
        }
    }
    run.run(0..1)?;
    Ok(run)
}

/// Loss, gradient and product among the outputs of a run, for this many arrays of parameters.
pub fn products(run: &CpuRun, count: usize) -> Result<differences::Products> {
    let read = |output: String| Ok(run.output(run.program().output(&output)?)?);
    Ok(differences::Products {
        loss: read("loss".into())?,
        gradient: (0..count).map(|i| read(format!("g{i}"))).collect::<Result<_>>()?,
        product: (0..count).map(|i| read(format!("h{i}"))).collect::<Result<_>>()?,
    })
}

/// The name of an input of a graph.
fn input_name(graph: &Graph, tensor: Tensor) -> Result<String> {
    let program = Program::builder(graph).keep_input(tensor).build()?;
    Ok(program.inputs.first().map_or_else(String::new, |port| port.name.clone()))
}

/// The program with more outputs. Its random numbers are "normal 0", "uniform 0", … in the order of their nodes. The
/// rows that it takes from inputs are "rows of data.x", "rows of data.x 1", …
fn revealing_draws(mut program: Program) -> Program {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found: Vec<(String, usize)> = vec![];
    for (number, node) in program.nodes.iter().enumerate() {
        match node.op {
            Op::Random(kind, _) if kind != RandomKind::Bits => {
                let word = if kind == RandomKind::Normal { "normal" } else { "uniform" };
                let count = counts.entry(word.into()).or_default();
                found.push((format!("{word} {count}"), number));
                *count += 1;
            }
            Op::Gather { batch: 0 } => {
                let Some(port) = program.inputs.iter().find(|port| port.node == Some(node.inputs[0])) else { continue };
                let count = counts.entry(port.name.clone()).or_default();
                let name = match *count {
                    0 => format!("rows of {}", port.name),
                    count => format!("rows of {} {count}", port.name),
                };
                found.push((name, node.inputs[1]));
                *count += 1;
            }
            _ => {}
        }
    }
    for (name, node) in found {
        let meta = program.nodes[node].meta.clone();
        program.outputs.push(Port { name, node: Some(node), meta });
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{DType, gradient};

    #[test]
    fn what_was_drawn_and_which_rows_were_taken_are_outputs() {
        let g = Graph::new();
        let (x, key) = (g.input("data.x", [4, 2], DType::F64), g.input("key", [2], DType::I32));
        let draw = |stream| key.random(g.scalar(0.0, DType::I32), RandomKind::Uniform, stream, [3], DType::F64);
        let rows = (draw(0) * 4.0).floor().convert(DType::I32);
        let loss = (x.take(rows).square().sum([1]) * draw(1)).sum_all();
        let slope = gradient(loss, &[x]).unwrap()[0].unwrap();
        let program = Program::builder(&g).output("loss", loss).output("g0", slope).build().unwrap();
        let program = revealing_draws(program);
        let names: Vec<&str> = program.outputs.iter().map(|port| &port.name[..]).collect();
        assert_eq!(names, ["loss", "g0", "uniform 0", "rows of data.x", "uniform 1"]);
        let (x, key) = (Array::from_f64([4, 2], vec![0.5; 8]).unwrap(), Array::from_i32([2], vec![1, 2]).unwrap());
        let run = ran(&Cpu::with_threads(1), &program, &[("data.x", &x), ("key", &key), ("other", &x)]).unwrap();
        let [first, rows, second] = [2, 3, 4].map(|output| run.output(output).unwrap().to_f64());
        let expected: Vec<f64> = first.iter().map(|u| (u * 4.0).floor()).collect();
        assert_eq!(rows, expected);
        let sum: f64 = second.iter().sum();
        assert!((run.output(0).unwrap().item().unwrap() - 0.5 * sum).abs() < 1e-12);
    }
}
