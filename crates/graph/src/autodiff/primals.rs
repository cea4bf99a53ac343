//! The values used in derivatives of expressions with custom nodes whose rules are data.
//!
//!   y = f(x) with the rule x̄ = r(x, ȳ):   the gradient of L(y) is r(x, L′(y₁)),   y₁ = the first operand of the node
//!
//! The rule applies to the present derivative. Its result has the derivatives of its expression, so y₁ replaces y: the
//! value as an expression with its own derivatives. A gradient is then an ordinary function with its true derivative,
//! as in JAX or PyTorch. If y₁ is again a custom node, its rule gives the next derivative.

use crate::ir::graph::{NodeId, make, with_graph};
use crate::ir::op::Op;
use crate::tensor::Tensor;
use std::collections::HashMap;

/// Active nodes with their operands; inactive ones have none.
type Operands = [(Op, Vec<NodeId>)];

/// By active node: the tensor in its place in a derivative, if it is another one.
pub(crate) fn primals(graph: u32, operands: &Operands, wrt: &[Tensor]) -> HashMap<NodeId, Tensor> {
    let is_data = |op: &Op| match op {
        Op::Custom(rule) => {
            with_graph(graph, |data| data.rules.get(*rule as usize).is_some_and(|rule| rule.data.is_some()))
                .unwrap_or_default()
        }
        _ => false,
    };
    let mut places = HashMap::new();
    if !operands.iter().any(|(op, _)| is_data(op)) {
        return places;
    }
    for (id, (op, inputs)) in operands.iter().enumerate() {
        let id = id as NodeId;
        if wrt.iter().any(|t| t.node_id() == id) {
            continue;
        }
        if let (true, [value, x @ ..]) = (is_data(op), &inputs[..]) {
            let moved = x.iter().filter_map(|i| places.get(i).map(|tensor| (*i, *tensor))).collect();
            places.insert(id, substituted(graph, *value, moved));
        } else if inputs.iter().any(|i| places.contains_key(i)) {
            places.insert(id, remade(graph, id, op.clone(), inputs, &places));
        }
    }
    places
}

/// A node on other operands.
fn remade(graph: u32, id: NodeId, op: Op, inputs: &[NodeId], places: &HashMap<NodeId, Tensor>) -> Tensor {
    let x: Vec<Tensor> =
        inputs.iter().map(|i| places.get(i).copied().unwrap_or_else(|| Tensor::new(graph, *i))).collect();
    let meta = with_graph(graph, |data| data.meta(id).clone());
    make(graph, "custom", op, &x, meta)
}

/// An expression with some of its parts replaced.
fn substituted(graph: u32, root: NodeId, mut places: HashMap<NodeId, Tensor>) -> Tensor {
    let Some(first) = places.keys().min().copied() else { return Tensor::new(graph, root) };
    for id in first..=root {
        let node = with_graph(graph, |data| data.nodes.get(id as usize).cloned()).flatten();
        let Some(node) = node.filter(|node| node.inputs.iter().any(|i| places.contains_key(i))) else { continue };
        if !places.contains_key(&id) {
            let tensor = remade(graph, id, node.op, &node.inputs, &places);
            places.insert(id, tensor);
        }
    }
    places.get(&root).copied().unwrap_or_else(|| Tensor::new(graph, root))
}
