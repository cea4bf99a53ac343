//! Rewrites: a new program from an old one, node by node.
//!
//! A rewriter goes through the old nodes in order and, for each, adds new nodes and says which one holds the old value.
//! The operands of old nodes, and in the end inputs, outputs and carries, then refer to the new nodes. Programs of the
//! graph and lowered programs are rewritten in the same way.

use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Node, Operand};
use bilevel_graph::{DType, Meta, Op, Program, ProgramNode};

/// A program that can be rewritten.
pub(crate) trait Rewritable: Sized {
    /// An operation.
    type Node: Clone;

    /// Returns the nodes.
    fn nodes(&self) -> &[Self::Node];

    /// Returns the operands of a node that are nodes.
    fn reads(node: &mut Self::Node) -> Vec<&mut usize>;

    /// Returns a copy with these nodes. Inputs, outputs and carries, in this order, refer to the nodes that `to` returns
    /// for the old ones; `None` if it returns none for one of them.
    fn with_nodes(&self, nodes: Vec<Self::Node>, to: impl FnMut(usize) -> Option<usize>) -> Option<Self>;
}

impl Rewritable for Program {
    type Node = ProgramNode;

    fn nodes(&self) -> &[ProgramNode] {
        &self.nodes
    }

    fn reads(node: &mut ProgramNode) -> Vec<&mut usize> {
        node.inputs.iter_mut().collect()
    }

    fn with_nodes(&self, nodes: Vec<ProgramNode>, mut to: impl FnMut(usize) -> Option<usize>) -> Option<Self> {
        let mut program = self.clone();
        for read in program.inputs.iter_mut().chain(&mut program.outputs).filter_map(|port| port.node.as_mut()) {
            *read = to(*read)?;
        }
        for carry in &mut program.carries {
            carry.next = to(carry.next)?;
        }
        Some(Program { nodes, ..program })
    }
}

impl Rewritable for LoweredGraph {
    type Node = Node;

    fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn reads(node: &mut Node) -> Vec<&mut usize> {
        let node_of = |operand| match operand {
            &mut Operand::Constant(_) => None,
            Operand::At { node, .. } => Some(node),
        };
        node.operands.iter_mut().filter_map(node_of).collect()
    }

    fn with_nodes(&self, nodes: Vec<Node>, mut to: impl FnMut(usize) -> Option<usize>) -> Option<Self> {
        let mut graph = LoweredGraph { nodes, ..LoweredGraph::default() };
        for input in &self.inputs {
            graph.inputs.push(match input {
                Some(node) => Some(to(*node)?),
                None => None,
            });
        }
        let mut operand = |operand: &Operand| {
            Some(match operand {
                Operand::At { node, view } => Operand::At { node: to(*node)?, view: view.clone() },
                Operand::Constant(value) => Operand::Constant(*value),
            })
        };
        graph.outputs = self.outputs.iter().map(&mut operand).collect::<Option<_>>()?;
        let mut nexts: Vec<Operand> = self.carries.iter().map(|(_, next)| operand(next)).collect::<Option<_>>()?;
        for ((input, _), next) in self.carries.iter().zip(nexts.drain(..)) {
            graph.carries.push((to(*input)?, next));
        }
        graph.initial_casts = self.initial_casts.iter().map(|cast| cast.moved(&mut to)).collect::<Option<_>>()?;
        Some(graph)
    }
}

/// A new program in the making.
pub(crate) struct Rewriter<'a, P: Rewritable> {
    /// The old program.
    pub old: &'a P,
    /// The new nodes so far.
    pub nodes: Vec<P::Node>,
    /// By old node: the new node that holds its value, if there is one.
    held: Vec<Option<usize>>,
}

impl<'a, P: Rewritable> Rewriter<'a, P> {
    pub fn new(old: &'a P) -> Self {
        Rewriter { old, nodes: vec![], held: vec![] }
    }

    /// Adds a new node.
    pub fn add(&mut self, node: P::Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Lets a new node hold the value of the next old one; with `None`, nothing can refer to it.
    pub fn hold(&mut self, new: impl Into<Option<usize>>) {
        self.held.push(new.into());
    }

    /// Copies the next old node, with its operands as they are now.
    pub fn keep(&mut self) -> usize {
        let mut node = self.old.nodes()[self.held.len()].clone();
        for read in P::reads(&mut node) {
            *read = self.at(*read);
        }
        let new = self.add(node);
        self.hold(new);
        new
    }

    /// Returns the new node that holds the value of an old one.
    pub fn held(&self, old: usize) -> Option<usize> {
        self.held[old]
    }

    /// Returns the new node that holds the value of an old one, of which it is known that there is one.
    pub fn at(&self, old: usize) -> usize {
        self.held[old].unwrap_or_else(|| unreachable!("the value of node {old} was dropped by this rewrite"))
    }

    /// Returns the new program; `None` if an input, an output or a carry has lost its value.
    pub fn finish(self) -> Option<P> {
        let Rewriter { old, nodes, held } = self;
        old.with_nodes(nodes, |node| held[node])
    }
}

impl Rewriter<'_, Program> {
    /// Adds an operation with the location of an old node.
    pub fn push(&mut self, op: Op, inputs: Vec<usize>, shape: &[usize], dtype: DType, like: &ProgramNode) -> usize {
        let meta = Meta { dtype, shape: shape.to_vec() };
        self.add(ProgramNode { op, inputs, meta, location: like.location })
    }
}

/// Removes dead nodes, such as planes of images, which would otherwise constrain the layout.
pub(crate) fn without_dead(program: &Program) -> Option<Program> {
    let mut live = vec![false; program.nodes.len()];
    let ports = program.inputs.iter().chain(&program.outputs).filter_map(|port| port.node);
    ports.chain(program.carries.iter().map(|carry| carry.next)).for_each(|node| live[node] = true);
    for (id, node) in program.nodes.iter().enumerate().rev() {
        if live[id] {
            node.inputs.iter().for_each(|&input| live[input] = true);
        }
    }
    let mut new = Rewriter::new(program);
    for is_live in live {
        if is_live {
            new.keep();
        } else {
            new.hold(None);
        }
    }
    new.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::lower;
    use crate::target::Target;
    use bilevel_graph::Graph;

    /// A step with an output, a carry, and a value that nothing reads.
    fn program() -> Program {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [3], DType::F64));
        Program::builder(&g).carry(w, w - x).output("y", (x * w).exp()).build().unwrap()
    }

    #[test]
    fn a_program_of_which_every_node_is_kept_is_the_same() {
        let program = program();
        let mut new = Rewriter::new(&program);
        (0..program.nodes.len()).for_each(|id| assert_eq!(new.keep(), id));
        assert_eq!(new.finish().unwrap().to_string(), program.to_string());
        let lowered = lower(&program, &Target::PLAIN).unwrap().graph;
        let mut new = Rewriter::new(&lowered);
        (0..lowered.nodes.len()).for_each(|id| assert_eq!(new.keep(), id));
        assert_eq!(format!("{:?}", new.finish().unwrap()), format!("{lowered:?}"));
    }

    #[test]
    fn readers_outputs_and_carries_refer_to_the_new_nodes_and_a_lost_value_is_noticed() {
        let program = program();
        let is_exp = |node: &ProgramNode| node.op == Op::Unary(bilevel_graph::UnaryOp::Exp);
        let exp = program.nodes.iter().position(is_exp).unwrap();
        for loses in [false, true] {
            let mut new = Rewriter::new(&program);
            for id in 0..program.nodes.len() {
                if id == exp && loses {
                    new.hold(None);
                } else if id == exp {
                    let old = &program.nodes[id];
                    let twice = new.at(old.inputs[0]);
                    let made =
                        new.push(Op::Binary(bilevel_graph::BinaryOp::Add), vec![twice; 2], &[3], DType::F64, old);
                    new.hold(made);
                } else {
                    let kept = new.keep();
                    // A copy that nothing reads.
                    if !matches!(new.nodes[kept].op, Op::Input(_)) {
                        new.add(new.nodes[kept].clone());
                    }
                }
            }
            let new = new.finish();
            assert_eq!(new.is_none(), loses);
            let Some(new) = new else { continue };
            let fewer = without_dead(&new).unwrap();
            assert_eq!(fewer.nodes.len(), program.nodes.len());
            new.validate().unwrap();
            fewer.validate().unwrap();
        }
    }
}
