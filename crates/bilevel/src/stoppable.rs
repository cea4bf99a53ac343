//! Programs that answer a stop signal within their loops.
//!
//! A hypergradient may take many thousand steps in one call, and whoever pressed Ctrl-C does not want to wait for them. So a
//! loop is run in stretches, and between them the signal is looked at. A stretch becomes longer while it takes less than
//! [`STRETCH`], or than [`SHARES`] times what each call of the program pays once, so a program whose calls fit into one stretch
//! pays for a look at a flag and no more. The results are the same to the bit, for what is carried stays in the program's
//! memory between calls.

use crate::stopping::StopSignal;
use bilevel_graph::{Array, Error, ErrorKind, Executor, Program, Result, Runnable};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A stretch that takes less than this may become longer.
const STRETCH: Duration = Duration::from_millis(25);
/// So many times what a call pays once, before its first step, a stretch may take as well.
const SHARES: u32 = 5;

/// An executor whose programs stop when the signal is set.
pub(crate) struct Stoppable<'a> {
    pub executor: &'a dyn Executor,
    pub signal: StopSignal,
}

impl Executor for Stoppable<'_> {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        let run = self.executor.compile(program)?;
        Ok(Box::new(StoppableRun { run, signal: self.signal.clone(), stretch: 1, pace: Pace::Cold }))
    }
}

/// What is known of how long a stretch takes.
#[derive(Clone, Copy)]
enum Pace {
    /// Nothing: the first call touches memory for the first time.
    Cold,
    /// The second step is about to be timed.
    Warm,
    /// One step took this.
    One(Duration),
    /// A stretch should take this.
    Goal(Duration),
}

/// Every method of the trait is handed on, so that what an executor does better than the default is kept.
struct StoppableRun {
    run: Box<dyn Runnable>,
    signal: StopSignal,
    /// Steps run without a look at the signal.
    stretch: u32,
    pace: Pace,
}

impl StoppableRun {
    fn one(&mut self, steps: Range<u32>) -> Result<()> {
        match self.signal.is_set() {
            true => Err(Error::new(ErrorKind::Stopped)),
            false => self.run.run(steps),
        }
    }

    /// Decides on the length of the next stretch from what the last one took.
    fn learn(&mut self, took: Duration) {
        self.pace = match self.pace {
            Pace::Cold => Pace::Warm,
            Pace::Warm => {
                self.stretch = 2;
                Pace::One(took)
            }
            // Two calls with a step each pay twice what one call with two pays once.
            Pace::One(one) => Pace::Goal(STRETCH.max((2 * one).saturating_sub(took) * SHARES)),
            goal => goal,
        };
        if let Pace::Goal(goal) = self.pace {
            if took < goal {
                self.stretch = self.stretch.saturating_mul(2);
            } else if took > 4 * goal {
                self.stretch = (self.stretch / 2).max(1);
            }
        }
    }
}

impl Runnable for StoppableRun {
    fn run(&mut self, steps: Range<u32>) -> Result<()> {
        let mut from = steps.start;
        while steps.end.saturating_sub(from) > self.stretch {
            let to = from + self.stretch;
            let began = Instant::now();
            self.one(from..to)?;
            from = to;
            self.learn(began.elapsed());
        }
        self.one(from..steps.end)
    }

    fn set(&mut self, input: usize, value: &Array) -> Result<()> {
        self.run.set(input, value)
    }

    fn read(&self, output: usize, into: &mut Array) -> Result<()> {
        self.run.read(output, into)
    }

    fn read_input(&self, input: usize, into: &mut Array) -> Result<()> {
        self.run.read_input(input, into)
    }

    fn program(&self) -> &Program {
        self.run.program()
    }

    fn output(&self, output: usize) -> Result<Array> {
        self.run.output(output)
    }

    fn input(&self, input: usize) -> Result<Array> {
        self.run.input(input)
    }
}
