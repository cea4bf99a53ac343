//! The placeholder for MPI in a build without it.

use crate::implementation::Implementation;
use bilevel_graph::{Communicator, Result, rank_error};

/// A rank that a launcher of MPI started; there is none in a build without the feature `mpi`, or on a system that is not Unix.
pub enum Mpi {}

impl Mpi {
    /// Refuses to join the other ranks.
    pub fn join(implementation: Implementation) -> Result<Self> {
        Err(rank_error(format!(
            "this rank was started by {}, and this program is built without MPI; build it with the feature 'mpi', or start it with torchrun",
            implementation.name()
        )))
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        match *self {}
    }

    fn size(&self) -> usize {
        match *self {}
    }

    fn gather(&self, _: &[u8], _: &[usize], _: &mut [u8]) -> Result<()> {
        match *self {}
    }

    fn exchange(&self, _: &[u8], _: &[usize], _: &mut [u8]) -> Result<()> {
        match *self {}
    }

    fn abort(&self, _: &str) {
        match *self {}
    }

    fn finish(&self) {
        match *self {}
    }
}
