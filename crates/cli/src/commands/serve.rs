//! `bilevel serve`: a page with all runs on 127.0.0.1, until Ctrl-C.

use crate::arguments::Serve;
use crate::errors::{CliError, Result};
use crate::serve::Server;
use crate::terminal::interrupt::end_on_interrupt;
use crate::terminal::readable::escaped_path;
use bilevel_run::Registry;
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Runs the command.
pub fn serve(registry: &Registry, arguments: &Serve, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let folder = &arguments.folder;
    std::fs::read_dir(folder).map_err(|error| CliError::file("show the runs of", folder, &error))?;
    let server = Server::listen(arguments.port)?;
    if !quiet {
        writeln!(out, "the runs in {} are at {}", escaped_path(folder), server.address())?;
        writeln!(out, "press Ctrl-C to stop; the server is read-only")?;
        out.flush()?;
    }
    end_on_interrupt(Arc::new(Mutex::new(())), |()| "no longer shown".into())?;
    server.serve(registry, folder);
    Ok(())
}
