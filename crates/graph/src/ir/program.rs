//! A program: the live part of a graph with named inputs and outputs and loop-carried inputs, as plain data that any
//! executor can plan and run.

use crate::ir::graph::{Graph, GraphData, with_graph};
use crate::ir::infer::Meta;
use crate::ir::op::Op;
use crate::tensor::Tensor;
use crate::{Array, DType, Error, ErrorKind, Line, Result};
use std::ops::Range;

/// Name of the input every executor sets itself: the number of the loop step.
pub const STEP: &str = "step";

/// One operation of a program; operands come before it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProgramNode {
    /// The operation.
    pub op: Op,
    /// Numbers of its operands in [`Program::nodes`].
    pub inputs: Vec<usize>,
    /// Type and shape of its result.
    pub meta: Meta,
    /// The line of user code that made it.
    #[cfg_attr(feature = "serde", serde(skip, default = "crate::ir::serial::read_here"))]
    pub location: Line,
}

/// A named value that goes in or comes out.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its node. A builder always gives one; a program with a port that has none is refused when it is compiled.
    pub node: Option<usize>,
    /// Its type and shape.
    pub meta: Meta,
}

/// An input that after each step takes the value of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Carry {
    /// Number in [`Program::inputs`].
    pub input: usize,
    /// The node whose value it takes.
    pub next: usize,
}

/// A hint for a program that several ranks compute: share out this value along an axis ([`Tensor::over_ranks`]). It changes no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Shard {
    /// The node.
    pub node: usize,
    /// An axis of it.
    pub axis: usize,
}

/// Operations in an executable order, with inputs, outputs and carried values.
///
/// Running T steps evaluates all nodes T times; after each step every carried input takes its new value. Outputs are
/// those of the last step.
///
/// ```
/// use bilevel_graph::{gradient, Array, DType, Executor, Graph, Program, Reference};
/// let g = Graph::new();
/// let x = g.input("x", [], DType::F64);
/// let loss = (x - 3.0).square();
/// let dx = gradient(loss, &[x]).unwrap()[0].unwrap();
/// let program = Program::builder(&g).output("loss", loss).carry(x, x - dx * 0.25).build().unwrap();
///
/// let mut run = Reference.compile(&program).unwrap();
/// run.set(program.input("x").unwrap(), &Array::scalar(1.0, DType::F64)).unwrap();
/// run.run(0..40).unwrap();
/// let x = run.input(program.input("x").unwrap()).unwrap();
/// assert!((x.item().unwrap() - 3.0).abs() < 1e-9);
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "crate::ir::serial::ProgramParts")
)]
pub struct Program {
    /// The operations; an operand's number is smaller than its user's.
    pub nodes: Vec<ProgramNode>,
    /// The inputs.
    pub inputs: Vec<Port>,
    /// The outputs.
    pub outputs: Vec<Port>,
    /// The values that a loop carries from one step to the next.
    pub carries: Vec<Carry>,
    /// The number of the input that holds the loop step, if the program uses it.
    pub step: Option<usize>,
    /// Values to share out if several ranks compute the program.
    pub shards: Vec<Shard>,
}

impl Program {
    /// Starts a program on this graph's tensors.
    pub fn builder(graph: &Graph) -> ProgramBuilder<'_> {
        ProgramBuilder { graph, outputs: vec![], carries: vec![], keep: vec![] }
    }

    /// The number of the input of this name.
    pub fn input(&self, name: &str) -> Result<usize> {
        find(&self.inputs, name)
    }

    /// The number of the output of this name.
    pub fn output(&self, name: &str) -> Result<usize> {
        find(&self.outputs, name)
    }

    /// Checks that a value has the type and shape of input `number`.
    pub fn check_input(&self, number: usize, value: &Array) -> Result<()> {
        let port = self.inputs.get(number).ok_or_else(|| unknown(&self.inputs, &format!("input {number}")))?;
        check_value(port, value)
    }

    /// Checks that every step number can be given to a program that reads it: the step input is an i32.
    pub fn check_steps(&self, steps: &Range<u32>) -> Result<()> {
        let last = steps.end.saturating_sub(1);
        if self.step.is_some() && !steps.is_empty() && i32::try_from(last).is_err() {
            return Err(Error::new(ErrorKind::StepTooLarge { step: last }));
        }
        Ok(())
    }

    /// Checks that a value has the type and shape of output `number`.
    pub fn check_output(&self, number: usize, value: &Array) -> Result<()> {
        let port = self.outputs.get(number).ok_or_else(|| unknown(&self.outputs, &format!("output {number}")))?;
        check_value(port, value)
    }
}

fn check_value(port: &Port, value: &Array) -> Result<()> {
    // Element by element: to compare slices that are empty, as those of scalars are, through memory is slow.
    let same_shape = value.shape().iter().eq(&port.meta.shape);
    if value.dtype() != port.meta.dtype || !same_shape {
        return Err(Error::new(ErrorKind::WrongValue {
            name: port.name.clone(),
            expected: (port.meta.dtype, port.meta.shape.clone()),
            found: (value.dtype(), value.shape().to_vec()),
        }));
    }
    Ok(())
}

pub(crate) fn unknown(ports: &[Port], name: &str) -> Error {
    let known = ports.iter().map(|p| p.name.clone()).collect();
    Error::new(ErrorKind::UnknownName { name: name.to_string(), known })
}

fn find(ports: &[Port], name: &str) -> Result<usize> {
    ports.iter().position(|p| p.name == name).ok_or_else(|| unknown(ports, name))
}

/// Collects outputs and carries; see [`Program`].
pub struct ProgramBuilder<'g> {
    graph: &'g Graph,
    outputs: Vec<(String, Tensor)>,
    carries: Vec<(Tensor, Tensor)>,
    keep: Vec<Tensor>,
}

impl ProgramBuilder<'_> {
    /// Adds a named output.
    pub fn output(mut self, name: impl Into<String>, value: Tensor) -> Self {
        self.outputs.push((name.into(), value));
        self
    }

    /// Adds an output for each of these, named by the prefix and its number among them.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// let g = Graph::new();
    /// let x = g.input("x", [2], DType::F64);
    /// let program = Program::builder(&g).outputs("power ", [x, x * x]).build()?;
    /// assert_eq!(program.output("power 1")?, 1);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn outputs(mut self, prefix: &str, values: impl IntoIterator<Item = Tensor>) -> Self {
        let values = values.into_iter().enumerate();
        self.outputs.extend(values.map(|(number, value)| (format!("{prefix}{number}"), value)));
        self
    }

    /// After each step, `input` takes the value of `next`.
    pub fn carry(mut self, input: Tensor, next: Tensor) -> Self {
        self.carries.push((input, next));
        self
    }

    /// Keeps an input in the program even if nothing depends on it, so that it can be set all the same.
    pub fn keep_input(mut self, input: Tensor) -> Self {
        self.keep.push(input);
        self
    }

    /// The program, without dead operations, or the first error one of its tensors carries.
    pub fn build(self) -> Result<Program> {
        Ok(self.traced(false)?.0)
    }

    /// The program, with or without its custom nodes, after a check of its outputs and carries. Also the number in it
    /// of each node of the graph, `usize::MAX` for missing ones.
    pub(crate) fn traced(&self, custom: bool) -> Result<(Program, Vec<usize>)> {
        let values = self.outputs.iter().map(|(_, t)| *t);
        let values = values.chain(self.carries.iter().flat_map(|&(a, b)| [a, b])).chain(self.keep.iter().copied());
        for tensor in values {
            tensor.check()?;
            if tensor.graph_id() != self.graph.id() {
                return Err(Error::new(ErrorKind::ForeignTensor { operation: "program".into() }));
            }
        }
        for (i, (name, _)) in self.outputs.iter().enumerate() {
            if self.outputs[..i].iter().any(|(other, _)| other == name) {
                return Err(Error::new(ErrorKind::DuplicateName { name: name.clone() }));
            }
        }
        with_graph(self.graph.id(), |data| self.numbered(data, custom))
            .unwrap_or_else(|| Err(Error::new(ErrorKind::ForeignTensor { operation: "program".into() })))
    }

    /// The graph's number, and whether anything is carried.
    pub(crate) fn of_graph(&self) -> (u32, bool) {
        (self.graph.id(), !self.carries.is_empty())
    }

    /// The live nodes of the graph, renumbered, as a program.
    fn numbered(&self, data: &GraphData, custom: bool) -> Result<(Program, Vec<usize>)> {
        let live = self.live(data, custom);
        let mut number = vec![usize::MAX; data.nodes.len()];
        let (mut nodes, mut inputs) = (vec![], Vec::<Port>::new());
        for (id, node) in data.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
            if let (Op::Custom(_), [value, ..], false) = (&node.op, &node.inputs[..], custom) {
                number[id] = number[*value as usize];
                continue;
            }
            number[id] = nodes.len();
            if let Op::Input(name) = node.op {
                let name = data.input_names[name as usize].clone();
                if inputs.iter().any(|p| p.name == name) {
                    return Err(Error::new(ErrorKind::DuplicateName { name }).at(node.location));
                }
                inputs.push(Port { name, node: Some(nodes.len()), meta: node.meta.clone() });
            }
            nodes.push(ProgramNode {
                op: node.op.clone(),
                inputs: node.inputs.iter().map(|&i| number[i as usize]).collect(),
                meta: node.meta.clone(),
                location: node.location,
            });
        }
        let of = |tensor: &Tensor| number[tensor.node_id() as usize];
        let output = |(name, tensor): &(String, Tensor)| {
            let node = of(tensor);
            Port { name: name.clone(), node: Some(node), meta: nodes[node].meta.clone() }
        };
        let outputs = self.outputs.iter().map(output).collect();
        let mut carries: Vec<Carry> = vec![];
        for (input, next) in &self.carries {
            let carry = carry(&nodes, &inputs, &carries, [of(input), of(next)])?;
            carries.push(carry);
        }
        let step = step_input(&nodes, &inputs)?;
        let shards = data.shards.iter().filter(|(id, _)| live[**id as usize]);
        let mut shards: Vec<Shard> = shards.map(|(&id, &axis)| Shard { node: number[id as usize], axis }).collect();
        shards.sort_unstable_by_key(|shard| shard.node);
        Ok((Program { nodes, inputs, outputs, carries, step, shards }, number))
    }

    /// By node of the graph: something in the program depends on it.
    fn live(&self, data: &GraphData, custom: bool) -> Vec<bool> {
        let mut live = vec![false; data.nodes.len()];
        let carried = self.carries.iter().flat_map(|(input, next)| [input, next]);
        let named = self.outputs.iter().map(|(_, tensor)| tensor).chain(carried).chain(&self.keep);
        named.for_each(|tensor| live[tensor.node_id() as usize] = true);
        for id in (0..live.len()).rev().filter(|&id| live[id]).collect::<Vec<_>>() {
            mark(&data.nodes, id, &mut live, custom);
        }
        live
    }
}

/// The carry of an input node to the node of its next value, or the reason why there is none.
fn carry(nodes: &[ProgramNode], inputs: &[Port], carries: &[Carry], [node, next]: [usize; 2]) -> Result<Carry> {
    let refuse = |reason: &str| {
        let operands = [node, next].map(|n| (nodes[n].meta.dtype, nodes[n].meta.shape.clone())).to_vec();
        Err(Error::new(ErrorKind::Operation { operation: "carry".into(), operands, reason: reason.into() }))
    };
    let Some(input) = inputs.iter().position(|p| p.node == Some(node)) else {
        return refuse("only a program input can be carried");
    };
    if nodes[node].meta != nodes[next].meta {
        return refuse("the next value must have the input's shape and type");
    }
    if inputs[input].name == STEP || carries.iter().any(|c| c.input == input) {
        return refuse("the input is carried already");
    }
    Ok(Carry { input, next })
}

/// The input that holds the step number, if there is one.
fn step_input(nodes: &[ProgramNode], inputs: &[Port]) -> Result<Option<usize>> {
    let step = inputs.iter().position(|p| p.name == STEP);
    if let Some(Port { meta, node: Some(node), .. }) = step.map(|number| &inputs[number])
        && (meta.dtype != DType::I32 || !meta.shape.is_empty())
    {
        let operands = vec![(meta.dtype, meta.shape.clone())];
        let reason = "an input of this name is the number of the loop step, an i32 scalar; use another name for yours";
        let kind = ErrorKind::Operation { operation: STEP.into(), operands, reason: reason.into() };
        return Err(Error::new(kind).at(nodes[*node].location));
    }
    Ok(step)
}

/// Marks the operands of a live node; visited in falling order, this reaches everything.
fn mark(nodes: &[crate::ir::graph::GraphNode], id: usize, live: &mut [bool], custom: bool) {
    let mut stack = vec![id];
    while let Some(id) = stack.pop() {
        // A program keeps only the value of a custom node.
        let node = &nodes[id];
        let only_value = matches!(node.op, Op::Custom(_)) && !custom;
        let inputs = if only_value { &node.inputs[..1] } else { &node.inputs[..] };
        for &input in inputs {
            if !std::mem::replace(&mut live[input as usize], true) {
                stack.push(input as usize);
            }
        }
    }
}
