//! Validation of programs. Their fields are public, so executors validate before they plan: later steps, including
//! unsafe code, rely on every number of a node and every shape.

use crate::ir::dump::describe;
use crate::ir::infer::infer;
use crate::ir::op::Op;
use crate::ir::program::{Port, Program};
use crate::{DType, Error, ErrorKind, Result};

impl Program {
    /// Returns an error that names the first invalid part of the program: an operand after its user, a type or shape
    /// other than its operation's, a port or carry without its node. Every executor calls this before it plans.
    /// Programs of a [`builder`](Program::builder) are always valid.
    ///
    /// ```
    /// use bilevel_graph::{DType, Graph, Program};
    /// let g = Graph::new();
    /// let x = g.input("x", [3], DType::F32);
    /// let mut program = Program::builder(&g).output("y", x.sin()).build().unwrap();
    /// assert!(program.validate().is_ok());
    /// program.nodes[1].meta.shape = vec![300];
    /// let error = program.validate().unwrap_err().to_string();
    /// assert!(error.contains("operation 1 (sin) is f32[300] and should be f32[3]"), "{error}");
    /// ```
    pub fn validate(&self) -> Result<()> {
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            self.check_node(number).map_err(|error| error.at(node.location))?;
        }
        self.check_inputs()?;
        for port in &self.outputs {
            self.check_port("output", port)?;
        }
        check_names(&self.outputs)?;
        for shard in &self.shards {
            if self.nodes.get(shard.node).is_none_or(|node| shard.axis >= node.meta.shape.len()) {
                return invalid(format!("axis {} of operation {} cannot be shared out", shard.axis, shard.node));
            }
        }
        self.check_carries()
    }

    fn check_node(&self, number: usize) -> Result<()> {
        let node = &self.nodes[number];
        let name = || format!("operation {number} ({})", describe(&node.op));
        if let Some(operand) = node.inputs.iter().find(|&&operand| operand >= number) {
            return invalid(format!("{} has operand {operand}, which does not come before it", name()));
        }
        let operands: Vec<_> = node.inputs.iter().map(|&operand| &self.nodes[operand].meta).collect();
        match infer(&node.op, &operands, Some(node.meta.clone())) {
            Err(reason) => invalid(format!("{}: {reason}", name())),
            Ok(meta) if meta != node.meta => {
                let (found, right) = (&node.meta, meta);
                invalid(format!(
                    "{} is {}{:?} and should be {}{:?}",
                    name(),
                    found.dtype,
                    found.shape,
                    right.dtype,
                    right.shape
                ))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Ports of inputs and nodes that are inputs belong together one to one.
    fn check_inputs(&self) -> Result<()> {
        let mut named = vec![false; self.nodes.len()];
        for port in &self.inputs {
            let number = self.check_port("input", port)?;
            if !matches!(self.nodes[number].op, Op::Input(_)) {
                return invalid(format!("input '{}' stands for operation {number}, which is not an input", port.name));
            }
            if std::mem::replace(&mut named[number], true) {
                return invalid(format!("input '{}' stands for an operation that another input stands for", port.name));
            }
        }
        let nameless = |number: &usize| matches!(self.nodes[*number].op, Op::Input(_)) && !named[*number];
        if let Some(number) = (0..self.nodes.len()).find(nameless) {
            return invalid(format!("operation {number} is an input without a name"));
        }
        check_names(&self.inputs)?;
        match self.step.map(|number| (number, self.inputs.get(number))) {
            Some((number, None)) => invalid(format!("input {number} should hold the loop step and does not exist")),
            Some((_, Some(port))) if port.meta.dtype != DType::I32 || !port.meta.shape.is_empty() => {
                invalid(format!("input '{}' should hold the loop step but is not an i32 scalar", port.name))
            }
            _ => Ok(()),
        }
    }

    /// The node a port stands for.
    fn check_port(&self, kind: &str, port: &Port) -> Result<usize> {
        let Some((number, node)) = port.node.and_then(|number| Some((number, self.nodes.get(number)?))) else {
            return invalid(format!("{kind} '{}' stands for no operation of the program", port.name));
        };
        if port.meta != node.meta {
            return invalid(format!("{kind} '{}' has another type or shape than its operation {number}", port.name));
        }
        Ok(number)
    }

    fn check_carries(&self) -> Result<()> {
        let mut carried = vec![false; self.inputs.len()];
        for carry in &self.carries {
            let (Some(port), Some(next)) = (self.inputs.get(carry.input), self.nodes.get(carry.next)) else {
                return invalid(format!("a carry from operation {} to input {} misses one", carry.next, carry.input));
            };
            if port.meta != next.meta {
                return invalid(format!("input '{}' is carried a value of another type or shape", port.name));
            }
            if self.step == Some(carry.input) || std::mem::replace(&mut carried[carry.input], true) {
                return invalid(format!("input '{}' is carried twice", port.name));
            }
        }
        Ok(())
    }
}

fn check_names(ports: &[Port]) -> Result<()> {
    let mut names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::new(ErrorKind::DuplicateName { name: pair[0].to_string() })),
        None => Ok(()),
    }
}

fn invalid<T>(reason: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidProgram { reason }))
}
