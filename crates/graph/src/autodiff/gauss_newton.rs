//! Gauss-Newton products: the curvature of a loss without that of the model beneath it.
//!
//!   loss = F(z(θ), θ),   G = ⎡J⎤ᵀ · ∂²F/∂(z, θ)² · ⎡J⎤,   J = ∂z/∂θ
//!                            ⎣I⎦                     ⎣I⎦
//!
//! with z the outputs of the model. It is the Hessian less Σ ∂F/∂zᵢ·∂²zᵢ/∂θ², and if F is convex it is positive
//! semidefinite for every model.
//!
//! The outputs are found by walking back from the loss through additions, moves and scalings: the operands of the first
//! convex function are the outputs of the model. Squares, exponentials, absolute values, rectifiers and negative
//! logarithms are known to be convex, the cross entropies of [`nn`](crate::nn) mark themselves, and
//! [`nn::convex_in`](crate::nn::convex_in) marks all others. The walk also tracks signs, and so determines whether G
//! is positive semidefinite by construction.

use crate::Result;
use crate::autodiff::transform::{Derivatives, jvp, pulled_back, scalar_loss, vjp};
use crate::autodiff::vjp_rules::differentiable;
use crate::ir::graph::{GraphData, NodeId, common_graph, with_graph};
use crate::ir::op::{BinaryOp, Op, RandomKind, ReduceOp, UnaryOp};
use crate::tensor::Tensor;
use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};

/// The sign of a factor, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Sign {
    Positive,
    Negative,
    Unknown,
}

impl Sign {
    fn times(self, other: Sign) -> Sign {
        match (self, other) {
            (Sign::Unknown, _) | (_, Sign::Unknown) => Sign::Unknown,
            (a, b) if a == b => Sign::Positive,
            _ => Sign::Negative,
        }
    }
}

/// Gauss-Newton products of a loss by some tensors.
///
/// ```
/// use bilevel_graph::{DType, GaussNewton, Graph, nn};
/// let g = Graph::new();
/// let (x, y) = (g.input("x", [8, 4], DType::F64), g.input("y", [8, 3], DType::F64));
/// let (w, v) = (g.input("w", [4, 3], DType::F64), g.input("v", [4, 3], DType::F64));
/// // Squared errors of a network, and a penalty: both are convex functions of what goes into the square.
/// let loss = nn::mse(x.matmul(w).tanh(), y) + w.square().sum_all() * 0.1;
/// let product = GaussNewton::new(loss, &[w])?;
/// assert!(product.is_definite());
/// assert_eq!(product.times(&[v])?[0].unwrap().shape(), [4, 3]);
/// // A loss of the wrong sign is not convex.
/// assert!(!GaussNewton::new(-loss, &[w])?.is_definite());
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GaussNewton {
    loss: Tensor,
    wrt: Vec<Tensor>,
    outputs: Vec<Tensor>,
    definite: bool,
}

impl GaussNewton {
    /// Finds the outputs of the model in a loss. A part of the loss in which none is found keeps its whole Hessian.
    pub fn new(loss: Tensor, wrt: &[Tensor]) -> Result<Self> {
        let all = [&[loss], wrt].concat();
        let graph = common_graph("gauss_newton", &all)?.unwrap_or(loss.graph_id());
        let found = with_graph(graph, |data| {
            let last = loss.node_id() as usize;
            let mut active = vec![false; last + 1];
            let variables: HashSet<NodeId> = wrt.iter().map(|t| t.node_id()).collect();
            for id in 0..=last {
                let node = &data.nodes[id];
                let reached = differentiable(&node.op, &node.inputs).iter().any(|&i| active[i as usize]);
                active[id] = variables.contains(&(id as NodeId)) || (reached && node.meta.dtype.is_float());
            }
            let mut walk = Walk::new(data, active, variables);
            walk.from(loss.node_id(), Sign::Positive);
            if walk.definite || walk.outputs.is_empty() {
                return (walk.outputs, walk.definite);
            }
            let Walk { active, variables, outputs: ends, .. } = walk;
            let mut again = Walk { ends: ends.clone(), ..Walk::new(data, active, variables) };
            again.from(loss.node_id(), Sign::Positive);
            if again.definite { (again.outputs, true) } else { (ends, false) }
        });
        let (outputs, definite) = found.unwrap_or_default();
        let outputs = outputs.into_iter().map(|id| Tensor::new(graph, id)).collect();
        Ok(GaussNewton { loss, wrt: wrt.to_vec(), outputs, definite })
    }

    /// Returns true if the matrix is positive semidefinite by construction: the loss is a sum of convex functions of
    /// the outputs with factors that cannot be negative.
    pub fn is_definite(&self) -> bool {
        self.definite
    }

    /// The outputs that were found, the variables themselves not among them.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// G·v. It costs a forward and a reverse product through the model, and twice the part between outputs and loss.
    pub fn times(&self, v: &[Tensor]) -> Result<Derivatives> {
        let (outputs, wrt) = (&self.outputs, &self.wrt);
        let joint = [&outputs[..], wrt].concat();
        let moved = jvp(outputs, wrt, v)?;
        let along: Vec<Option<Tensor>> = moved.into_iter().chain(v.iter().copied().map(Some)).collect();
        // Each of the outputs counts as an independent variable, so these are the partial derivatives of F. If the loss
        // has been simplified past an output, that part of it counts as a direct function of the variables.
        let loss = scalar_loss("gauss_newton", self.loss)?;
        let slopes = pulled_back(&[loss], &[loss.ones_like()], &joint)?;
        let (slopes, along): (Vec<Tensor>, Vec<Tensor>) =
            slopes.into_iter().zip(along).filter_map(|(s, a)| s.zip(a)).unzip();
        let mut bent = pulled_back(&slopes, &along, &joint)?;
        let direct = bent.split_off(outputs.len());
        let (below, pulled): (Vec<Tensor>, Vec<Tensor>) =
            outputs.iter().zip(bent).filter_map(|(output, bent)| Some((*output, bent?))).unzip();
        let through = vjp(&below, &pulled, wrt)?;
        let sum = |(a, b): (Option<Tensor>, Option<Tensor>)| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        };
        Ok(through.into_iter().zip(direct).map(sum).collect())
    }
}

/// G·v of [`GaussNewton`].
///
/// ```
/// use bilevel_graph::{DType, Graph, gauss_newton_vector};
/// let g = Graph::new();
/// let (x, v) = (g.input("x", [3], DType::F64), g.input("v", [3], DType::F64));
/// // Of ½·(x²)² the Hessian has 6x² on its diagonal, of which 2x² are the curvature of the model x².
/// let gv = gauss_newton_vector(x.square().square().sum_all() * 0.5, &[x], &[v])?[0].unwrap();
/// assert_eq!(gv.shape(), [3]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn gauss_newton_vector(loss: Tensor, wrt: &[Tensor], v: &[Tensor]) -> Result<Derivatives> {
    GaussNewton::new(loss, wrt)?.times(v)
}

/// Marks each element of a value as a convex function of some tensors.
pub(crate) fn mark(value: Tensor, outputs: &[Tensor], sign: Sign) -> Result<()> {
    let all = [&[value], outputs].concat();
    let Some(graph) = common_graph("convex_in", &all)? else { return Ok(()) };
    with_graph(graph, |data| {
        // Scalings and moves may be merged with later operations, so the mark is put beneath them.
        let (mut id, mut sign) = (value.node_id(), sign);
        while let Some((below, factor)) = scaled(data, id) {
            (id, sign) = (below, sign.times(factor));
        }
        let outputs = outputs.iter().map(|t| t.node_id()).collect();
        data.convex.insert(id, (outputs, sign));
    });
    Ok(())
}

/// The operand that a node is a constant multiple of, or the same elements in other places, and the sign of the factor.
fn scaled(data: &GraphData, id: NodeId) -> Option<(NodeId, Sign)> {
    let inputs = data.inputs(id);
    let constant = |id: NodeId| constant(data, id).is_some();
    match data.op(id) {
        Op::Unary(UnaryOp::Neg) => Some((inputs[0], Sign::Negative)),
        Op::Reshape | Op::Transpose(_) | Op::Broadcast(_) | Op::Convert(_) => Some((inputs[0], Sign::Positive)),
        Op::Binary(BinaryOp::Mul) if constant(inputs[0]) => Some((inputs[1], sign_of(data, inputs[0]))),
        Op::Binary(BinaryOp::Mul | BinaryOp::Div) if constant(inputs[1]) => Some((inputs[0], sign_of(data, inputs[1]))),
        _ => None,
    }
}

fn beneath_broadcast(data: &GraphData, mut id: NodeId) -> NodeId {
    while matches!(data.op(id), Op::Broadcast(_) | Op::Reshape | Op::Convert(_)) {
        id = data.inputs(id)[0];
    }
    id
}

/// The walk from the loss to the outputs of the model.
struct Walk<'a> {
    data: &'a GraphData,
    /// Nodes that depend on a variable.
    active: Vec<bool>,
    variables: HashSet<NodeId>,
    /// Outputs known in advance: values linear in one of them end there.
    ends: BTreeSet<NodeId>,
    seen: HashSet<(NodeId, Sign)>,
    outputs: BTreeSet<NodeId>,
    definite: bool,
}

impl<'a> Walk<'a> {
    fn new(data: &'a GraphData, active: Vec<bool>, variables: HashSet<NodeId>) -> Self {
        let (ends, seen, outputs) = (BTreeSet::new(), HashSet::new(), BTreeSet::new());
        Walk { data, active, variables, ends, seen, outputs, definite: true }
    }

    /// Goes on from a node that the loss contains linearly, with a factor of this sign.
    fn from(&mut self, start: NodeId, sign: Sign) {
        let mut pending = vec![(start, sign)];
        while let Some((id, sign)) = pending.pop() {
            // Values linear in a variable have no curvature.
            if !self.active[id as usize] || self.variables.contains(&id) || !self.seen.insert((id, sign)) {
                continue;
            }
            if self.ends.contains(&id) {
                self.outputs.insert(id);
                continue;
            }
            if let Some(exponent) = self.exponent(id) {
                self.end(&[exponent], sign);
                continue;
            }
            let (op, inputs) = (self.data.op(id), self.data.inputs(id));
            let pass = |i: usize| (inputs[i], sign);
            if let Some((outputs, curved)) = self.data.convex.get(&id) {
                self.end(outputs, sign.times(*curved));
                continue;
            }
            match op {
                Op::Binary(BinaryOp::Add) => pending.extend([pass(0), pass(1)]),
                Op::Binary(BinaryOp::Sub) => pending.extend([pass(0), (inputs[1], sign.times(Sign::Negative))]),
                Op::Unary(UnaryOp::Neg) => pending.push((inputs[0], sign.times(Sign::Negative))),
                Op::Binary(BinaryOp::Mul) if inputs[0] == inputs[1] => self.end(&inputs[..1], sign),
                Op::Binary(BinaryOp::Pow) if constant(self.data, inputs[1]) == Some(2.0) => {
                    self.end(&inputs[..1], sign)
                }
                Op::Binary(BinaryOp::Mul) | Op::Dot(..) => {
                    match inputs.iter().position(|&i| !self.active[i as usize]) {
                        Some(factor) => {
                            pending.push((inputs[1 - factor], sign.times(sign_of(self.data, inputs[factor]))))
                        }
                        None => self.definite = false,
                    }
                }
                Op::Binary(BinaryOp::Div) if !self.active[inputs[1] as usize] => {
                    pending.push((inputs[0], sign.times(sign_of(self.data, inputs[1]))));
                }
                Op::Unary(UnaryOp::Exp | UnaryOp::Expm1 | UnaryOp::Abs) => self.end(&inputs[..1], sign),
                Op::Binary(BinaryOp::Max) => self.end(inputs, sign),
                // Concave ones.
                Op::Unary(UnaryOp::Log | UnaryOp::Log1p | UnaryOp::Sqrt) => {
                    self.end(&inputs[..1], sign.times(Sign::Negative));
                }
                Op::Binary(BinaryOp::Min) => self.end(inputs, sign.times(Sign::Negative)),
                Op::Select => pending.extend([pass(1), pass(2)]),
                Op::Reduce(ReduceOp::Sum, _)
                | Op::Reshape
                | Op::Transpose(_)
                | Op::Broadcast(_)
                | Op::Slice { .. }
                | Op::Pad { .. }
                | Op::Concat(_)
                | Op::Reverse(_)
                | Op::Convert(_)
                | Op::Gather { .. }
                | Op::ScatterAdd { .. }
                | Op::CumSum { .. } => pending.extend((0..inputs.len()).map(pass)),
                _ => self.definite = false,
            }
        }
    }

    /// The tensor y of ln Σeʸ; z of ln Σe^(z − c) if c has no derivative.
    fn exponent(&self, id: NodeId) -> Option<NodeId> {
        let below = |id: NodeId| {
            let id = beneath_broadcast(self.data, id);
            (self.data.op(id), self.data.inputs(id))
        };
        let (Op::Unary(UnaryOp::Log), [sum, ..]) = (self.data.op(id), self.data.inputs(id)) else { return None };
        let (Op::Reduce(ReduceOp::Sum, _), [terms, ..]) = below(*sum) else { return None };
        let (Op::Unary(UnaryOp::Exp), &[mut exponent, ..]) = below(*terms) else { return None };
        while let (Op::Binary(BinaryOp::Sub | BinaryOp::Add), &[a, b]) =
            (self.data.op(exponent), self.data.inputs(exponent))
        {
            match (self.data.op(exponent), self.active[a as usize], self.active[b as usize]) {
                (_, true, false) => exponent = a,
                (Op::Binary(BinaryOp::Add), false, true) => exponent = b,
                _ => break,
            }
        }
        Some(exponent)
    }

    /// Ends at a convex function of these tensors, which the loss contains with a factor of this sign.
    fn end(&mut self, outputs: &[NodeId], sign: Sign) {
        if sign == Sign::Negative {
            self.definite = false;
            return;
        }
        self.definite &= sign == Sign::Positive;
        let below = outputs.iter().filter(|&&id| self.active[id as usize] && !self.variables.contains(&id));
        self.outputs.extend(below);
    }
}

/// The value of a node whose elements are all the same number.
fn constant(data: &GraphData, id: NodeId) -> Option<f64> {
    match data.op(beneath_broadcast(data, id)) {
        Op::Constant(bits) => Some(f64::from_bits(*bits)),
        _ => None,
    }
}

/// The most nodes visited for one sign.
const LOOKS: usize = 500;

/// The sign of every element of a node, if it can be determined; 0 counts as positive.
fn sign_of(data: &GraphData, id: NodeId) -> Sign {
    sign_within(data, id, &Cell::new(LOOKS))
}

fn sign_within(data: &GraphData, id: NodeId, looks: &Cell<usize>) -> Sign {
    let Some(left) = looks.get().checked_sub(1) else { return Sign::Unknown };
    looks.set(left);
    let inputs = data.inputs(id);
    let of = |i: usize| sign_within(data, inputs[i], looks);
    let positive_if = |holds: bool| if holds { Sign::Positive } else { Sign::Unknown };
    match data.op(id) {
        Op::Constant(bits) if f64::from_bits(*bits) >= 0.0 => Sign::Positive,
        Op::Constant(_) => Sign::Negative,
        Op::Iota(_) | Op::Random(RandomKind::Uniform, _) | Op::CheckIndex(_) => Sign::Positive,
        Op::Unary(UnaryOp::Neg) => of(0).times(Sign::Negative),
        Op::Unary(UnaryOp::Exp | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Sigmoid | UnaryOp::Erfc) => Sign::Positive,
        Op::Unary(UnaryOp::Recip | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Atan) => of(0),
        Op::Unary(UnaryOp::Log1p | UnaryOp::Expm1) => positive_if(of(0) == Sign::Positive),
        Op::Binary(op) if op.is_comparison() => Sign::Positive,
        Op::Binary(BinaryOp::Mul) if inputs[0] == inputs[1] => Sign::Positive,
        Op::Binary(BinaryOp::Mul | BinaryOp::Div) | Op::Dot(..) => of(0).times(of(1)),
        Op::Binary(BinaryOp::Add) | Op::Concat(_) | Op::Binary(BinaryOp::Min) => {
            let first = of(0);
            if (1..inputs.len()).all(|i| of(i) == first) { first } else { Sign::Unknown }
        }
        Op::Binary(BinaryOp::Max) => positive_if(of(0) == Sign::Positive || of(1) == Sign::Positive),
        Op::Binary(BinaryOp::Pow) => positive_if(of(0) == Sign::Positive),
        Op::Select => {
            let first = of(1);
            if of(2) == first { first } else { Sign::Unknown }
        }
        Op::Reduce(_, _)
        | Op::Reshape
        | Op::Transpose(_)
        | Op::Broadcast(_)
        | Op::Slice { .. }
        | Op::Reverse(_)
        | Op::Convert(_)
        | Op::StopGradient
        | Op::Gather { .. }
        | Op::CumSum { .. } => of(0),
        _ => Sign::Unknown,
    }
}
