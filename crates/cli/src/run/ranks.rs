//! The ranks of this command, if a launcher started several: only rank 0 prints and writes.
//!
//! An error on all ranks, such as a setting out of range, is printed by rank 0 alone. An error on one rank ends all of
//! them: that rank prints it and ends the launch, because the others would wait for it.

use crate::errors::{CliError, Result};
use crate::run::side_by_side::cores;
use bilevel_graph::{Executor, Link};
use bilevel_ranks::{Launch, Ranks};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time that a rank waits for rank 0 to print an error before it prints its own.
const PATIENCE: Duration = Duration::from_secs(2);

static LAUNCH: OnceLock<Option<Launch>> = OnceLock::new();
static LINK: OnceLock<Link> = OnceLock::new();

/// The launch that this process belongs to; `None` if it was started alone.
pub fn launch() -> Option<&'static Launch> {
    LAUNCH.get().and_then(Option::as_ref)
}

/// Looks for a launcher.
pub fn detect() -> Result<()> {
    let launch = Launch::detect().map_err(bilevel::Error::from)?;
    let _ = LAUNCH.set(launch);
    Ok(())
}

/// Joins the other ranks, if there are any.
pub fn join() -> Result<()> {
    if let (Some(launch), None) = (launch(), LINK.get()) {
        let _ = LINK.set(launch.join().map_err(bilevel::Error::from)?);
    }
    Ok(())
}

/// Returns true for a rank that neither prints nor writes.
pub fn follows() -> bool {
    launch().is_some_and(|launch| launch.rank > 0)
}

/// Refuses a command that several ranks cannot share.
pub fn refuse() -> Result<()> {
    let Some(launch) = launch() else { return Ok(()) };
    Err(CliError::Usage(format!(
        "only 'bilevel run' and 'bilevel resume' are shared out over ranks, and {} started {}; give this command without a launcher",
        launch.launcher, launch.size
    )))
}

/// The executor of a rank, which computes every program together with the others.
pub fn together(executor: Arc<dyn Executor>) -> Arc<dyn Executor> {
    match LINK.get() {
        Some(link) => Arc::new(Ranks::new(&executor, link.clone())),
        None => executor,
    }
}

/// Default number of threads of a rank: its share of the machine's cores, unless the launcher has given it some of
/// them.
pub fn threads() -> Result<usize> {
    let Some(link) = LINK.get() else { return Ok(cores()) };
    let machine = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let machine = machine.iter().fold(0u64, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let all = link.numbers(machine).map_err(bilevel::Error::from)?;
    let here = all.iter().filter(|&&other| other == machine).count();
    let online = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let online = online.lines().filter(|line| line.starts_with("processor")).count();
    let is_bound = online > cores();
    Ok(if is_bound { cores() } else { (cores() / here.max(1)).max(1) })
}

/// Refuses to begin if a rank has another version or another configuration, given as its text.
pub fn agree_on(configuration: &str) -> Result<()> {
    let Some(link) = LINK.get() else { return Ok(()) };
    let version = env!("CARGO_PKG_VERSION");
    for (what, text) in [("version", version), ("configuration", configuration)] {
        let digest =
            text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let all = link.numbers(digest).map_err(bilevel::Error::from)?;
        if let Some(other) = all.iter().position(|&other| other != all[0]) {
            return Err(CliError::Usage(format!(
                "rank {other} has another {what} than rank 0; start all ranks with one command, and give them the same files"
            )));
        }
    }
    Ok(())
}

/// Leaves the other ranks, or ends them if only this one has failed.
pub fn end(result: &Result<()>) {
    let Some(link) = LINK.get() else { return };
    match result {
        Ok(()) | Err(CliError::Stopped { .. } | CliError::Diverged { .. }) => link.finish(),
        Err(error) => {
            if follows() {
                // If all have failed in the same way, rank 0 prints the error and ends the others.
                std::thread::sleep(PATIENCE);
                crate::say_whatever(&format!("rank {}: {error}", link.rank()));
            }
            link.abort(&error.to_string());
        }
    }
}

/// The ranks in one line.
pub fn described() -> Option<String> {
    let launch = launch()?;
    Some(format!("{} ranks, started by {}", launch.size, launch.launcher))
}
