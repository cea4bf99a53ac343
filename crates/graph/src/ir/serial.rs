//! Serialisation of programs and functions: data read from outside become a program only if they are valid.
//!
//! Lines of user code are not written, and a function of the host cannot be.

use crate::ir::function::{Convex, Function};
use crate::ir::op::Op;
use crate::ir::program::{Carry, Port, Program, ProgramNode, Shard};
use crate::{Error, ErrorKind, Line, Result};
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;

/// Rules within rules, in functions that are read.
const MAX_RULE_DEPTH: usize = 32;

/// The line of an operation that was read.
pub(crate) fn read_here() -> Line {
    Line::caller()
}

/// The parts of a [`Program`], in any state.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramParts {
    nodes: Vec<ProgramNode>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    carries: Vec<Carry>,
    step: Option<usize>,
    #[serde(default)]
    shards: Vec<Shard>,
}

impl ProgramParts {
    fn checked(self, rules: &[Arc<Function>]) -> Result<Program> {
        let ProgramParts { nodes, inputs, outputs, carries, step, shards } = self;
        let program = Program { nodes, inputs, outputs, carries, step, shards };
        let is_unknown = |node: &&ProgramNode| matches!(node.op, Op::Custom(rule) if rule as usize >= rules.len());
        if let Some(node) = program.nodes.iter().find(is_unknown) {
            let reason = format!("{:?} is a derivative rule that it does not have", node.op);
            return Err(Error::new(ErrorKind::InvalidProgram { reason }));
        }
        program.validate()?;
        Ok(program)
    }
}

impl TryFrom<ProgramParts> for Program {
    type Error = Error;

    fn try_from(parts: ProgramParts) -> Result<Self> {
        parts.checked(&[])
    }
}

/// The parts of a [`Function`], in any state.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionParts {
    program: ProgramParts,
    rules: Vec<Function>,
    #[serde(default)]
    convex: Vec<Convex>,
}

impl TryFrom<FunctionParts> for Function {
    type Error = Error;

    fn try_from(parts: FunctionParts) -> Result<Self> {
        let rules: Vec<Arc<Function>> = parts.rules.into_iter().map(Arc::new).collect();
        let function = Function { program: parts.program.checked(&rules)?, rules, convex: parts.convex };
        if depth(&function) > MAX_RULE_DEPTH {
            let reason = format!("derivative rules have rules {MAX_RULE_DEPTH} levels deep");
            return Err(Error::new(ErrorKind::InvalidProgram { reason }));
        }
        function.validate()?;
        Ok(function)
    }
}

fn depth(function: &Function) -> usize {
    function.rules.iter().map(|rule| 1 + depth(rule)).max().unwrap_or(0)
}

/// Writes the shared parts of rules once.
pub(crate) fn shared<S: Serializer>(rules: &[Arc<Function>], to: S) -> std::result::Result<S::Ok, S::Error> {
    rules.iter().map(|rule| &**rule).collect::<Vec<&Function>>().serialize(to)
}
