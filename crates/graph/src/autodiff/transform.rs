//! Derivatives of whole graphs. One transform, [`vjp`], carries everything: a forward product is the vjp of the vjp, which
//! is linear in its cotangent, and second-order products are vjps of gradients.

use crate::autodiff::custom;
use crate::autodiff::primals::primals;
use crate::autodiff::vjp_rules::{differentiable, pullback};
use crate::ir::graph::{GraphData, bypass, common_graph, new_input, with_graph};
use crate::ir::infer::Meta;
use crate::ir::op::Op;
use crate::tensor::Tensor;
use crate::{Error, ErrorKind, Result};
use std::collections::HashSet;

/// A derivative with respect to each of several tensors: `None` if it is structurally zero, that is, if no path of
/// differentiable operations leads from the tensor to the result.
pub type Derivatives = Vec<Option<Tensor>>;

/// The vector-Jacobian product: Σᵢ cotangentᵢᵀ·∂outputᵢ/∂wrtⱼ for every j.
///
/// `wrt` may be any tensors, not only inputs; each counts as an independent variable, so a derivative does not flow
/// through one of them into another. A tensor is its expression: the derivative with respect to a computed one is by all equal
/// expressions of equal operands, wherever they were written. If simplification has removed a computed tensor from an
/// expression of the outputs, the derivative is an error: −(a − b), for example, becomes b − a, which does not contain
/// a − b. [`as_variable`](Tensor::as_variable) makes a tensor that is neither shared nor simplified.
///
/// ```
/// use bilevel_graph::{vjp, DType, Graph};
/// let g = Graph::new();
/// let (x, u) = (g.input("x", [3], DType::F64), g.input("u", [3], DType::F64));
/// let unused = g.input("unused", [2], DType::F64);
/// let d = vjp(&[x.sin()], &[u], &[x, unused]).unwrap();
/// assert_eq!(d[0].unwrap().shape(), [3]);
/// assert!(d[1].is_none(), "known to be zero");
/// ```
pub fn vjp(outputs: &[Tensor], cotangents: &[Tensor], wrt: &[Tensor]) -> Result<Derivatives> {
    check_pairs("vjp", "output", "cotangent", outputs, cotangents)?;
    let all = [outputs, cotangents, wrt].concat();
    if let Some(graph) = common_graph("vjp", &all)? {
        require_no_bypass(graph, outputs, wrt)?;
    }
    pulled_back(outputs, cotangents, wrt)
}

/// As [`vjp`], by the expressions that the graph has, simplified or not.
pub(crate) fn pulled_back(outputs: &[Tensor], cotangents: &[Tensor], wrt: &[Tensor]) -> Result<Derivatives> {
    let all = [outputs, cotangents, wrt].concat();
    let Some(graph) = common_graph("vjp", &all)? else { return Ok(vec![]) };
    let Some(last) = outputs.iter().map(|t| t.node_id()).max() else { return Ok(vec![None; wrt.len()]) };

    let (active, operands) = with_graph(graph, |data| {
        // A node is active when a differentiable path leads to it from `wrt`.
        let mut active = vec![false; last as usize + 1];
        for tensor in wrt {
            if let Some(entry) = active.get_mut(tensor.node_id() as usize) {
                *entry = true;
            }
        }
        for id in 0..active.len() {
            let node = &data.nodes[id];
            let reached = differentiable(&node.op, &node.inputs).iter().any(|&i| active[i as usize]);
            active[id] |= reached && node.meta.dtype.is_float();
        }
        let operands: Vec<(Op, Vec<u32>)> = (0..active.len())
            .map(|id| {
                if active[id] {
                    (data.nodes[id].op.clone(), data.nodes[id].inputs.clone())
                } else {
                    (Op::Reshape, vec![])
                }
            })
            .collect();
        (active, operands)
    })
    .unwrap_or_default();

    let places = primals(graph, &operands, wrt);
    let primal = |id: u32| places.get(&id).copied().unwrap_or_else(|| Tensor::new(graph, id));
    let mut pending: Vec<Vec<Tensor>> = vec![vec![]; active.len()];
    for (output, &cotangent) in outputs.iter().zip(cotangents) {
        pending[output.node_id() as usize].push(cotangent);
    }
    let mut found: Derivatives = vec![None; wrt.len()];
    for id in (0..active.len()).rev().filter(|&id| active[id]) {
        let Some(cotangent) = add_up(std::mem::take(&mut pending[id])) else { continue };
        let y = Tensor::new(graph, id as u32);
        if wrt.iter().any(|t| t.is_same_node(y)) {
            for (slot, _) in found.iter_mut().zip(wrt).filter(|(_, t)| t.is_same_node(y)) {
                *slot = Some(cotangent);
            }
            continue;
        }
        let (op, inputs) = &operands[id];
        let _line = Deriving::of(y);
        let (x, y): (Vec<Tensor>, Tensor) = (inputs.iter().map(|&i| primal(i)).collect(), primal(id as u32));
        if let (Op::Custom(rule), [_, x @ ..]) = (op, &x[..]) {
            let found = custom::cotangents(*rule, x, y, cotangent)?;
            let of_active = inputs[1..].iter().zip(found).filter(|(input, _)| active[**input as usize]);
            of_active.for_each(|(&input, cotangent)| pending[input as usize].extend(cotangent));
            continue;
        }
        for (which, &input) in inputs.iter().enumerate() {
            if active[input as usize]
                && let Some(contribution) = pullback(op, &x, y, cotangent, which)
            {
                pending[input as usize].push(contribution.check()?);
            }
        }
    }
    Ok(found)
}

/// Refuses derivatives by computed tensors that simplification has removed from an expression the outputs contain: a part of the
/// derivative would be lost.
fn require_no_bypass(graph: u32, outputs: &[Tensor], wrt: &[Tensor]) -> Result<()> {
    let lost = with_graph(graph, |data| {
        let suspects: Vec<&Tensor> = wrt.iter().filter(|t| data.bypassed.contains_key(&t.node_id())).collect();
        if suspects.is_empty() {
            return None;
        }
        let reaching = reaching(data, outputs, wrt);
        suspects.into_iter().find_map(|t| {
            // A rewritten expression may have been rewritten again.
            let mut pending = data.bypassed[&t.node_id()].clone();
            let mut seen = HashSet::new();
            while let Some(id) = pending.pop() {
                if reaching.get(id as usize) == Some(&true) {
                    return Some((*t, data.nodes[id as usize].location));
                }
                if seen.insert(id) {
                    pending.extend(data.bypassed.get(&id).into_iter().flatten());
                }
            }
            None
        })
    });
    let Some((tensor, line)) = lost.flatten() else { return Ok(()) };
    let reason = format!(
        "the derivative by this computed tensor is not determined: at {} an expression of it was simplified to one that does \
         not contain it; compute with x.as_variable() in its place, and derive by that",
        line.short()
    );
    let operands = vec![(tensor.dtype(), tensor.shape())];
    let kind = ErrorKind::Operation { operation: "vjp".into(), operands, reason };
    Err(Error { kind, location: tensor.node().map(|node| node.location) })
}

/// By node up to the last output: whether an output depends on it differentiably, other than through one of these variables.
fn reaching(data: &GraphData, outputs: &[Tensor], variables: &[Tensor]) -> Vec<bool> {
    let last = outputs.iter().map(|t| t.node_id() as usize + 1).max().unwrap_or(0);
    let mut reaching = vec![false; last];
    outputs.iter().for_each(|t| reaching[t.node_id() as usize] = true);
    for id in (0..last).rev() {
        if variables.iter().any(|t| t.node_id() as usize == id) {
            reaching[id] = false;
        }
        if reaching[id] {
            let node = &data.nodes[id];
            differentiable(&node.op, &node.inputs).iter().for_each(|&i| reaching[i as usize] = true);
        }
    }
    reaching
}

/// While it lives, nodes are made in the name of the line that made the node being derived.
struct Deriving(u32);

impl Deriving {
    fn of(y: Tensor) -> Self {
        with_graph(y.graph_id(), |data| {
            data.deriving = data.nodes.get(y.node_id() as usize).map(|node| node.location);
        });
        Deriving(y.graph_id())
    }
}

impl Drop for Deriving {
    fn drop(&mut self) {
        with_graph(self.0, |data| data.deriving = None);
    }
}

/// ∂loss/∂wrtⱼ of a scalar loss.
///
/// ```
/// use bilevel_graph::{gradient, DType, Graph};
/// let g = Graph::new();
/// let x = g.input("x", [], DType::F64);
/// let first = gradient(x * x * x, &[x]).unwrap()[0].unwrap();
/// let second = gradient(first, &[x]).unwrap()[0].unwrap();
/// assert_eq!(second.shape(), []);
/// ```
pub fn gradient(loss: Tensor, wrt: &[Tensor]) -> Result<Derivatives> {
    let loss = scalar_loss("gradient", loss)?;
    vjp(&[loss], &[loss.ones_like()], wrt)
}

/// As [`gradient`], with zeros for structurally zero derivatives.
pub fn gradient_or_zeros(loss: Tensor, wrt: &[Tensor]) -> Result<Vec<Tensor>> {
    let found = gradient(loss, wrt)?;
    Ok(found.iter().zip(wrt).map(|(d, x)| d.unwrap_or_else(|| x.zeros_like())).collect())
}

/// The Jacobian-vector product: Σⱼ ∂outputᵢ/∂wrtⱼ·tangentⱼ for every i.
///
/// ```
/// use bilevel_graph::{jvp, DType, Graph};
/// let g = Graph::new();
/// let (x, v) = (g.input("x", [3], DType::F64), g.input("v", [3], DType::F64));
/// let d = jvp(&[x.exp()], &[x], &[v]).unwrap();
/// assert!(d[0].unwrap().is_same_node(x.exp() * v));
/// ```
pub fn jvp(outputs: &[Tensor], wrt: &[Tensor], tangents: &[Tensor]) -> Result<Derivatives> {
    check_pairs("jvp", "variable", "tangent", wrt, tangents)?;
    // J·v = ∂(Jᵀu)/∂u applied to v; the result does not contain u.
    let u: Vec<Tensor> = outputs
        .iter()
        .map(|y| new_input(y.graph_id(), "cotangent of jvp".into(), Meta { dtype: y.dtype(), shape: y.shape() }))
        .collect();
    let pulled = vjp(outputs, &u, wrt)?;
    let (pulled, tangents) = present(&pulled, tangents);
    let moved = vjp(&pulled, &tangents, &u)?;
    require_linear(&moved, &u)?;
    Ok(moved)
}

/// Refuses a forward product that contains the cotangents it was derived by: a custom rule was not linear in them.
fn require_linear(moved: &[Option<Tensor>], u: &[Tensor]) -> Result<()> {
    let Some(first) = u.first() else { return Ok(()) };
    let found: Vec<Tensor> = moved.iter().flatten().copied().collect();
    let is_linear = with_graph(first.graph_id(), |data| {
        let mut pending: Vec<u32> =
            if data.rules.is_empty() { vec![] } else { found.iter().map(|t| t.node_id()).collect() };
        let mut seen = vec![false; data.nodes.len()];
        while let Some(id) = pending.pop() {
            if !std::mem::replace(&mut seen[id as usize], true) {
                pending.extend(&data.nodes[id as usize].inputs);
            }
        }
        !u.iter().any(|t| seen[t.node_id() as usize])
    });
    if is_linear.unwrap_or(true) {
        return Ok(());
    }
    let reason =
        "a custom rule on the way is not linear in the cotangent, so that there is no forward product; use vjp";
    let operands = found.iter().map(|t| (t.dtype(), t.shape())).collect();
    Err(Error::new(ErrorKind::Operation { operation: "jvp".into(), operands, reason: reason.into() }))
}

/// The Hessian-vector product ∂²loss/∂wrt²·v.
///
/// ```
/// use bilevel_graph::{hessian_vector, DType, Graph};
/// let g = Graph::new();
/// let (x, v) = (g.input("x", [3], DType::F64), g.input("v", [3], DType::F64));
/// let hv = hessian_vector((x * x).sum_all(), &[x], &[v]).unwrap()[0].unwrap();
/// assert!(hv.is_same_node(v * 2.0));
/// ```
pub fn hessian_vector(loss: Tensor, wrt: &[Tensor], v: &[Tensor]) -> Result<Derivatives> {
    mixed_vector(loss, wrt, v, wrt)
}

/// The mixed product vᵀ·∂²loss/∂theta∂lambda. With `lambda = theta` it is the Hessian product; with both lists joined,
/// one reverse pass gives both.
///
/// ```
/// use bilevel_graph::{mixed_vector, DType, Graph};
/// let g = Graph::new();
/// let [theta, lambda, v] = ["theta", "lambda", "v"].map(|name| g.input(name, [3], DType::F64));
/// let loss = (lambda * theta * theta).sum_all();
/// let mixed = mixed_vector(loss, &[theta], &[v], &[lambda]).unwrap()[0].unwrap();
/// assert_eq!(mixed.shape(), [3]);
/// ```
pub fn mixed_vector(loss: Tensor, theta: &[Tensor], v: &[Tensor], lambda: &[Tensor]) -> Result<Derivatives> {
    check_pairs("mixed_vector", "variable", "vector", theta, v)?;
    let first = gradient(loss, theta)?;
    let (first, v) = present(&first, v);
    vjp(&first, &v, lambda)
}

/// The derivatives that are not structurally zero, with their partners.
fn present(derivatives: &[Option<Tensor>], partners: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
    derivatives.iter().zip(partners).filter_map(|(d, &p)| d.map(|d| (d, p))).unzip()
}

pub(crate) fn scalar_loss(operation: &str, loss: Tensor) -> Result<Tensor> {
    let loss = loss.check()?;
    let reason = match () {
        _ if loss.len() != 1 => "the loss must be a single number; sum or average it first",
        _ if !loss.dtype().is_float() => "the loss must be a float",
        _ => return Ok(loss),
    };
    let operands = vec![(loss.dtype(), loss.shape())];
    Err(Error::new(ErrorKind::Operation { operation: operation.into(), operands, reason: reason.into() }))
}

fn check_pairs(operation: &str, what: &str, partner: &str, a: &[Tensor], b: &[Tensor]) -> Result<()> {
    let refuse = |operands: &[Tensor], reason: String| {
        let operands = operands.iter().map(|t| (t.dtype(), t.shape())).collect();
        Err(Error::new(ErrorKind::Operation { operation: operation.into(), operands, reason }))
    };
    if a.len() != b.len() {
        return refuse(&[], format!("{} {what}s but {} {partner}s; give one for each", a.len(), b.len()));
    }
    for (&x, &y) in a.iter().zip(b) {
        let (x, y) = (x.check()?, y.check()?);
        if x.shape() != y.shape() || x.dtype() != y.dtype() {
            return refuse(&[x, y], format!("a {partner} must have its {what}'s shape and type"));
        }
    }
    Ok(())
}

/// The sum of cotangents that met at one node; `None` when all are known to be zero. Pieces that were padded into place
/// without overlap along one axis become one concatenation. Otherwise the gradient of a parameter vector cut into
/// hundreds of slices would be hundreds of full-length additions.
fn add_up(contributions: Vec<Tensor>) -> Option<Tensor> {
    let mut rest: Vec<Tensor> = contributions.into_iter().filter(|t| t.constant_value() != Some(0.0)).collect();
    if rest.len() > 1
        && let Some(joined) = join_pieces(&mut rest)
    {
        rest.push(joined);
    }
    rest.into_iter().reduce(|a, b| a + b)
}

/// A piece padded into place along one axis.
struct Piece {
    axis: usize,
    start: usize,
    content: Tensor,
}

fn as_piece(tensor: Tensor) -> Option<Piece> {
    let node = tensor.node()?;
    let Op::Pad { low, high, interior } = node.op else { return None };
    let mut padded = (0..low.len()).filter(|&i| low[i] + high[i] > 0);
    let axis = padded.next()?;
    if padded.next().is_some() || interior.iter().any(|&n| n > 0) {
        return None;
    }
    Some(Piece { axis, start: low[axis], content: Tensor::new(tensor.graph_id(), node.inputs[0]) })
}

/// Takes disjoint pieces along one axis out of `tensors` and returns them as one concatenation.
fn join_pieces(tensors: &mut Vec<Tensor>) -> Option<Tensor> {
    let whole = tensors[0].shape();
    let mut pieces: Vec<(Tensor, Piece)> = tensors.iter().filter_map(|&t| Some((t, as_piece(t)?))).collect();
    let axis = pieces.first()?.1.axis;
    pieces.retain(|(_, piece)| piece.axis == axis);
    pieces.sort_by_key(|(_, piece)| piece.start);
    let mut end = 0;
    pieces.retain(|(_, piece)| {
        let disjoint = piece.start >= end;
        if disjoint {
            end = piece.start + piece.content.dim(axis);
        }
        disjoint
    });
    if pieces.len() < 2 {
        return None;
    }
    let mut parts = vec![];
    let mut end = 0;
    let gap = |parts: &mut Vec<Tensor>, from: usize, to: usize| {
        if to > from {
            let mut shape = whole.clone();
            shape[axis] = to - from;
            parts.push(tensors[0].constant_like(0.0, shape));
        }
    };
    for (_, piece) in &pieces {
        gap(&mut parts, end, piece.start);
        parts.push(piece.content);
        end = piece.start + piece.content.dim(axis);
    }
    gap(&mut parts, end, whole[axis]);
    // One contribution may have come twice; only the one that was joined goes.
    let mut taken: Vec<Tensor> = pieces.iter().map(|(t, _)| *t).collect();
    tensors.retain(|t| match taken.iter().position(|other| other.is_same_node(*t)) {
        Some(place) => {
            taken.swap_remove(place);
            false
        }
        None => true,
    });
    let joined = parts[0].concat(&parts[1..], axis);
    for (piece, _) in &pieces {
        bypass(*piece, joined);
    }
    Some(joined)
}
