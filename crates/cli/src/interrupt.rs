//! Ctrl-C: the first asks the work to stop at the next good place, the second ends the process. Both say so at once.

use crate::errors::{CliError, Result, STOPPED};
use bilevel::StopSignal;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);

/// Nothing is said at the first Ctrl-C if this is true.
pub fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::SeqCst);
}

/// A signal that Ctrl-C, or the system's request to end, sets.
pub fn stop_on_interrupt() -> Result<StopSignal> {
    listen("stopping after this iteration", "ended at once; what was saved before is kept".into())
}

/// The same for one run, kept in this folder.
pub fn stop_run_on_interrupt(folder: &Path) -> Result<StopSignal> {
    let again = format!("ended at once; 'bilevel resume {}' goes on from its last checkpoint", folder.display());
    listen("stopping after this iteration", again)
}

/// The same for a list of items.
pub fn stop_items_on_interrupt() -> Result<StopSignal> {
    listen("stopping as soon as possible", "ended at once; the items done before are kept".into())
}

fn listen(first: &'static str, again: String) -> Result<StopSignal> {
    let signal = StopSignal::new();
    let shared = signal.clone();
    let handler = move || {
        if shared.is_set() {
            say(&again);
            std::process::exit(STOPPED as i32);
        }
        shared.stop();
        if !QUIET.load(Ordering::SeqCst) {
            say(&format!("{first}; Ctrl-C again ends it now"));
        }
    };
    ctrlc::set_handler(handler).map_err(|error| CliError::Usage(format!("Ctrl-C cannot be listened for: {error}")))?;
    Ok(signal)
}

/// On a line of its own, also where a line of progress stands.
fn say(sentence: &str) {
    let mut stderr = std::io::stderr();
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(stderr, "{clear}bilevel: {}", crate::readable::one_line(sentence));
}
