//! The built `bilevel` command: its path, and running it with a time limit.

use super::answer::Answer;
use super::place::Place;
use crate::error::{AttackError, Result};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// After this time a command is asked to stop: some random settings are honest work for minutes.
const LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to stop then: hundreds of times as long as it should, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The command under attack.
#[derive(Clone, Debug)]
pub struct Bilevel(PathBuf);

impl Bilevel {
    /// The given command, or else the one next to this program, rebuilt if cargo started this program.
    pub fn find(given: Option<&Path>) -> Result<Self> {
        if let Some(path) = given {
            let path = path.canonicalize().map_err(AttackError::file(path))?;
            return Ok(Bilevel(path));
        }
        let here = std::env::current_exe().map_err(AttackError::file(Path::new("this program")))?;
        if let Some(cargo) = std::env::var_os("CARGO") {
            build(&cargo)?;
        }
        let beside = here.with_file_name(format!("bilevel{}", std::env::consts::EXE_SUFFIX));
        if !beside.is_file() {
            return Err(AttackError::Command(format!(
                "there is no command at {}; build it with 'cargo build --release -p bilevel-cli', or give its path \
                    with --command",
                beside.display()
            )));
        }
        Ok(Bilevel(beside))
    }

    /// Starts it in a place; its output goes into files outside its folder.
    pub fn start(&self, place: &Place, line: &[OsString]) -> Result<Started> {
        let file = |name: &str| {
            let path = place.beside(name);
            File::create(&path).map_err(AttackError::file(&path))
        };
        let child = Command::new(&self.0)
            .args(line)
            .current_dir(place.seen())
            .env_remove("NO_COLOR")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(file("said")?)
            .stderr(file("complained")?)
            .spawn()
            .map_err(AttackError::file(&self.0))?;
        let (out, error) = (place.beside("said"), place.beside("complained"));
        Ok(Started { child, since: Instant::now(), line: line.to_vec(), out, error, interrupted: false })
    }

    /// Runs it to its end.
    pub fn run(&self, place: &Place, line: &[OsString]) -> Result<Answer> {
        self.start(place, line)?.end()
    }

    /// Runs it with plain words.
    pub fn say(&self, place: &Place, line: &[&str]) -> Result<Answer> {
        self.run(place, &line.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// Runs it with plain words if it has to succeed for the attack to continue; returns its output.
    pub fn prepare(&self, place: &Place, line: &[&str]) -> Result<String> {
        let answer = self.say(place, line)?;
        match (answer.code(), answer.faults(&[0]).first()) {
            (Some(0), None) => Ok(answer.out_text().into_owned()),
            (_, fault) => Err(AttackError::Command(format!(
                "nothing can be attacked, since {} fails on its own{}{}",
                answer.words(),
                fault.map_or(String::new(), |fault| format!(": {fault}")),
                answer.complaint().map_or(String::new(), |line| format!(" ({line})")),
            ))),
        }
    }
}

/// Builds the command in the profile this program was built in.
fn build(cargo: &OsString) -> Result<()> {
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "bilevel-cli", "--bin", "bilevel"]);
    command.args((!cfg!(debug_assertions)).then_some("--release"));
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    match built {
        Ok(status) if status.success() => Ok(()),
        _ => Err(AttackError::Command(
            "the command could not be built; see the output of 'cargo build -p bilevel-cli'".into(),
        )),
    }
}

/// A command that was started.
pub struct Started {
    child: Child,
    since: Instant,
    line: Vec<OsString>,
    out: PathBuf,
    error: PathBuf,
    interrupted: bool,
}

impl Started {
    /// True as long as it runs, for at most this long from now.
    pub fn goes_on_for(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        loop {
            if self.child.try_wait().map_err(AttackError::file(&self.out))?.is_some() {
                return Ok(false);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            std::thread::sleep(left.min(Duration::from_micros(500)));
        }
    }

    /// Ends it at once, as a crash would.
    pub fn kill(mut self) -> Result<()> {
        // One that ended by itself in the meantime is as good.
        let _ = self.child.kill();
        self.child.wait().map_err(AttackError::file(&self.out))?;
        Ok(())
    }

    /// Interrupts it, as Ctrl-C does.
    pub fn interrupt(&mut self) -> Result<()> {
        self.interrupted = true;
        let asked = Command::new("kill").args(["-INT", &self.child.id().to_string()]).stderr(Stdio::null()).status();
        asked.map_err(AttackError::file(Path::new("kill")))?;
        Ok(())
    }

    /// Waits for its end; one that takes long is asked to stop, and one that does not answer that is killed.
    pub fn end(mut self) -> Result<Answer> {
        let left = LIMIT.saturating_sub(self.since.elapsed());
        let mut timed_out = self.goes_on_for(left)?;
        if timed_out {
            self.interrupt()?;
            timed_out = self.goes_on_for(PATIENCE)?;
        }
        if timed_out {
            let _ = self.child.kill();
        }
        let status = self.child.wait().map_err(AttackError::file(&self.out))?;
        let read = |path: &Path| std::fs::read(path).map_err(AttackError::file(path));
        let (out, error) = (read(&self.out)?, read(&self.error)?);
        Ok(Answer { line: self.line, status, timed_out, interrupted: self.interrupted, out, error })
    }
}
