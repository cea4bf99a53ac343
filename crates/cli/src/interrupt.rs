//! Ctrl-C: the first asks the run to stop after this iteration, the second ends the process.

use crate::errors::{CliError, Result, STOPPED};
use bilevel::StopSignal;

/// A signal that Ctrl-C, or the system's request to end, sets.
pub fn stop_on_interrupt() -> Result<StopSignal> {
    let signal = StopSignal::new();
    let shared = signal.clone();
    let handler = move || {
        if shared.is_set() {
            std::process::exit(STOPPED as i32);
        }
        shared.stop();
    };
    ctrlc::set_handler(handler).map_err(|error| CliError::Usage(format!("Ctrl-C cannot be listened for: {error}")))?;
    Ok(signal)
}
