//! Starting ranks under `mpirun`, for tests.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// `mpirun` with this program on this many ranks: as any user, on fewer cores than ranks if there are fewer.
/// `None` if there is no `mpirun`.
pub fn mpirun(ranks: usize, program: impl AsRef<OsStr>) -> Option<Command> {
    let there = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    there.ok().filter(|status| status.success())?;
    let mut command = Command::new("mpirun");
    command.args(["-n", &ranks.to_string()]).arg(program);
    // For Open MPI; another implementation passes them over.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    Some(command)
}

/// As [`mpirun`], for a test: without `mpirun` the test reports that and is skipped, except in CI, where it fails.
///
/// # Panics
/// If there is no `mpirun` and the variable `CI` is `true`.
pub fn mpirun_for_test(ranks: usize, program: impl AsRef<OsStr>) -> Option<Command> {
    let found = mpirun(ranks, program);
    if found.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI has no mpirun; install openmpi-bin");
        eprintln!("left out: there is no mpirun here; install openmpi-bin to run this test");
    }
    found
}
