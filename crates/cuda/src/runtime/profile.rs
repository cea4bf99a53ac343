//! What a planned program is made of, and how long its parts take.

use crate::compile::step::{Span, Step, Work};
use crate::runtime::capture::Captured;
use crate::runtime::device::BRANCH;
use crate::runtime::run::{CudaRun, GraphSegment};
use crate::schedule::streams::{critical_path, dependencies};
use bilevel_graph::{Result, Runnable};

impl CudaRun {
    /// A line for each step, for people who want to see what was fused.
    pub fn describe(&self) -> String {
        let part = |name: &str, steps: &[Step]| -> String {
            steps.iter().enumerate().map(|(i, step)| format!("{name} {i}: {}\n", described(step))).collect()
        };
        let memory = format!(
            "memory: {} bytes bound, {} kept, {} in the arena; {} kernels of {} texts\n",
            self.planned.plan.bound_bytes,
            self.planned.plan.persistent_bytes,
            self.planned.plan.arena_bytes,
            self.planned.plan.kernels().count(),
            self.planned.plan.kernels().map(|launch| &launch.source).collect::<std::collections::HashSet<_>>().len()
        );
        memory
            + &part("once", &self.planned.plan.prologue)
            + &part("first", &self.planned.plan.initial_casts)
            + &part("step", &self.planned.plan.body)
            + &part("end", &self.planned.plan.finish)
    }

    /// Runs each part of one step of the loop by itself, `times` times in a row as a recorded graph, and says how long
    /// it took; for profiles.
    pub fn profile(&mut self, times: u32) -> Result<Vec<Profiled>> {
        self.run(0..1)?;
        let CudaRun { bindings, planned } = self;
        let device = planned.device.clone();
        let scratch = device.scratch();
        let bases = planned.bases(bindings, scratch.start());
        let loops = !bindings.program().carries.is_empty();
        let (steps, body) = planned.segment(if loops { GraphSegment::CarryOnly } else { GraphSegment::Step });
        let mut found: Vec<Profiled> = vec![];
        for (step, ready) in steps.iter().zip(&body.ready) {
            // SAFETY: as in `execute`; what the steps compute is not used.
            let graph = unsafe {
                let put = || (0..times).try_for_each(|_| planned.start(step, ready, &bases, BRANCH));
                Captured::new(device.stream(BRANCH), put)?
            };
            // The first time loads kernels, and clocks rise: the best counts.
            let mut seconds = f64::INFINITY;
            for _ in 0..3 {
                device.wait()?;
                let start = std::time::Instant::now();
                // SAFETY: as above.
                unsafe { graph.start(device.queue())? };
                device.wait()?;
                seconds = seconds.min(start.elapsed().as_secs_f64() / f64::from(times));
            }
            found.push(Profiled { what: described(step), seconds, decisive: false });
        }
        let seconds: Vec<f64> = found.iter().map(|part| part.seconds).collect();
        critical_path(&dependencies(steps), &seconds).into_iter().for_each(|number| found[number].decisive = true);
        Ok(found)
    }
}

/// A part of a step, and how long it takes by itself.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// What it does, in a few words.
    pub what: String,
    /// How long it takes.
    pub seconds: f64,
    /// It is one of the parts that wait for each other the longest: the step cannot be faster than they are.
    pub decisive: bool,
}

/// A step in a few words.
fn described(step: &Step) -> String {
    match &step.work {
        Work::Kernel(launch) => {
            let body: Vec<&str> = launch.source.lines().skip(2).collect();
            let first = body.iter().find(|line| line.contains("op_") || line.contains("draw")).unwrap_or(&"");
            let megabytes = |spans: &[Span]| spans.iter().map(|span| span.bytes).sum::<usize>() as f64 / 1e6;
            format!(
                "kernel {}x{} of {}, {:.1} MB read, {:.1} written, {} lines: {}",
                launch.grid[0],
                launch.grid[1],
                launch.block,
                megabytes(&step.reads),
                megabytes(&step.writes),
                body.len(),
                first.trim()
            )
        }
        Work::Gemm(p) => {
            format!("product {} x {} x {} of {:?}, {} of them", p.m, p.n, p.k, p.factor, p.batch)
        }
        Work::Convolution { geometry, .. } => format!("convolution {geometry:?}"),
        Work::Copy { bytes, .. } => format!("copy of {bytes} bytes"),
    }
}
