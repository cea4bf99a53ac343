//! The verifier's rule for rewrites of a program: the same inputs, outputs and carries, and operations that fit together.

use crate::ir::verify::{broken, require};
use bilevel_graph::{Meta, Port, Program, Result};

/// Checks a rewritten program against the program before the pass.
pub(crate) fn verify_rewrite(old: &Program, new: &Program) -> Result<()> {
    new.validate().map_err(|error| broken(format!("a rewritten program is not valid: {error}")))?;
    let ports = |ports: &[Port]| -> Vec<(String, Meta)> {
        ports.iter().map(|port| (port.name.clone(), port.meta.clone())).collect()
    };
    for (what, old, new) in [("inputs", &old.inputs, &new.inputs), ("outputs", &old.outputs, &new.outputs)] {
        let (old, new) = (ports(old), ports(new));
        require(old == new, || format!("a rewritten program has the {what} {new:?} instead of {old:?}"))?;
    }
    let carried = |program: &Program| program.carries.iter().map(|carry| carry.input).collect::<Vec<_>>();
    require(carried(old) == carried(new), || {
        format!("a rewritten program carries the inputs {:?} instead of {:?}", carried(new), carried(old))
    })?;
    require(old.step == new.step, || "a rewritten program has another step number".into())
}
