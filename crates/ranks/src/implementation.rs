//! The implementations of MPI, whose launchers are recognised whether or not MPI can be used.

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Open MPI, whose handles are addresses.
    OpenMpi,
    /// MPICH and those that share its binary interface, such as Intel MPI; handles are integers.
    Mpich,
}

impl Implementation {
    /// The library's name on Linux.
    #[cfg(all(unix, feature = "mpi"))]
    pub(crate) const fn library(self) -> &'static str {
        match self {
            Implementation::OpenMpi => "libmpi.so.40",
            Implementation::Mpich => "libmpich.so.12",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Implementation::OpenMpi => "Open MPI",
            Implementation::Mpich => "MPICH",
        }
    }
}
