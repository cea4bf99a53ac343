//! The text form of the steps of a plan: a line for each, with the work and the memory that it reads and writes.

use crate::compile::step::{LibraryCall, Span, Step, Work};
use bilevel_plan::{Place, Region, Snapshot};
use std::fmt::{Display, Formatter, Result};

/// Steps, by the part of a plan they are.
pub struct PlanSteps<'a, C> {
    /// The name of each part, and its steps.
    pub parts: Vec<(&'static str, &'a [Step<C>])>,
}

impl<C: LibraryCall> Snapshot for PlanSteps<'_, C> {
    fn operations(&self) -> usize {
        self.parts.iter().map(|(_, steps)| steps.len()).sum()
    }

    fn groups(&self) -> Option<usize> {
        None
    }

    fn bytes_written(&self) -> usize {
        let spans = self.parts.iter().flat_map(|(_, steps)| *steps).flat_map(|step| &step.writes);
        spans.fold(0, |sum, span| span.bytes.saturating_add(sum))
    }
}

impl<C: LibraryCall> Display for PlanSteps<'_, C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{} steps, {} bytes written", self.operations(), self.bytes_written())?;
        for (name, steps) in self.parts.iter().filter(|(_, steps)| !steps.is_empty()) {
            writeln!(f, "  {name}")?;
            for (number, step) in steps.iter().enumerate() {
                write!(f, "    {number}: ")?;
                match &step.work {
                    Work::Kernel(launch) => {
                        let (blocks, threads) =
                            (launch.grid[0] as usize * launch.grid[1] as usize, launch.kernel.block);
                        write!(f, "kernel of {blocks} blocks of {threads} threads")?;
                    }
                    Work::Library(call) => write!(f, "{} multiplications by a library", call.multiplications())?,
                    Work::Copy { bytes, .. } => write!(f, "copy of {bytes} bytes")?,
                }
                writeln!(f, ", reads {}, writes {}", spans(&step.reads), spans(&step.writes))?;
            }
        }
        Ok(())
    }
}

fn spans(spans: &[Span]) -> String {
    let one = |&Span { place: Place { region, offset }, bytes }: &Span| {
        let region = match region {
            Region::Input(number) => format!("input {number}"),
            Region::Output(number) => format!("output {number}"),
            Region::Persistent => "persistent".into(),
            Region::Arena => "arena".into(),
        };
        format!("{region}+{offset}..{}", offset + bytes)
    };
    format!("[{}]", spans.iter().map(one).collect::<Vec<_>>().join(", "))
}
