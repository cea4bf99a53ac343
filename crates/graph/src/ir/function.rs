//! A traced function as plain data: a program that can be put into any graph, any number of times, and derived there.
//!
//! A [`Program`] is for executors, so it lacks the derivative rules of its custom nodes. A [`Function`] keeps them as
//! functions, so that it has the same derivatives of every order in another graph. It also keeps declared convexity,
//! for Gauss-Newton products.

use crate::autodiff::custom::CustomRule;
use crate::autodiff::gauss_newton::{self, Sign};
use crate::ir::graph::{Graph, GraphData, make, with_graph};
use crate::ir::infer::Meta;
use crate::ir::op::Op;
use crate::ir::program::{Port, Program, ProgramBuilder};
use crate::tensor::Tensor;
use crate::{Error, ErrorKind, Line, Result};
use std::sync::Arc;

/// The input of a rule that holds the cotangent of the value.
const COTANGENT: &str = "cotangent";

/// A traced function: operations with named inputs and outputs, and the derivative rules of the custom ones.
///
/// It belongs to no graph and no thread, so it can be traced once and be used in every program of a method.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program, gradient};
/// let traced = {
///     let g = Graph::new();
///     let x = g.input("x", [3], DType::F64);
///     Program::builder(&g).output("loss", x.square().sum_all()).function()?
/// };
/// let g = Graph::new();
/// let y = g.input("y", [3], DType::F64);
/// let loss = traced.inline(&g, &[y.sin()])?[0];
/// let by_hand = y.sin().square().sum_all();
/// assert!(gradient(loss, &[y])?[0].unwrap().is_same_node(gradient(by_hand, &[y])?[0].unwrap()));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "crate::ir::serial::FunctionParts")
)]
pub struct Function {
    /// Without carries. `Op::Custom` is the rule of its number below.
    pub(crate) program: Program,
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::ir::serial::shared"))]
    pub(crate) rules: Vec<Arc<Function>>,
    pub(crate) convex: Vec<Convex>,
}

/// A node whose elements are convex functions of other nodes, or concave ones; see [`nn::convex_in`](crate::nn::convex_in).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub(crate) struct Convex {
    node: usize,
    of: Vec<usize>,
    sign: Sign,
}

/// The marks of a graph in a program that has some of its nodes, by their numbers there.
fn marks(data: &GraphData, number: &[usize]) -> Vec<Convex> {
    let place = |id: &u32| number.get(*id as usize).copied().filter(|&place| place != usize::MAX);
    let one = |(id, (of, sign)): (&u32, &(Vec<u32>, Sign))| {
        // A value that depends on none of them is a direct function of the variables: without a mark it keeps its whole
        // Hessian.
        let of: Vec<usize> = of.iter().filter_map(place).collect();
        (!of.is_empty()).then_some(Convex { node: place(id)?, of, sign: *sign })
    };
    let mut found: Vec<Convex> = data.convex.iter().filter_map(one).collect();
    found.sort_by_key(|mark| mark.node);
    found
}

impl Program {
    /// Puts the operations of one step into a graph, on these tensors in place of the program's inputs, and returns its outputs. Nothing is
    /// carried: the outputs and their derivatives are those of step 0.
    ///
    /// Random draws keep their streams; see [`inline_with`](Self::inline_with).
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// let g = Graph::new();
    /// let x = g.input("x", [2], DType::F64);
    /// let program = Program::builder(&g).output("y", x.exp()).build()?;
    /// let y = program.inline(&g, &[x * 2.0])?[0];
    /// assert!(y.is_same_node((x * 2.0).exp()));
    /// let error = program.inline(&g, &[x.sum_all()]).unwrap_err().to_string();
    /// assert!(error.contains("'x' is declared f64[2] but was given f64[]"), "{error}");
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn inline(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.inline_with(graph, inputs, &mut |stream| stream)
    }

    /// As [`inline`](Self::inline), with another stream for the draws of each: two calls with different streams are independent.
    #[track_caller]
    pub fn inline_with(
        &self,
        graph: &Graph,
        inputs: &[Tensor],
        stream: &mut dyn FnMut(u32) -> u32,
    ) -> Result<Vec<Tensor>> {
        self.validate()?;
        placed(self, &[], &[], graph.id(), inputs, stream)
    }
}

impl Function {
    /// The inputs, in the order in which [`inline`](Self::inline) takes their values.
    pub fn inputs(&self) -> &[Port] {
        &self.program.inputs
    }

    /// The outputs, in the order in which [`inline`](Self::inline) returns them.
    pub fn outputs(&self) -> &[Port] {
        &self.program.outputs
    }

    /// The number of operations, those of derivative rules not among them.
    pub fn len(&self) -> usize {
        self.program.nodes.len()
    }

    /// True without a single operation.
    pub fn is_empty(&self) -> bool {
        self.program.nodes.is_empty()
    }

    /// Returns true if anything is drawn at random.
    pub fn is_random(&self) -> bool {
        self.program.nodes.iter().any(|node| matches!(node.op, Op::Random(..)))
    }

    /// Puts the operations into a graph, on these tensors in place of the inputs, and returns the outputs.
    ///
    /// Random draws keep their streams; see [`inline_with`](Self::inline_with).
    #[track_caller]
    pub fn inline(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.inline_with(graph, inputs, &mut |stream| stream)
    }

    /// As [`inline`](Self::inline), with another stream for the draws of each: two calls with different streams are independent.
    #[track_caller]
    pub fn inline_with(
        &self,
        graph: &Graph,
        inputs: &[Tensor],
        stream: &mut dyn FnMut(u32) -> u32,
    ) -> Result<Vec<Tensor>> {
        self.placed(graph.id(), inputs, stream)
    }

    #[track_caller]
    fn placed(&self, graph: u32, inputs: &[Tensor], stream: &mut dyn FnMut(u32) -> u32) -> Result<Vec<Tensor>> {
        placed(&self.program, &self.rules, &self.convex, graph, inputs, stream)
    }

    /// This function as the derivative rule of a custom node: the cotangents of the operands `x`.
    pub(crate) fn cotangents(&self, x: &[Tensor], g: Tensor) -> Vec<Option<Tensor>> {
        let given = |port: &Port| match port.name.parse::<usize>() {
            Ok(operand) => x.get(operand).copied().unwrap_or(g),
            Err(_) => g,
        };
        let inputs: Vec<Tensor> = self.inputs().iter().map(given).collect();
        let mut cotangents = vec![None; x.len()];
        match self.placed(g.graph_id(), &inputs, &mut |stream| stream) {
            Ok(found) => {
                for (port, found) in self.outputs().iter().zip(found) {
                    let operand = port.name.parse::<usize>().ok();
                    if let Some(slot) = operand.and_then(|operand| cotangents.get_mut(operand)) {
                        *slot = Some(found);
                    }
                }
            }
            Err(error) => {
                let broken = crate::ir::graph::failed(g.graph_id(), error);
                cotangents.fill(Some(broken));
            }
        }
        cotangents
    }

    /// An error that names the first part that does not fit: of the program, or of a rule and the node that uses it.
    pub(crate) fn validate(&self) -> Result<()> {
        self.program.validate()?;
        if !self.program.carries.is_empty() {
            return invalid("a function carries nothing from one step to the next".into());
        }
        self.rules.iter().try_for_each(|rule| rule.validate())?;
        let nodes = self.program.nodes.len();
        if let Some(mark) =
            self.convex.iter().find(|mark| mark.of.iter().chain([&mark.node]).any(|&node| node >= nodes))
        {
            return invalid(format!("a mark of convexity names a node that is not among the {nodes}: {mark:?}"));
        }
        for node in &self.program.nodes {
            if let Op::Custom(number) = node.op {
                let Some(rule) = self.rules.get(number as usize) else {
                    return invalid(format!("there is no derivative rule {number}"));
                };
                let metas: Vec<&Meta> = node.inputs.iter().map(|&input| &self.program.nodes[input].meta).collect();
                check_rule(rule, &metas)?;
            }
        }
        Ok(())
    }
}

/// Checks that a rule is one for a value and operands of these types and shapes.
fn check_rule(rule: &Function, metas: &[&Meta]) -> Result<()> {
    let operand = |port: &Port| port.name.parse::<usize>().ok().and_then(|number| metas.get(number.checked_add(1)?));
    for port in rule.inputs() {
        let wanted = if port.name == COTANGENT { metas.first() } else { operand(port) };
        if wanted != Some(&&port.meta) {
            return invalid(format!("the input '{}' of a derivative rule fits no operand of its value", port.name));
        }
    }
    for port in rule.outputs() {
        if operand(port) != Some(&&port.meta) {
            return invalid(format!("the output '{}' of a derivative rule fits no operand of its value", port.name));
        }
    }
    Ok(())
}

fn invalid<T>(reason: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidProgram { reason }))
}

/// While it lives, nodes may be made in the name of others' lines; it has the line that was named before.
struct Lines(u32, Option<Line>);

impl Lines {
    fn of(graph: u32) -> Self {
        Lines(graph, with_graph(graph, |data| data.named).flatten())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        with_graph(self.0, |data| data.named = self.1);
    }
}

/// The nodes of a valid program on a graph, one after the other, and its outputs.
#[track_caller]
fn placed(
    program: &Program,
    rules: &[Arc<Function>],
    convex: &[Convex],
    graph: u32,
    inputs: &[Tensor],
    stream: &mut dyn FnMut(u32) -> u32,
) -> Result<Vec<Tensor>> {
    let mut made: Vec<Option<Tensor>> = vec![None; program.nodes.len()];
    if inputs.len() != program.inputs.len() {
        let reason = format!("{} inputs were given in place of {}", inputs.len(), program.inputs.len());
        let operands = inputs.iter().map(|t| (t.dtype(), t.shape())).collect();
        return Err(Error::new(ErrorKind::Operation { operation: "inline".into(), operands, reason }));
    }
    for (port, tensor) in program.inputs.iter().zip(inputs) {
        check_given(port, tensor.check()?)?;
        if let Some(node) = port.node {
            made[node] = Some(*tensor);
        }
    }
    let lines = Lines::of(graph);
    for (number, node) in program.nodes.iter().enumerate() {
        if made[number].is_some() {
            continue;
        }
        with_graph(graph, |data| data.named = lines.1.or(node.location.is_named().then_some(node.location)));
        let operands: Vec<Tensor> = node.inputs.iter().filter_map(|&operand| made[operand]).collect();
        let tensor = match &node.op {
            Op::Custom(rule) => {
                let Some(rule) = rules.get(*rule as usize) else {
                    return invalid(format!("there is no derivative rule {rule}"));
                };
                CustomRule::from_function(rule.clone()).of(&operands[1..], |_| operands[0])
            }
            Op::Random(kind, own) => {
                make(graph, "random", Op::Random(*kind, stream(*own)), &operands, Some(node.meta.clone()))
            }
            op => make(graph, &crate::ir::dump::describe(op), op.clone(), &operands, Some(node.meta.clone())),
        };
        made[number] = Some(tensor.check()?);
    }
    for Convex { node, of, sign } in convex {
        let of: Vec<Tensor> = of.iter().filter_map(|&node| made[node]).collect();
        if let Some(value) = made[*node] {
            gauss_newton::mark(value, &of, *sign)?;
        }
    }
    Ok(program.outputs.iter().filter_map(|port| made[port.node?]).collect())
}

fn check_given(port: &Port, tensor: Tensor) -> Result<()> {
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    if (dtype, &shape) == (port.meta.dtype, &port.meta.shape) {
        return Ok(());
    }
    let expected = (port.meta.dtype, port.meta.shape.clone());
    Err(Error::new(ErrorKind::WrongValue { name: port.name.clone(), expected, found: (dtype, shape) }))
}

impl ProgramBuilder<'_> {
    /// The outputs as a function of the inputs, with the rules of custom nodes. These must have been given as data
    /// ([`CustomRule::from_function`]), for a closure belongs to its graph; and nothing can be carried.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program, custom};
    /// let g = Graph::new();
    /// let x = g.input("x", [3], DType::F64);
    /// let y = custom(&[x], |x| x[0].floor(), |_, _, g| vec![Some(g)]);
    /// let error = Program::builder(&g).output("y", y).function().unwrap_err().to_string();
    /// assert!(error.contains("CustomRule::from_function"), "{error}");
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn function(self) -> Result<Function> {
        let (graph, carries) = self.of_graph();
        if carries {
            return invalid("a function carries nothing from one step to the next; leave .carry(…) out".into());
        }
        let (mut program, number) = self.traced(true)?;
        let convex = with_graph(graph, |data| marks(data, &number)).unwrap_or_default();
        let (mut rules, mut places) = (vec![], vec![]);
        for node in &mut program.nodes {
            let Op::Custom(number) = &mut node.op else { continue };
            let place = match places.iter().position(|known| known == number) {
                Some(place) => place,
                None => {
                    let data = with_graph(graph, |data| data.rules.get(*number as usize)?.data.clone()).flatten();
                    let Some(data) = data else {
                        let reason = "a rule that is a closure belongs to its graph; use CustomRule::from_function";
                        let kind = ErrorKind::Operation {
                            operation: "custom".into(),
                            operands: vec![],
                            reason: reason.into(),
                        };
                        return Err(Error::new(kind).at(node.location));
                    };
                    rules.push(data);
                    places.push(*number);
                    places.len() - 1
                }
            };
            *number = place as u32;
        }
        let function = Function { program, rules, convex };
        function.validate()?;
        Ok(function)
    }
}
