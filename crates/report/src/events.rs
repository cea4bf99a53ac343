//! Scalars for TensorBoard: event files, written by hand.
//!
//! A file is a row of records, each framed as a TFRecord: length (8 bytes, little endian), masked CRC-32C of the
//! length, the data, masked CRC-32C of the data. The data are an `Event` in protobuf's encoding:
//!
//! | message | field | number | type |
//! |---|---|---|---|
//! | `Event` | `wall_time` | 1 | double |
//! | | `step` | 2 | int64 |
//! | | `file_version` | 3 | string, in the first record only |
//! | | `summary` | 5 | `Summary` |
//! | `Summary` | `value` | 1 | `Value` |
//! | `Value` | `tag` | 1 | string |
//! | | `simple_value` | 2 | float |

use crate::checksum::masked;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An open event file. Written events are on disk after [`flush`](EventFile::flush), or once it is dropped.
///
/// ```
/// use bilevel_report::events::{EventFile, now};
/// let folder = std::env::temp_dir().join(format!("report-doc-{}", std::process::id()));
/// let mut file = EventFile::create(&folder, "run-1")?;
/// for step in 0..10 {
///     file.scalar("outer loss", step, 1.0 / (1.0 + step as f64), now())?;
/// }
/// file.flush()?;
/// let name = file.path().file_name().unwrap().to_string_lossy();
/// assert!(name.starts_with("events.out.tfevents.") && name.ends_with(".run-1"));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    out: BufWriter<File>,
}

/// Seconds since 1970, TensorBoard's wall time.
///
/// ```
/// assert!(bilevel_report::events::now() > 1.7e9);
/// ```
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl EventFile {
    /// Makes `events.out.tfevents.<seconds>.<name>` in this folder, and the folder if need be. A file that is there
    /// already is left alone: the new one gets a number after its name.
    ///
    /// TensorBoard takes all event files of a folder for one run, so each run should have a folder.
    ///
    /// ```
    /// use bilevel_report::events::EventFile;
    /// let folder = std::env::temp_dir().join(format!("report-doc-create-{}", std::process::id()));
    /// let (one, two) = (EventFile::create(&folder, "a/b")?, EventFile::create(&folder, "a/b")?);
    /// assert_ne!(one.path(), two.path());
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create(folder: impl AsRef<Path>, name: &str) -> io::Result<EventFile> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder)?;
        let time = now();
        let letter = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '_' };
        let name: String = name.chars().take(80).map(letter).collect();
        for number in 0u32.. {
            let again = if number == 0 { String::new() } else { format!(".{number}") };
            let path = folder.join(format!("events.out.tfevents.{:010}.{name}{again}", time as u64));
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            let mut events = EventFile { path, out: BufWriter::new(file) };
            events.record(&version_event(time))?;
            events.flush()?;
            return Ok(events);
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// The path of the file.
    ///
    /// ```
    /// use bilevel_report::events::EventFile;
    /// let folder = std::env::temp_dir().join(format!("report-doc-path-{}", std::process::id()));
    /// assert!(EventFile::create(&folder, "run")?.path().starts_with(&folder));
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a value of a curve. TensorBoard keeps scalars in 32 bits.
    ///
    /// `tag` names the curve (`loss/outer` puts it into a group `loss`); see [`now`] for the wall time.
    ///
    /// ```
    /// use bilevel_report::events::EventFile;
    /// let folder = std::env::temp_dir().join(format!("report-doc-scalar-{}", std::process::id()));
    /// let mut file = EventFile::create(&folder, "run")?;
    /// file.scalar("loss/outer", 1, 0.25, 1.7e9)?;
    /// # drop(file);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64, wall_time: f64) -> io::Result<()> {
        self.record(&scalar_event(tag, step, value, wall_time))
    }

    /// Hands everything written so far to the system, so that a running TensorBoard sees it.
    ///
    /// ```
    /// use bilevel_report::events::EventFile;
    /// let folder = std::env::temp_dir().join(format!("report-doc-flush-{}", std::process::id()));
    /// let mut file = EventFile::create(&folder, "run")?;
    /// file.scalar("loss", 1, 0.25, 1.7e9)?;
    /// file.flush()?;
    /// # drop(file);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn record(&mut self, data: &[u8]) -> io::Result<()> {
        self.out.write_all(&frame(data))
    }
}

/// A TFRecord around the data.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), data, &masked(data).to_le_bytes()].concat()
}

fn version_event(wall_time: f64) -> Vec<u8> {
    [double(1, wall_time), bytes(3, b"brain.Event:2")].concat()
}

fn scalar_event(tag: &str, step: u64, value: f64, wall_time: f64) -> Vec<u8> {
    let value = [bytes(1, tag.as_bytes()), float(2, value as f32)].concat();
    let step = if step == 0 { Vec::new() } else { [key(2, 0), varint(step)].concat() };
    [double(1, wall_time), step, bytes(5, &bytes(1, &value))].concat()
}

/// A field's number and how its value is written: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
fn key(field: u8, kind: u8) -> Vec<u8> {
    vec![field << 3 | kind]
}

fn double(field: u8, value: f64) -> Vec<u8> {
    [key(field, 1), value.to_le_bytes().to_vec()].concat()
}

fn float(field: u8, value: f32) -> Vec<u8> {
    [key(field, 5), value.to_le_bytes().to_vec()].concat()
}

fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [key(field, 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// Seven bits a byte, lowest first; the top bit says that more follow.
fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn records_are_those_of_the_tensorboard_package() {
        // Printed by tensorboard 2.21: RecordWriter on event_pb2.Event(...).SerializeToString().
        let version = "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9";
        assert_eq!(hex(&frame(&version_event(1_700_000_000.25))), version);
        let scalar =
            "2100000000000000017becf60900002040fc54d94110ac022a130a110a0a6c6f73732f6f75746572150000003e2aaf3ff5";
        assert_eq!(hex(&frame(&scalar_event("loss/outer", 300, 0.125, 1_700_000_000.5))), scalar);
        let no_number = "16000000000000004f61be280900002040fc54d9412a0b0a090a02cebb150000c07fd7b5cb08";
        assert_eq!(hex(&frame(&scalar_event("λ", 0, f64::NAN, 1_700_000_000.5))), no_number);
    }
}
