//! Running the command in a folder of its own, and comparing what it says with what is stored.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed again.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("bilevel-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bilevel"));
        command.args(arguments).current_dir(&self.0).env_remove("NO_COLOR");
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> Said {
        Said::new(self.command(arguments).output().unwrap())
    }

    /// Starts the command.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Starts the command with its answer going here.
    pub fn start_into(&self, arguments: &[&str], answer: impl Into<Stdio>) -> Child {
        self.command(arguments).stdout(answer).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Said {
    pub fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }

    /// It was refused with this sentence and code 2.
    #[track_caller]
    pub fn refused(&self, sentence: &str) {
        assert_eq!(self.error, format!("bilevel: {sentence}\n"));
        assert_eq!((self.code, self.out.as_str()), (Some(2), ""));
    }

    /// It did what it was asked.
    #[track_caller]
    pub fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.out.contains('\x1b') && !self.error.contains('\x1b'), "escape codes in a pipe: {self:?}");
        self
    }
}

/// Compares with a stored file; with UPDATE_GOLDEN in the environment, stores.
#[track_caller]
pub fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, stored, "{name} is not what is stored; if it should be, run the tests with UPDATE_GOLDEN=1");
}
