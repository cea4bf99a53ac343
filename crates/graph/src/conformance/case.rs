//! A program with the values of its inputs, and whether an executor gives the results it must.

use super::agreement::{Failure, Mismatch, agree};
use crate::{Array, Executor, Program, Reference, Result, Runnable};

/// Values of inputs by their names.
pub type Inputs = Vec<(String, Array)>;

/// A way to run this many steps.
type Steps = fn(&mut dyn Runnable, u32) -> Result<()>;

/// A program with the values of its inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; of a random one, the seed is part of it.
    pub name: String,
    /// The program.
    pub program: Program,
    /// The values of its inputs; those of names the program does not have are passed over.
    pub inputs: Inputs,
    /// How many steps are run.
    pub steps: u32,
    /// How far each result of [`results`] may be from the reference's, relative to the largest of its array (at least 1);
    /// 0 where its bits are determined.
    pub tolerances: Vec<f64>,
}

impl Case {
    /// What the [`Reference`] computes.
    pub fn expected(&self) -> Result<Vec<Array>> {
        outputs(&Reference, &self.program, &self.inputs, self.steps)
    }

    /// Compares this executor with the [`Reference`]: compiled again, run a second time on the same memory, run step by
    /// step, and advanced to the last step, which must all give the same bits.
    ///
    /// ```
    /// use bilevel_graph::conformance::{Size, random_program};
    /// use bilevel_graph::{DType, Graph, Reference};
    /// random_program(1, &Graph::new(), DType::F64, Size::small)?.check(&Reference)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, executor: &dyn Executor) -> std::result::Result<(), Failure> {
        let expected = self.expected().map_err(|error| self.refused(error))?;
        let found = self.run(executor)?;
        agree(&found, &expected, &self.tolerances).map_err(|mismatch| self.failed(mismatch))
    }

    /// The executor's results, after seeing that those of a second run, of single steps, and of a last step after others whose
    /// outputs were not asked for have the same bits.
    pub fn run(&self, executor: &dyn Executor) -> std::result::Result<Vec<Array>, Failure> {
        let refused = |error| self.refused(error);
        let mut run = executor.compile(&self.program).map_err(refused)?;
        let whole: Steps = |run, steps| run.run(0..steps);
        let one_by_one: Steps = |run, steps| (0..steps).try_for_each(|step| run.run(step..step + 1));
        let last_alone: Steps = |run, steps| {
            let last = steps.saturating_sub(1);
            run.advance(0..last)?;
            run.run(last..steps)
        };
        let mut turn = |steps: Steps| -> Result<Vec<Array>> {
            set_all(&mut *run, &self.inputs)?;
            steps(&mut *run, self.steps)?;
            results(&*run)
        };
        let found = turn(whole).map_err(refused)?;
        for steps in [whole, one_by_one, last_alone] {
            let again = turn(steps).map_err(refused)?;
            let exactly = vec![0.0; found.len()];
            agree(&again, &found, &exactly).map_err(|mismatch| self.failed(Mismatch::Again(Box::new(mismatch))))?;
        }
        Ok(found)
    }

    /// A failure of this case.
    pub fn failed(&self, mismatch: Mismatch) -> Failure {
        Failure { case: self.name.clone(), mismatch }
    }

    fn refused(&self, error: crate::Error) -> Failure {
        self.failed(Mismatch::Refused(Box::new(error)))
    }
}

/// Compiles a program, sets its inputs, runs this many steps and reads the [`results`].
pub fn outputs(executor: &dyn Executor, program: &Program, inputs: &Inputs, steps: u32) -> Result<Vec<Array>> {
    let mut run = executor.compile(program)?;
    set_all(&mut *run, inputs)?;
    run.run(0..steps)?;
    results(&*run)
}

/// Sets every input the program has.
pub fn set_all(run: &mut dyn Runnable, inputs: &Inputs) -> Result<()> {
    for (name, value) in inputs {
        if let Ok(input) = run.program().input(name) {
            run.set(input, value)?;
        }
    }
    Ok(())
}

/// All outputs, then what every carried input holds.
pub fn results(run: &dyn Runnable) -> Result<Vec<Array>> {
    let mut all = (0..run.program().outputs.len()).map(|i| run.output(i)).collect::<Result<Vec<_>>>()?;
    for carry in &run.program().carries {
        all.push(run.input(carry.input)?);
    }
    Ok(all)
}
