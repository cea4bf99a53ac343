//! The reference executor: every operation in the most obvious way, one element at a time. It is what faster executors are
//! tested against, and what the gradient checker uses unless told otherwise.

use crate::graph::{Graph, with_graph};
use crate::op::Op;
use crate::program::{Executor, Program, Runnable};
use crate::reference_ops::{Operand, evaluate_node};
use crate::tensor::Tensor;
use crate::{Array, Error, ErrorKind, Result};
use std::ops::Range;

/// A slow and plain executor. Each element is computed in 64-bit floats and rounded to the tensor's type.
///
/// ```
/// use bilevel_graph::{Array, DType, Executor, Graph, Program, Reference};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F32);
/// let program = Program::builder(&g).output("y", (x * x).sum_all()).build().unwrap();
/// let mut run = Reference.compile(&program).unwrap();
/// run.set(0, &Array::from_f32([3], vec![1.0, 2.0, 3.0]).unwrap()).unwrap();
/// run.run(0..1).unwrap();
/// assert_eq!(run.output(0).unwrap().item(), Some(14.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reference;

impl Reference {
    /// The values of `outputs` where the graph's inputs have these values, in one call: builds the program, sets its
    /// inputs and runs one step (number 0).
    ///
    /// ```
    /// use bilevel_graph::{Array, DType, Graph, Reference};
    /// let g = Graph::new();
    /// let x = g.input("x", [2], DType::F64);
    /// let value = Array::from_f64([2], vec![3.0, 4.0]).unwrap();
    /// let found = Reference::evaluate(&g, &[(x, value)], &[x.square().sum_all().sqrt(), -x]).unwrap();
    /// assert_eq!(found[0].item(), Some(5.0));
    /// assert_eq!(found[1].to_f64(), [-3.0, -4.0]);
    /// ```
    pub fn evaluate(graph: &Graph, inputs: &[(Tensor, Array)], outputs: &[Tensor]) -> Result<Vec<Array>> {
        evaluate_on(&Reference, graph, inputs, outputs)
    }
}

impl Executor for Reference {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        program.validate()?;
        let inputs = vec![None; program.inputs.len()];
        Ok(Box::new(ReferenceRun { program: program.clone(), inputs, values: None }))
    }
}

/// As [`Reference::evaluate`], on any executor.
pub(crate) fn evaluate_on(
    executor: &dyn Executor,
    graph: &Graph,
    inputs: &[(Tensor, Array)],
    outputs: &[Tensor],
) -> Result<Vec<Array>> {
    let mut builder = Program::builder(graph);
    for (number, &output) in outputs.iter().enumerate() {
        builder = builder.output(number.to_string(), output);
    }
    for (input, _) in inputs {
        builder = builder.keep_input(*input);
    }
    let program = builder.build()?;
    let mut run = executor.compile(&program)?;
    for (input, value) in inputs {
        run.set(program.input(&input_name(*input)?)?, value)?;
    }
    run.run(0..1)?;
    (0..outputs.len()).map(|number| run.output(number)).collect()
}

/// The name an input tensor was declared with; an error for a tensor that is computed.
pub(crate) fn input_name(tensor: Tensor) -> Result<String> {
    let name = with_graph(tensor.graph_id(), |data| match data.nodes.get(tensor.node_id() as usize)?.op {
        Op::Input(number) => data.input_names.get(number as usize).cloned(),
        _ => None,
    });
    name.flatten().ok_or_else(|| {
        let operands = vec![(tensor.dtype(), tensor.shape())];
        let reason = "only an input can be given a value; this tensor is computed".into();
        Error::new(ErrorKind::Operation { operation: "evaluate".into(), operands, reason })
    })
}

/// A program with the present values of its inputs and the node values of the last step. All numbers are held as `f64`,
/// in which every element type is exact.
struct ReferenceRun {
    program: Program,
    inputs: Vec<Option<Vec<f64>>>,
    values: Option<Vec<Vec<f64>>>,
}

impl ReferenceRun {
    fn check_inputs_are_set(&self) -> Result<()> {
        for (number, port) in self.program.inputs.iter().enumerate() {
            if self.inputs[number].is_none() && self.program.step != Some(number) {
                return Err(Error::new(ErrorKind::MissingInput { name: port.name.clone() }));
            }
        }
        Ok(())
    }

    /// The value of every node, in order: operands come before their users.
    fn evaluate_all(&self) -> Result<Vec<Vec<f64>>> {
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(self.program.nodes.len());
        for (number, node) in self.program.nodes.iter().enumerate() {
            let value = if let Op::Input(_) = node.op {
                let port = self.program.inputs.iter().position(|port| port.node == Some(number));
                port.and_then(|port| self.inputs[port].clone()).unwrap_or_default()
            } else {
                let operand = |&i: &usize| Operand { meta: &self.program.nodes[i].meta, values: &values[i] };
                let operands: Vec<Operand> = node.inputs.iter().map(operand).collect();
                evaluate_node(node, &operands)?
            };
            values.push(value);
        }
        Ok(values)
    }
}

impl Runnable for ReferenceRun {
    fn set(&mut self, input: usize, value: &Array) -> Result<()> {
        self.program.check_input(input, value)?;
        self.inputs[input] = Some(value.to_f64());
        Ok(())
    }

    fn run(&mut self, steps: Range<u32>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        self.check_inputs_are_set()?;
        self.program.check_steps(&steps)?;
        for step in steps {
            if let Some(number) = self.program.step {
                self.inputs[number] = Some(vec![step as i32 as f64]);
            }
            let values = self.evaluate_all()?;
            // No carried input changes before every node of the step is known, so all change at once.
            for carry in &self.program.carries {
                self.inputs[carry.input] = Some(values[carry.next].clone());
            }
            self.values = Some(values);
        }
        Ok(())
    }

    fn read(&self, output: usize, into: &mut Array) -> Result<()> {
        self.program.check_output(output, into)?;
        let port = &self.program.outputs[output];
        let not_run = || Error::new(ErrorKind::NotRun { name: port.name.clone() });
        let values = self.values.as_ref().ok_or_else(not_run)?;
        write(into, &values[port.node.ok_or_else(not_run)?])
    }

    fn read_input(&self, input: usize, into: &mut Array) -> Result<()> {
        self.program.check_input(input, into)?;
        match &self.inputs[input] {
            Some(values) => write(into, values),
            None => Err(Error::new(ErrorKind::MissingInput { name: self.program.inputs[input].name.clone() })),
        }
    }

    fn program(&self) -> &Program {
        &self.program
    }
}

fn write(into: &mut Array, values: &[f64]) -> Result<()> {
    *into = Array::from_values(into.shape(), values, into.dtype())?;
    Ok(())
}
