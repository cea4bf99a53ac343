//! The λ and θ a run was given to start from.

use crate::compiled::state::State;
use crate::{Error, Result};
use bilevel_graph::Array;

/// The given values, or the reason why they do not fit, which is reported when the run begins.
#[derive(Default)]
pub(crate) struct Given {
    pub lambda: Option<Result<Vec<Array>>>,
    /// Its trained leaves.
    pub theta: Option<Result<Vec<Array>>>,
}

impl Given {
    /// Returns the error of values that do not fit, or of a given θ in a run that starts it from scratch in every
    /// iteration.
    pub fn check(&self, cold: bool) -> Result<()> {
        for given in [&self.lambda, &self.theta] {
            given.as_ref().map_or(Ok(()), |given| given.as_ref().map(drop).map_err(Error::clone))?;
        }
        if cold && self.theta.is_some() {
            let reason = "θ starts from scratch in every iteration of this run; leave out .theta(…), or set only λ \
                with .start_from(…)";
            return Err(Error::Conflict { reason: reason.into() });
        }
        Ok(())
    }

    /// Puts a state there.
    pub fn place(&self, state: State) -> Result<State> {
        for (leaves, given) in [(&state.lambda, &self.lambda), (&state.theta, &self.theta)] {
            if let Some(Ok(arrays)) = given {
                leaves.write(arrays)?;
            }
        }
        Ok(state)
    }

    /// The checksum of the numbers; `None` if nothing was given.
    #[cfg(feature = "checkpoints")]
    pub fn checksum(&self) -> Option<u32> {
        let mut checksum = crc32fast::Hasher::new();
        let mut any = false;
        for (number, given) in [&self.lambda, &self.theta].into_iter().enumerate() {
            let Some(Ok(arrays)) = given else { continue };
            any = true;
            checksum.update(&[number as u8]);
            arrays.iter().for_each(|array| checksum.update(array.bytes()));
        }
        any.then(|| checksum.finalize())
    }
}
