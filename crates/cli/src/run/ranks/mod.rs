//! The ranks of this command, if a launcher started several: only rank 0 prints and writes.
//!
//! An error on all ranks, such as a setting out of range, is printed by rank 0 alone. An error on one rank ends all of
//! them: that rank prints it and ends the launch, because the others would wait for it.
//! All ranks compute a run together. They share out the items of a study, and each computes its own items alone.

mod items;

use crate::errors::{CliError, Result};
use crate::run::study::side_by_side::cores;
use crate::terminal::readable::escaped;
use bilevel_graph::{Executor, Link};
use bilevel_ranks::{Launch, Ranks};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time that a rank waits for rank 0 to print an error before it prints its own.
const PATIENCE: Duration = Duration::from_secs(2);

static LAUNCH: OnceLock<Option<Launch>> = OnceLock::new();
static LINK: OnceLock<Link> = OnceLock::new();
static THREADS: OnceLock<usize> = OnceLock::new();
/// The other ranks were left.
static LEFT: AtomicBool = AtomicBool::new(false);

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
        let link = launch.join().map_err(bilevel::Error::from)?;
        let _ = THREADS.set(share_of_cores(&link)?);
        let _ = LINK.set(link);
    }
    Ok(())
}

/// Returns true for a rank that neither prints nor writes.
pub fn follows() -> bool {
    launch().is_some_and(|launch| launch.rank > 0)
}

/// The other ranks, while they are joined; `None` if there are none.
pub fn link() -> Option<&'static Link> {
    LINK.get().filter(|_| !LEFT.load(Ordering::SeqCst))
}

/// Refuses a command that several ranks cannot share.
pub fn refuse() -> Result<()> {
    let Some(launch) = launch() else { return Ok(()) };
    Err(CliError::Usage(format!(
        "only 'bilevel run', 'resume', 'compare' and 'reproduce' run on several ranks, but {} started {}; give this \
            command without a launcher",
        launch.launcher, launch.size
    )))
}

/// The executor of a rank, which computes every program together with the others.
pub fn together(executor: Arc<dyn Executor>) -> Arc<dyn Executor> {
    match link() {
        Some(link) => Arc::new(Ranks::new(&executor, link.clone())),
        None => executor,
    }
}

/// Default number of threads of a rank: its share of the machine's cores, unless the launcher has given it some of
/// them.
pub fn threads() -> usize {
    THREADS.get().copied().unwrap_or_else(cores)
}

fn share_of_cores(link: &Link) -> Result<usize> {
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
    agree("version", env!("CARGO_PKG_VERSION"), "start all ranks with one command")?;
    agree("configuration", configuration, "start all ranks with one command, and give them the same files")
}

/// Refuses to continue if a rank has a text other than rank 0's, and names the first line that differs, with the remedy.
fn agree(what: &str, text: &str, advice: &str) -> Result<()> {
    let Some(link) = link() else { return Ok(()) };
    let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let all = link.numbers(digest).map_err(bilevel::Error::from)?;
    let Some(other) = all.iter().position(|&other| other != all[0]) else { return Ok(()) };
    let texts = link.bytes(text.as_bytes()).map_err(bilevel::Error::from)?;
    let [first, theirs] = [0, other].map(|rank| String::from_utf8_lossy(&texts[rank]));
    let [ours, theirs] = first_difference(&first, &theirs).map(escaped);
    Err(CliError::Usage(format!(
        "rank {other} has another {what} than rank 0: '{theirs}' instead of '{ours}'; {advice}"
    )))
}

/// The first lines in which two texts differ, without what a comment says of them.
fn first_difference<'a>(a: &'a str, b: &'a str) -> [&'a str; 2] {
    let mut others = b.lines();
    for line in a.lines() {
        let other = others.next().unwrap_or("nothing");
        if line != other {
            return [line, other].map(|line| line.split(" # ").next().unwrap_or(line).trim());
        }
    }
    ["nothing", others.next().unwrap_or("nothing")]
}

/// The path that rank 0 makes; the other ranks wait for it and receive it.
pub fn of_the_first(make: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    let Some(link) = link() else { return make() };
    let own = if follows() { String::new() } else { make()?.to_string_lossy().into_owned() };
    let all = link.bytes(own.as_bytes()).map_err(bilevel::Error::from)?;
    Ok(PathBuf::from(String::from_utf8_lossy(&all[0]).into_owned()))
}

/// Waits for the other ranks.
pub fn meet() -> Result<()> {
    Ok(link().map_or(Ok(()), |link| link.barrier()).map_err(bilevel::Error::from)?)
}

/// Leaves the other ranks, or ends them if only this one has failed.
pub fn end(result: &Result<()>) {
    let Some(link) = link() else { return };
    match result {
        Ok(()) => link.finish(),
        // All ranks know.
        Err(error) if error.is_a_stop() => link.finish(),
        Err(CliError::Diverged { .. } | CliError::CheckFailed(_)) => link.finish(),
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

/// Leaves the other ranks, or ends them for this reason: for a program that has called [`join`].
pub fn leave(failure: Option<&str>) {
    match (link(), failure) {
        (None, _) => {}
        (Some(link), None) => link.finish(),
        (Some(link), Some(reason)) => link.abort(reason),
    }
    LEFT.store(true, Ordering::SeqCst);
}

/// The ranks in one line.
pub fn described() -> Option<String> {
    let launch = launch()?;
    Some(format!("{} ranks, started by {}", launch.size, launch.launcher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_texts_differ_in_a_line_or_in_their_length() {
        let (a, b) = ("seed = 0   # the seed\nchains = 1\n", "seed = 7   # the seed\nchains = 1\n");
        assert_eq!(first_difference(a, b), ["seed = 0", "seed = 7"]);
        assert_eq!(first_difference("0.2.0", "0.3.0"), ["0.2.0", "0.3.0"]);
        assert_eq!(first_difference("a\nb", "a"), ["b", "nothing"]);
        assert_eq!(first_difference("a", "a\nb"), ["nothing", "b"]);
    }
}
