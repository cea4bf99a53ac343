//! Descriptions and profiles of compiled programs.

use crate::compile::step::{Call, Step, Work};
use crate::runtime::capture::Captured;
use crate::runtime::device::BRANCH;
use crate::runtime::run::{CudaRun, GraphSegment};
use bilevel_gpu::compile::step::Span;
use bilevel_gpu::schedule::streams::{critical_path, dependencies};
use bilevel_graph::{Result, Runnable};

impl CudaRun {
    /// Returns one line per step, which shows the result of fusion.
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
            self.planned.plan.kernels().map(|launch| &launch.kernel).collect::<std::collections::HashSet<_>>().len()
        );
        memory
            + &part("once", &self.planned.plan.prologue)
            + &part("first", &self.planned.plan.initial_casts)
            + &part("step", &self.planned.plan.body)
            + &part("end", &self.planned.plan.finish)
    }

    /// Runs each step of an iteration by itself, `times` times in a row as a graph, and returns its time.
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
            // SAFETY: as in `execute`; the results are not used.
            let graph = unsafe {
                let put = || (0..times).try_for_each(|_| planned.start(step, ready, &bases, BRANCH));
                Captured::new(device.stream(BRANCH), put)?
            };
            // The first run loads kernels, and clocks rise: the best run counts.
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

/// A step and its time by itself.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// A short description.
    pub what: String,
    /// Its time.
    pub seconds: f64,
    /// Whether it is on the critical path.
    pub decisive: bool,
}

/// Returns a short description of a step.
fn described(step: &Step) -> String {
    match &step.work {
        Work::Kernel(launch) => {
            let megabytes = |spans: &[Span]| spans.iter().map(|span| span.bytes).sum::<usize>() as f64 / 1e6;
            format!(
                "kernel {}x{} of {}, {:.1} MB read, {:.1} written, {} statements, {:?}",
                launch.grid[0],
                launch.grid[1],
                launch.kernel.block,
                megabytes(&step.reads),
                megabytes(&step.writes),
                launch.kernel.length(),
                launch.kernel.parts.iter().collect::<Vec<_>>()
            )
        }
        Work::Library(Call::Gemm(p)) => {
            format!(
                "product {} x {} x {} of {:?} in {}, {} of them",
                p.m, p.n, p.k, p.math.operands, p.math.precision, p.batch
            )
        }
        Work::Library(Call::Convolution { geometry, .. }) => format!("convolution {geometry:?}"),
        Work::Copy { bytes, .. } => format!("copy of {bytes} bytes"),
    }
}
