//! Shows the planning of a case's program: the result of each pass, for the CPU or for a GPU. No GPU is needed.

use crate::cases::timed;
use crate::error::{BenchError, Result};
use crate::gpu;
use crate::planning::vit_b16;
use bilevel_cpu::cpu_target;
use bilevel_cuda::{GPU_PASSES, GpuPipeline, observe_passes};
use bilevel_graph::{Op, Precision, Program};
use bilevel_plan::{PASSES, Pass, Pipeline, RULES, Snapshot};

/// The case that is planned besides those of the CPU and of the GPU.
pub const VIT_STEP: &str = "vit_b16";

/// All names of cases.
pub fn names() -> Vec<&'static str> {
    [VIT_STEP].into_iter().chain(timed::NAMES).chain(gpu::NAMES).collect()
}

/// The machine that a program is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Machine {
    /// The CPU.
    Cpu,
    /// A GPU with cuDNN.
    Gpu,
}

impl Machine {
    /// The name for people.
    fn name(self) -> &'static str {
        match self {
            Machine::Cpu => "CPU",
            Machine::Gpu => "GPU",
        }
    }
}

/// The selection to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The case.
    pub case: String,
    /// Which of its programs, counted from 0; the one with the most products by default.
    pub program: Option<usize>,
    /// The machine.
    pub target: Machine,
    /// The precision of the cases of the GPU and of the step of ViT-B/16.
    pub precision: Precision,
    /// Passes and rules that are switched off.
    pub without: Vec<String>,
    /// The pass whose result is printed; a table of all passes by default.
    pub print_after: Option<String>,
}

/// Every pass of both machines: from a program to a schedule, and from a schedule to the steps of a GPU.
fn passes() -> impl Iterator<Item = &'static Pass> {
    PASSES.iter().chain(GPU_PASSES.iter().map(|(_, pass)| pass))
}

/// The names of all passes.
pub fn pass_names() -> Vec<&'static str> {
    passes().map(|pass| pass.name).collect()
}

/// Prints every pass with its contract, and every rule that can be switched off.
pub fn list() {
    for pass in passes() {
        if pass.name == GPU_PASSES[0].1.name {
            say!("\npasses from a schedule to the steps of a GPU\n");
        }
        say!("{}{}", pass.name, if pass.needed.is_some() { "" } else { " (can be switched off)" });
        say!("    before: {}\n    after:  {}\n    place:  {}", pass.requires, pass.ensures, pass.placed);
    }
    say!("\nrules of lowering and of memory, each of which can be switched off");
    for rule in &RULES {
        say!("{}\n    after:  {}", rule.name, rule.ensures);
    }
}

/// Prints the program after a pass, or a table of the effect of every one.
pub fn show(shown: &Shown) -> Result<()> {
    let mut programs = match &shown.case[..] {
        VIT_STEP => vec![vit_b16::vit_b16_step()?.with_precision(shown.precision)],
        case if timed::NAMES.contains(&case) => timed::programs(case)?.into_iter().map(|timed| timed.program).collect(),
        case => gpu::programs(case, shown.precision)?,
    };
    let count = programs.len();
    let products =
        |program: &Program| program.nodes.iter().filter(|node| matches!(node.op, Op::Dot(..) | Op::Conv(..))).count();
    let largest = (0..count).max_by_key(|&number| (products(&programs[number]), programs[number].nodes.len()));
    let number = shown.program.or(largest).filter(|&number| number < count).ok_or_else(|| BenchError::Wrong {
        case: shown.case.clone(),
        what: format!("it has {count} programs, counted from 0"),
    })?;
    let program = programs.swap_remove(number);
    let Some(name) = &shown.print_after else {
        say!("{}, program {number} of {count}, for the {}", shown.case, shown.target.name());
        return table(shown, &program);
    };
    let mut text = None;
    observe(shown, &program, &mut |pass, left| {
        if pass.name == name {
            text = Some(left.to_string());
        }
    })?;
    say!("{}", text.unwrap_or_else(|| format!("the pass '{name}' did not run")));
    Ok(())
}

/// Prints the operations, groups and bytes that every pass leaves.
fn table(shown: &Shown, program: &Program) -> Result<()> {
    say!("{:<18} {:>10} {:>8} {:>16}", "pass", "operations", "groups", "bytes written");
    let (mut lines, mut seen): (Vec<String>, Vec<&str>) = (vec![], vec![]);
    let memory = observe(shown, program, &mut |pass, left| {
        // The pipeline started again.
        if seen.contains(&pass.name) {
            (lines, seen) = (vec![], vec![]);
        }
        let groups = left.groups().map_or("-".into(), |groups| groups.to_string());
        let (operations, bytes) = (left.operations(), left.bytes_written());
        lines.push(format!("{:<18} {operations:>10} {groups:>8} {bytes:>16}", pass.name));
        seen.push(pass.name);
    })?;
    lines.iter().for_each(|line| say!("{line}"));
    say!("memory: {memory}");
    Ok(())
}

/// Plans a program, shows the result of every pass, and describes its memory.
fn observe(shown: &Shown, program: &Program, show: &mut dyn FnMut(&'static Pass, &dyn Snapshot)) -> Result<String> {
    let (bound, kept, arena) = match shown.target {
        Machine::Cpu => {
            let pipeline = shown.without.iter().try_fold(Pipeline::new(), |pipeline, name| pipeline.without(name))?;
            let schedule = pipeline.observe(program, &cpu_target(None), show)?;
            let map = schedule.lay_out(&vec![0; schedule.groups().len()])?;
            (map.bound_bytes, map.persistent_bytes, map.arena_bytes)
        }
        Machine::Gpu => {
            let passes = shown.without.iter().try_fold(GpuPipeline::new(), |passes, name| passes.without(name))?;
            let planned = observe_passes(program, &passes, show)?;
            (planned.bound, planned.kept, planned.arena)
        }
    };
    Ok(format!("{bound} bytes of inputs and outputs, {kept} kept between runs, {arena} in the arena"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_cases_have_one_name() {
        let names = names();
        assert!(names.iter().enumerate().all(|(i, name)| !names[..i].contains(name)), "{names:?}");
    }

    #[test]
    fn a_small_case_is_shown_for_both_machines_and_a_pass_that_is_needed_stays_on() {
        let shown = |target, print_after: Option<&str>, without: &[&str]| {
            show(&Shown {
                case: "digits".into(),
                program: None,
                target,
                precision: Precision::Full,
                without: without.iter().map(|name| name.to_string()).collect(),
                print_after: print_after.map(str::to_string),
            })
        };
        for target in [Machine::Cpu, Machine::Gpu] {
            shown(target, None, &[]).unwrap();
            shown(target, Some("fuse"), &["licm", "pad-sum"]).unwrap();
        }
        shown(Machine::Gpu, Some("memory"), &["rotation", "concat-in-place", "streams"]).unwrap();
        shown(Machine::Gpu, Some("channels-last"), &[]).unwrap();
        let said = shown(Machine::Cpu, None, &["fuse"]).unwrap_err().to_string();
        assert!(said.contains("only groups can run"), "{said}");
    }
}
