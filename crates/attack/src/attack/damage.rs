//! Ways to damage a file: as a full disk, a bad cable, a careless script or a malicious user may leave it.

use super::place::copy;
use crate::error::{AttackError, Result};
use bilevel_graph::conformance::Dice;
use std::path::Path;
use std::process::Command;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Cut at a random place.
    Truncate,
    /// A few bits are others.
    FlipBits,
    /// Nothing is left in it.
    Empty,
    /// Another run's file of that name.
    Swap,
    /// Zeros to the length of 64 MiB.
    Stretch,
    /// A folder of that name.
    Folder,
    /// A link to itself.
    LoopingLink,
    /// A link to nothing.
    DanglingLink,
    /// A link to the original file, which was moved elsewhere.
    Link,
    /// A pipe without a writer.
    Fifo,
    /// Not there.
    Remove,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 11] = [
        Way::Truncate,
        Way::FlipBits,
        Way::Empty,
        Way::Swap,
        Way::Stretch,
        Way::Folder,
        Way::LoopingLink,
        Way::DanglingLink,
        Way::Link,
        Way::Fifo,
        Way::Remove,
    ];

    /// The damage in words, to follow the name of the file.
    pub fn words(self) -> &'static str {
        match self {
            Way::Truncate => "cut",
            Way::FlipBits => "with bits flipped",
            Way::Empty => "emptied",
            Way::Swap => "swapped with another run's",
            Way::Stretch => "stretched by zeros",
            Way::Folder => "replaced by a folder",
            Way::LoopingLink => "replaced by a link to itself",
            Way::DanglingLink => "replaced by a link to nothing",
            Way::Link => "replaced by a link to itself moved elsewhere",
            Way::Fifo => "replaced by a pipe",
            Way::Remove => "removed",
        }
    }

    /// Does it to a file; `other` is the same file of another run, `aside` a path outside of the run.
    pub fn apply(self, dice: &mut Dice, file: &Path, other: &Path, aside: &Path) -> Result<()> {
        let failed = AttackError::file(file);
        let bytes = std::fs::read(file).map_err(AttackError::file(file))?;
        let removed = || std::fs::remove_file(file);
        let linked = |to: &Path| removed().and_then(|()| std::os::unix::fs::symlink(to, file));
        match self {
            Way::Truncate => std::fs::write(file, &bytes[..dice.below(bytes.len())]),
            Way::FlipBits => {
                let mut bytes = bytes;
                for _ in 0..1 + dice.below(4) {
                    let at = dice.below(bytes.len());
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << dice.below(8);
                    }
                }
                std::fs::write(file, bytes)
            }
            Way::Empty => std::fs::write(file, b""),
            Way::Swap if other.is_file() => return copy(other, file),
            Way::Swap => std::fs::write(file, b"not of this run\n"),
            Way::Stretch => std::fs::OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(64 << 20)),
            Way::Folder => removed().and_then(|()| std::fs::create_dir(file)),
            Way::LoopingLink => linked(file),
            Way::DanglingLink => linked(Path::new("nowhere/at/all")),
            Way::Link => std::fs::rename(file, aside).and_then(|()| std::os::unix::fs::symlink(aside, file)),
            Way::Fifo => removed().and_then(|()| Command::new("mkfifo").arg(file).status().map(|_| ())),
            Way::Remove => removed(),
        }
        .map_err(failed)
    }
}
