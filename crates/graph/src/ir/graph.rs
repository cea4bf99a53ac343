//! The arena that holds nodes: append-only and hash-consed, so a common subexpression is one node from birth and a
//! node's number is its place in a topological order.
//!
//! Graphs live in a thread-local table and a [`Tensor`](crate::Tensor) is a `Copy` handle into it, so that losses read
//! like formulas, without borrows or clones. Dropping the [`Graph`] frees its nodes; a tensor that outlives it turns
//! into an error, not a crash.

use crate::autodiff::custom::CustomRule;
use crate::autodiff::gauss_newton::Sign;
use crate::ir::infer::{Meta, infer, too_large};
use crate::ir::op::Op;
use crate::shape::is_countable;
use crate::tensor::Tensor;
use crate::{DType, Error, ErrorKind, Line, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

/// A node's number; its operands have smaller ones.
pub(crate) type NodeId = u32;

/// One operation with its operands, type, shape and the line of user code that made it.
#[derive(Clone, Debug)]
pub(crate) struct GraphNode {
    pub op: Op,
    pub inputs: Vec<NodeId>,
    pub meta: Meta,
    pub location: Line,
    /// Another node whose hash is the same.
    next_same_hash: Option<NodeId>,
}

/// The nodes of one graph.
#[derive(Default)]
pub(crate) struct GraphData {
    pub nodes: Vec<GraphNode>,
    pub input_names: Vec<String>,
    pub errors: Vec<Error>,
    pub simplify: bool,
    /// The type of floats that no operand determines: see `Graph::set_float_type`.
    pub float_type: Option<DType>,
    /// While a derivative is taken: the line of the node it is taken of.
    pub deriving: Option<Line>,
    /// The line of what is made, if a front end or a program that is put into the graph names it.
    pub named: Option<Line>,
    /// Nodes whose elements are convex functions of others, or concave ones: see `gauss_newton.rs`.
    pub convex: HashMap<NodeId, (Vec<NodeId>, Sign)>,
    /// The derivative rules of custom nodes.
    pub rules: Vec<CustomRule>,
    /// By node: the axis along which ranks are to share it out.
    pub shards: HashMap<NodeId, usize>,
    /// By computed node: the results of rewrites that removed it from an expression.
    pub bypassed: HashMap<NodeId, Vec<NodeId>>,
    /// The operands that each rewrite in progress has used.
    rewriting: Vec<Vec<NodeId>>,
    by_hash: HashMap<u64, NodeId>,
    streams: u32,
}

impl GraphData {
    pub fn meta(&self, id: NodeId) -> &Meta {
        &self.nodes[id as usize].meta
    }

    pub fn op(&self, id: NodeId) -> &Op {
        &self.nodes[id as usize].op
    }

    pub fn inputs(&self, id: NodeId) -> &[NodeId] {
        &self.nodes[id as usize].inputs
    }

    /// Checks the operands, simplifies, and returns the node, new or known.
    pub fn make(
        &mut self,
        op: Op,
        inputs: &[NodeId],
        asked: Option<Meta>,
        location: Line,
    ) -> std::result::Result<NodeId, String> {
        let operands: Vec<&Meta> = inputs.iter().map(|&i| self.meta(i)).collect();
        let meta = infer(&op, &operands, asked)?;
        Ok(self.add(op, inputs.to_vec(), meta, location))
    }

    /// As `make`, for callers inside the crate whose operands fit by construction.
    pub fn add(&mut self, op: Op, inputs: Vec<NodeId>, meta: Meta, location: Line) -> NodeId {
        if let Some(used) = self.rewriting.last_mut() {
            used.extend(&inputs);
        }
        if self.simplify {
            self.rewriting.push(vec![]);
            let simpler = self.simplified(&op, &inputs, &meta, location);
            let used = self.rewriting.pop().unwrap_or_default();
            if let Some(simpler) = simpler {
                inputs.iter().filter(|id| !used.contains(id)).for_each(|&id| self.bypass(id, simpler));
                return simpler;
            }
        }
        self.intern(op, inputs, meta, location)
    }

    /// Notes that an expression of a node was replaced by one that does not use it. A constant has no derivative to lose.
    fn bypass(&mut self, id: NodeId, simpler: NodeId) {
        let is_computed = !matches!(self.op(id), Op::Input(_) | Op::Constant(_));
        let has_derivative = self.meta(simpler).dtype.is_float() && !matches!(self.op(simpler), Op::Constant(_));
        if id != simpler && is_computed && has_derivative {
            let past = self.bypassed.entry(id).or_default();
            if !past.contains(&simpler) {
                past.push(simpler);
            }
        }
    }

    fn intern(&mut self, op: Op, mut inputs: Vec<NodeId>, meta: Meta, location: Line) -> NodeId {
        if let Op::Binary(crate::BinaryOp::Add | crate::BinaryOp::Mul) = op {
            inputs.sort_unstable();
        }
        let mut hasher = DefaultHasher::new();
        (&op, &inputs, &meta).hash(&mut hasher);
        let hash = hasher.finish();
        let head = self.by_hash.get(&hash).copied();
        let mut candidate = head;
        while let Some(id) = candidate {
            let node = &self.nodes[id as usize];
            if node.op == op && node.inputs == inputs && node.meta == meta {
                return id;
            }
            candidate = node.next_same_hash;
        }
        let id = self.nodes.len() as NodeId;
        self.nodes.push(GraphNode { op, inputs, meta, location, next_same_hash: head });
        self.by_hash.insert(hash, id);
        id
    }
}

/// Notes that an expression of a tensor was replaced by one that does not use it.
pub(crate) fn bypass(tensor: Tensor, simpler: Tensor) {
    if tensor.error_index().is_none() && simpler.error_index().is_none() {
        with_graph(tensor.graph_id(), |data| data.bypass(tensor.node_id(), simpler.node_id()));
    }
}

thread_local! {
    static GRAPHS: RefCell<Registry> = RefCell::default();
}

#[derive(Default)]
struct Registry {
    graphs: Vec<(u32, GraphData)>,
    created: u32,
}

/// Runs `visit` on a graph's nodes, or returns `None` when the graph was dropped. `visit` must not make tensors.
pub(crate) fn with_graph<R>(id: u32, visit: impl FnOnce(&mut GraphData) -> R) -> Option<R> {
    with_registry(|registry| {
        // The newest graph is nearly always the one in use.
        registry.graphs.iter_mut().rev().find(|(known, _)| *known == id).map(|(_, data)| visit(data))
    })
    .flatten()
}

/// Runs `visit` on the graphs of this thread; `None` while the thread ends and they are gone already, which a graph in
/// another thread-local variable can live to see.
fn with_registry<R>(visit: impl FnOnce(&mut Registry) -> R) -> Option<R> {
    GRAPHS.try_with(|registry| visit(&mut registry.borrow_mut())).ok()
}

/// The graph of tensors: declare inputs on it, compute with them, build a [`Program`](crate::Program) from the results.
///
/// ```
/// use bilevel_graph::{gradient, DType, Graph};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F64);
/// let loss = (x * x).sum_all();
/// let dx = gradient(loss, &[x]).unwrap()[0].unwrap();
/// assert_eq!(dx.shape(), [3]);
/// ```
pub struct Graph {
    id: u32,
    not_send: PhantomData<*const ()>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        with_registry(|registry| registry.graphs.retain(|(id, _)| *id != self.id));
    }
}

impl Graph {
    /// An empty graph that simplifies as it grows.
    pub fn new() -> Self {
        Self::with_simplification(true)
    }

    /// An empty graph that keeps every node as written (equal nodes are still one). For tests of the simplifier.
    pub fn without_simplification() -> Self {
        Self::with_simplification(false)
    }

    fn with_simplification(simplify: bool) -> Self {
        let id = with_registry(|registry| {
            registry.created += 1;
            registry.graphs.push((registry.created, GraphData { simplify, ..GraphData::default() }));
            registry.created
        });
        // No graph has the number 0: at the end of a thread, its tensors are those of a graph that was dropped.
        Graph { id: id.unwrap_or(0), not_send: PhantomData }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// A named input of a program.
    #[track_caller]
    pub fn input(&self, name: impl Into<String>, shape: impl AsRef<[usize]>, dtype: DType) -> Tensor {
        new_input(self.id, name.into(), Meta { dtype, shape: shape.as_ref().to_vec() })
    }

    /// A tensor whose elements are all `value`.
    #[track_caller]
    pub fn constant(&self, value: f64, shape: impl AsRef<[usize]>, dtype: DType) -> Tensor {
        make_constant(self.id, value, Meta { dtype, shape: shape.as_ref().to_vec() })
    }

    /// A scalar constant.
    #[track_caller]
    pub fn scalar(&self, value: f64, dtype: DType) -> Tensor {
        self.constant(value, [], dtype)
    }

    /// The index along `axis` of a tensor of this shape: 0, 1, 2, …
    #[track_caller]
    pub fn iota(&self, shape: impl AsRef<[usize]>, axis: usize, dtype: DType) -> Tensor {
        make(self.id, "iota", Op::Iota(axis), &[], Some(Meta { dtype, shape: shape.as_ref().to_vec() }))
    }

    /// The number of the loop step a program is in: an i32 scalar every executor supplies.
    #[track_caller]
    pub fn step(&self) -> Tensor {
        let known = with_graph(self.id, |data| {
            data.nodes.iter().position(
                |node| matches!(node.op, Op::Input(i) if data.input_names[i as usize] == crate::ir::program::STEP),
            )
        });
        match known.flatten() {
            Some(id) => Tensor::new(self.id, id as NodeId),
            None => self.input(crate::ir::program::STEP, [], DType::I32),
        }
    }

    /// Sets the type of floats computed from integers alone, such as the mean of an integer comparison: f32 unless it is set.
    /// Set it before such a mean is made.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// let g = Graph::new();
    /// let (a, b) = (g.input("a", [4], DType::I32), g.input("b", [4], DType::I32));
    /// assert_eq!(a.equal(b).mean_all().dtype(), DType::F32);
    /// g.set_float_type(DType::F64)?;
    /// assert_eq!(a.equal(b).mean_all().dtype(), DType::F64);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    #[track_caller]
    pub fn set_float_type(&self, dtype: DType) -> Result<()> {
        if !dtype.is_float() {
            let reason = format!("{dtype} is not a float type; use f32 or f64");
            let kind = ErrorKind::Operation { operation: "set_float_type".into(), operands: vec![], reason };
            return Err(Error::new(kind).at(Line::caller()));
        }
        with_graph(self.id, |data| data.float_type = Some(dtype));
        Ok(())
    }

    /// Names the line of user code of what is made from now on, in place of the lines of Rust: for front ends of other languages.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph};
    /// let g = Graph::new();
    /// g.set_line(Some("model.py:37 (attention)"));
    /// let error = g.input("x", [3], DType::F64).reshape([2]).check().unwrap_err();
    /// assert!(error.to_string().contains("model.py:37 (attention)"), "{error}");
    /// g.set_line(None);
    /// ```
    pub fn set_line(&self, text: Option<&str>) {
        with_graph(self.id, |data| data.named = text.map(Line::named));
    }

    /// A number for a random stream no other draw of this graph has.
    pub fn fresh_stream(&self) -> u32 {
        with_graph(self.id, |data| {
            data.streams += 1;
            data.streams
        })
        .unwrap_or_default()
    }

    /// Number of nodes made so far, dead ones included.
    pub fn len(&self) -> usize {
        with_graph(self.id, |data| data.nodes.len()).unwrap_or_default()
    }

    /// True before the first node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Every element `value`, or an error if the type has no such number.
#[track_caller]
pub(crate) fn make_constant(graph: u32, value: f64, meta: Meta) -> Tensor {
    match not_in_type(value, meta.dtype) {
        Some(reason) => broken(graph, "constant", vec![], reason),
        None => make(graph, "constant", Op::Constant(constant_bits(value, meta.dtype)), &[], Some(meta)),
    }
}

/// The reason why a number cannot be combined with elements of this type. Floats are rounded; an integer would be
/// another number.
pub(crate) fn not_in_type(value: f64, dtype: DType) -> Option<String> {
    let fits = dtype.is_float() || value == value as i32 as f64;
    (!fits).then(|| format!("{value} is not a 32-bit integer; convert the integers to floats first"))
}

/// The constant's value as the element type holds it, as the bits of an `f64`. −0 is kept.
pub(crate) fn constant_bits(value: f64, dtype: DType) -> u64 {
    match dtype {
        DType::F32 => (value as f32 as f64).to_bits(),
        DType::F64 => value.to_bits(),
        DType::I32 => (value as i32 as f64).to_bits(),
    }
}

/// The line of what is made now: the named one, or the caller's.
#[track_caller]
fn here(graph: u32) -> Line {
    let caller = Line::caller();
    with_graph(graph, |data| data.named).flatten().unwrap_or(caller)
}

#[track_caller]
pub(crate) fn new_input(graph: u32, name: String, meta: Meta) -> Tensor {
    let location = here(graph);
    if !is_countable(&meta.shape) {
        return broken(graph, "input", vec![], too_large(&meta.shape));
    }
    let id = with_graph(graph, |data| {
        data.input_names.push(name);
        let number = data.input_names.len() as u32 - 1;
        data.add(Op::Input(number), vec![], meta, location)
    });
    id.map_or(Tensor::foreign(graph), |id| Tensor::new(graph, id))
}

/// Makes a node, or an error tensor that remembers why it could not be made.
#[track_caller]
pub(crate) fn make(graph: u32, operation: &str, op: Op, inputs: &[Tensor], asked: Option<Meta>) -> Tensor {
    let location = here(graph);
    if let Some(broken) = inputs.iter().find(|t| t.error_index().is_some()) {
        return *broken;
    }
    let made = with_graph(graph, |data| {
        if inputs.iter().any(|t| t.graph_id() != graph) {
            let kind = ErrorKind::ForeignTensor { operation: operation.to_string() };
            return Err(data.record(Error::new(kind).at(location)));
        }
        let ids: Vec<NodeId> = inputs.iter().map(|t| t.node_id()).collect();
        let location = data.deriving.unwrap_or(location);
        data.make(op, &ids, asked, location).map_err(|reason| {
            let operands = ids.iter().map(|&i| (data.meta(i).dtype, data.meta(i).shape.clone())).collect();
            let kind = ErrorKind::Operation { operation: operation.to_string(), operands, reason };
            data.record(Error::new(kind).at(location))
        })
    });
    match made {
        Some(Ok(id)) => Tensor::new(graph, id),
        Some(Err(index)) => Tensor::broken(graph, index),
        None => Tensor::foreign(graph),
    }
}

/// An error tensor for a check made before any node.
#[track_caller]
pub(crate) fn refuse(operation: &str, inputs: &[Tensor], reason: String) -> Tensor {
    if let Some(broken) = inputs.iter().find(|t| t.error_index().is_some()) {
        return *broken;
    }
    let operands = inputs.iter().map(|t| (t.dtype(), t.shape())).collect();
    broken(inputs[0].graph_id(), operation, operands, reason)
}

/// A tensor that carries an error with the caller's line.
#[track_caller]
fn broken(graph: u32, operation: &str, operands: Vec<(DType, Vec<usize>)>, reason: String) -> Tensor {
    let location = here(graph);
    let kind = ErrorKind::Operation { operation: operation.to_string(), operands, reason };
    let index = with_graph(graph, |data| data.record(Error::new(kind).at(location)));
    index.map_or(Tensor::foreign(graph), |index| Tensor::broken(graph, index))
}

/// A tensor that carries this error.
pub(crate) fn failed(graph: u32, error: Error) -> Tensor {
    with_graph(graph, |data| data.record(error)).map_or(Tensor::foreign(graph), |index| Tensor::broken(graph, index))
}

impl GraphData {
    fn record(&mut self, error: Error) -> u32 {
        self.errors.push(error);
        self.errors.len() as u32 - 1
    }
}

/// The graph all these tensors belong to; the first error one of them carries, or one for a mixture of graphs.
pub(crate) fn common_graph(operation: &str, tensors: &[Tensor]) -> Result<Option<u32>> {
    for tensor in tensors {
        tensor.check()?;
        if tensor.graph_id() != tensors[0].graph_id() {
            return Err(Error::new(ErrorKind::ForeignTensor { operation: operation.to_string() }));
        }
    }
    Ok(tensors.first().map(|t| t.graph_id()))
}
