//! The passes from a schedule to the steps of a plan, in order, with their contracts.
//!
//! They follow those of `bilevel-plan` ([`bilevel_plan::PASSES`]), and [`GpuPipeline`] can leave out any of both that only
//! make a program faster or smaller.

use crate::schedule::streams::STREAMS;
use bilevel_graph::{Error, ErrorKind, Result};
use bilevel_plan::{PASSES, Pass, Pipeline, RULES};

/// A pass from a schedule to steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuPass {
    /// Finds the workspaces.
    Workspaces,
    /// Pipelines a loop by rotating copies.
    Rotation,
    /// Pipelines a loop in two stages.
    Stages,
    /// Assigns memory and makes the steps of an iteration.
    Memory,
    /// Adds the copies at the end of an iteration.
    EndOfStep,
    /// Joins equal kernels.
    HorizontalFusion,
    /// Assigns streams.
    Streams,
}

/// Every pass from a schedule to steps, in the order in which they run.
pub const GPU_PASSES: [(GpuPass, Pass); 7] = [
    (
        GpuPass::Workspaces,
        Pass {
            name: "workspaces",
            requires: "the schedule is final",
            ensures: "the bytes of workspace of every group are known, from a dry run of code generation",
            placed: "first: no memory is assigned without them",
            needed: Some("a group's workspace is part of the memory map"),
        },
    ),
    (
        GpuPass::Rotation,
        Pass {
            name: "rotation",
            requires: "workspaces are known",
            ensures: "if carried values are known early and memory suffices, iterations overlap on rotating copies",
            placed: "before stages: it decides the memory and the steps of a loop whose arena is small",
            needed: None,
        },
    ),
    (
        GpuPass::Stages,
        Pass {
            name: "stages",
            requires: "workspaces are known and no copies rotate",
            ensures: "if the late part of an iteration carries nothing to the early one, both overlap in memory of their own",
            placed: "after rotation, whose loops have no stages",
            needed: None,
        },
    ),
    (
        GpuPass::Memory,
        Pass {
            name: "memory",
            requires: "workspaces are known",
            ensures: "every value has a place, and every group its steps, unless a software pipeline has them",
            placed: "after the software pipelines, which assign memory in their own way",
            needed: Some("steps need addresses"),
        },
    ),
    (
        GpuPass::EndOfStep,
        Pass {
            name: "end-of-step",
            requires: "the steps of an iteration are known",
            ensures: "next values that are not updated in place are copied, the step is counted, and outputs get to their buffers",
            placed: "before horizontal fusion, which joins these small kernels",
            needed: Some("carried values and the step number change from step to step"),
        },
    ),
    (
        GpuPass::HorizontalFusion,
        Pass {
            name: "horizontal-fusion",
            requires: "all steps and the memory that they access are known",
            ensures: "independent short kernels with the same code are one launch, if the critical path is no longer for it",
            placed: "after the last pass that adds steps",
            needed: None,
        },
    ),
    (
        GpuPass::Streams,
        Pass {
            name: "streams",
            requires: "steps are final and in an executable order",
            ensures: "independent steps of an iteration run on several streams, the critical path on the first",
            placed: "last: it changes no step",
            needed: None,
        },
    ),
];

/// The passes to run, from a program to steps.
///
/// ```
/// use bilevel_gpu::compile::passes::GpuPipeline;
/// let plain = GpuPipeline::new().without("streams").unwrap().without("remat").unwrap();
/// assert_ne!(plain, GpuPipeline::new());
/// let said = GpuPipeline::new().without("memory").unwrap_err().to_string();
/// assert_eq!(said, "not supported: a pipeline without the pass 'memory': steps need addresses");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuPipeline {
    schedule: Pipeline,
    off: Vec<GpuPass>,
}

impl GpuPipeline {
    /// All passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// All passes but those that take memory so that iterations can overlap.
    pub fn sequential() -> Self {
        GpuPipeline { off: vec![GpuPass::Rotation, GpuPass::Stages], ..Self::default() }
    }

    /// The same without a pass, or a rule, of this name; an error if there is none, or if the result would be wrong
    /// without it.
    pub fn without(mut self, name: &str) -> Result<Self> {
        match GPU_PASSES.iter().find(|(_, pass)| pass.name == name) {
            Some((_, Pass { needed: Some(reason), .. })) => {
                refused(format!("a pipeline without the pass '{name}': {reason}"))
            }
            Some(&(pass, _)) => {
                self.off.push(pass);
                Ok(self)
            }
            None if PASSES.iter().any(|pass| pass.name == name) || RULES.iter().any(|rule| rule.name == name) => {
                Ok(GpuPipeline { schedule: self.schedule.without(name)?, ..self })
            }
            None => {
                let names = PASSES.iter().map(|pass| pass.name).chain(GPU_PASSES.iter().map(|(_, pass)| pass.name));
                let names: Vec<&str> = names.chain(RULES.iter().map(|rule| rule.name)).collect();
                refused(format!("a pass named '{name}'; the passes and rules are {}", names.join(", ")))
            }
        }
    }

    /// Returns the passes from a program to a schedule.
    pub fn schedule(&self) -> &Pipeline {
        &self.schedule
    }

    /// Returns true if a pass is not switched off.
    pub fn has(&self, pass: GpuPass) -> bool {
        !self.off.contains(&pass)
    }

    /// Returns the number of streams for the steps of an iteration.
    pub fn streams(&self) -> usize {
        if self.has(GpuPass::Streams) { STREAMS } else { 1 }
    }
}

fn refused(what: String) -> Result<GpuPipeline> {
    Err(Error::new(ErrorKind::Unsupported { what }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_passes_or_rules_of_a_gpu_have_one_name_and_each_says_its_contract() {
        let names = PASSES.iter().map(|pass| pass.name).chain(GPU_PASSES.iter().map(|(_, pass)| pass.name));
        let names: Vec<&str> = names.chain(RULES.iter().map(|rule| rule.name)).collect();
        assert!(names.iter().enumerate().all(|(i, name)| !names[..i].contains(name)), "{names:?}");
        for (_, pass) in &GPU_PASSES {
            assert!([pass.requires, pass.ensures, pass.placed].iter().all(|text| text.len() > 15), "{}", pass.name);
        }
    }

    #[test]
    fn an_unknown_pass_is_refused_with_all_names() {
        let said = GpuPipeline::new().without("fusion").unwrap_err().to_string();
        assert!(["'fusion'", "gemm-gemm", "streams", "scaled-fp16"].iter().all(|name| said.contains(name)), "{said}");
    }
}
