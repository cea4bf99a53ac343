//! Ctrl-C, and the system's request to end. The first stops the work at the next good place; the second, or a
//! time limit, ends the process. Work that has nothing to save ends with the first. Each prints its effect at once.

use crate::errors::{CliError, Result, STOPPED};
use bilevel::observers::StopSignal;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Work that has not stopped after this time hangs, for example on a pipe that is not read, and is ended. A machine
/// that shuts down sends only one request.
const PATIENCE: Duration = Duration::from_secs(20);

static QUIET: AtomicBool = AtomicBool::new(false);

/// Nothing is said at the first Ctrl-C if this is true.
pub fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::SeqCst);
}

/// A signal that Ctrl-C, or the system's request to end, sets.
pub fn stop_on_interrupt() -> Result<StopSignal> {
    listen("stopped at once; everything saved so far is kept".into())
}

/// The same for one run, kept in this folder.
pub fn stop_run_on_interrupt(folder: &Path) -> Result<StopSignal> {
    listen(format!("stopped at once; 'bilevel resume {}' continues from its last checkpoint", folder.display()))
}

/// Makes Ctrl-C end the process at once with this sentence, for work that has nothing to save. It waits for the holder
/// of the lock, so that no file or line is cut off.
pub fn end_on_interrupt<T: Send + 'static>(
    held: Arc<Mutex<T>>,
    sentence: impl Fn(&T) -> String + Send + 'static,
) -> Result<()> {
    handle(move || {
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        end(&sentence(&held));
    })
}

fn listen(again: String) -> Result<StopSignal> {
    let signal = StopSignal::new();
    let shared = signal.clone();
    handle(move || {
        if shared.is_set() {
            end(&again);
        }
        // Before the work can notice and end the process.
        if !QUIET.load(Ordering::SeqCst) {
            say("stopping; press Ctrl-C again to stop at once");
        }
        shared.stop();
        let late = again.clone();
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE);
            end(&late);
        });
    })?;
    Ok(signal)
}

type Handler = Box<dyn FnMut() + Send>;

/// The present handler; with several commands in one process, that of the last.
static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);

fn handle(handler: impl FnMut() + Send + 'static) -> Result<()> {
    let mut current = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    if current.is_none() {
        let interrupted = || {
            if let Some(handler) = HANDLER.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                handler();
            }
        };
        let failed = |error| CliError::Usage(format!("cannot listen for Ctrl-C: {error}"));
        ctrlc::set_handler(interrupted).map_err(failed)?;
    }
    *current = Some(Box::new(handler));
    Ok(())
}

/// Ends the process with this sentence and keeps the lock, so that nothing else is printed.
fn end(sentence: &str) -> ! {
    let _held = std::io::stderr().lock();
    say(sentence);
    std::process::exit(STOPPED.into());
}

/// Prints on a separate line, even if a progress line is shown.
fn say(sentence: &str) {
    let mut stderr = std::io::stderr().lock();
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(stderr, "{clear}bilevel: {}", crate::terminal::readable::one_line(sentence));
}
