//! Downloads that can be resumed.
//!
//! Received bytes are in `.NAME.part`, in the same folder. Each request is for the missing bytes; if
//! the server sends the whole file instead, the download starts over. The file gets its name once its size and SHA-256
//! are right.

use super::check::{FileState, check_file};
use super::unpack::unpack;
use super::{Access, Dataset, Remote};
use crate::digest::of_file;
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

/// Attempts without any progress before a download is given up.
const ATTEMPTS: u32 = 5;
/// The wait before the second attempt; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// How long a server may stay silent.
const SILENCE: Duration = Duration::from_secs(60);

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file.
    pub file: &'a str,
    /// Bytes received.
    pub done: u64,
    /// Bytes of the whole file.
    pub bytes: u64,
}

/// Downloads all files of a dataset that are missing or damaged into the data folder, verifies their SHA-256, and
/// unpacks those that need it. It can be interrupted at any moment and is then resumed.
///
/// ```
/// use bilevel_data::registry::{fetch, find};
/// let folder = tempfile::tempdir().unwrap();
/// let error = fetch(find("mini-imagenet")?, &folder, &mut |_| {}).unwrap_err().to_string();
/// assert!(error.starts_with("'mini-imagenet' has to be downloaded by hand"), "{error}");
/// # Ok::<(), bilevel_data::Error>(())
/// ```
pub fn fetch(dataset: &Dataset, root: impl AsRef<Path>, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let files = match dataset.access {
        Access::Files(files) => files,
        Access::ByHand { how, .. } => return Err(Error::ByHand { name: dataset.name, how }),
    };
    let folder = root.as_ref().join(dataset.folder);
    std::fs::create_dir_all(&folder).map_err(Error::io("make the folder", &folder))?;
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(SILENCE))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        // Bytes as they lie there: their number and digest are compared.
        .accept_encoding("identity")
        .build()
        .new_agent();
    for file in files {
        if check_file(file, &folder)? != FileState::Good {
            download(&agent, file, &folder, progress)?;
        }
        progress(Progress { file: file.name, done: file.bytes, bytes: file.bytes });
        if let Some(target) = file.unpack {
            unpack(&folder.join(file.name), &folder.join(target))?;
        }
    }
    Ok(())
}

fn download(agent: &ureq::Agent, file: &Remote, folder: &Path, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let path = folder.join(format!(".{}.part", file.name));
    let failed = Error::io("write", &path);
    let refuse = |reason: String| Error::Download { url: file.url.into(), reason };
    bilevel::files::whole_file::refuse_irregular(&path).map_err(&failed)?;
    let mut part = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(&failed)?;
    if matches!(part.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(refuse("another process is downloading it".into()));
    }
    let (mut attempt, mut wait, mut most) = (1, FIRST_WAIT, length(&part).map_err(&failed)?);
    loop {
        let before = length(&part).map_err(&failed)?;
        let reason = match go_on(agent, file, &mut part, progress).map_err(&failed)? {
            Outcome::Whole if digest(&mut part).map_err(&failed)?.eq_ignore_ascii_case(file.sha256) => break,
            Outcome::Whole => {
                let reason = format!("its SHA-256 is not {}", file.sha256);
                // Bytes left from an earlier download may be wrong, so the partial file is reset once.
                if before == 0 {
                    std::fs::remove_file(&path).map_err(failed)?;
                    return Err(refuse(format!(
                        "{reason}; the file has changed on the server or was damaged in transit"
                    )));
                }
                part.set_len(0).map_err(&failed)?;
                reason
            }
            Outcome::Refused(reason) => {
                if length(&part).map_err(&failed)? == 0 {
                    std::fs::remove_file(&path).map_err(failed)?;
                }
                return Err(refuse(reason));
            }
            Outcome::Broken(reason) => reason,
        };
        // As long as there is more than ever before, it is worth going on.
        let now = length(&part).map_err(&failed)?;
        (attempt, wait) = if now > most { (1, FIRST_WAIT) } else { (attempt + 1, wait) };
        most = most.max(now);
        if attempt > ATTEMPTS {
            return Err(refuse(format!("{reason}; received bytes are kept, so try again later")));
        }
        std::thread::sleep(wait);
        wait = (wait * 2).min(SILENCE);
    }
    part.sync_all().map_err(&failed)?;
    std::fs::rename(&path, folder.join(file.name)).map_err(failed)
}

/// How a request ended.
enum Outcome {
    /// All bytes are present.
    Whole,
    /// It broke off, and can be resumed.
    Broken(String),
    /// Trying again will not help.
    Refused(String),
}

/// One request for the missing bytes.
fn go_on(
    agent: &ureq::Agent,
    file: &Remote,
    part: &mut File,
    progress: &mut dyn FnMut(Progress),
) -> std::io::Result<Outcome> {
    let mut done = length(part)?;
    if done > file.bytes {
        part.set_len(0)?;
        done = 0;
    }
    if done == file.bytes && done > 0 {
        return Ok(Outcome::Whole);
    }
    let mut request = agent.get(file.url);
    if done > 0 {
        request = request.header("Range", format!("bytes={done}-"));
    }
    let mut response = match request.call() {
        Ok(response) => response,
        Err(ureq::Error::BadUri(reason)) => return Ok(Outcome::Refused(reason)),
        Err(error) => return Ok(Outcome::Broken(error.to_string())),
    };
    let begins = |value: &ureq::http::HeaderValue| {
        value.to_str().ok()?.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse::<u64>().ok()
    };
    match response.status().as_u16() {
        200 => {
            part.set_len(0)?;
            done = 0;
        }
        206 if response.headers().get("content-range").and_then(begins) == Some(done) => {}
        206 => return Ok(Outcome::Refused("the server sent a different part than requested".into())),
        status @ (408 | 429 | 500..=599) => return Ok(Outcome::Broken(format!("the server answered {status}"))),
        status => return Ok(Outcome::Refused(format!("the server answered {status}"))),
    }
    let (mut body, mut buffer) = (response.body_mut().as_reader(), vec![0; 1 << 16]);
    loop {
        let read = match body.read(&mut buffer) {
            Ok(0) if done == file.bytes => return Ok(Outcome::Whole),
            Ok(0) => {
                return Ok(Outcome::Broken(format!("the connection was lost after {done} of {} bytes", file.bytes)));
            }
            Ok(read) => read,
            Err(error) => return Ok(Outcome::Broken(error.to_string())),
        };
        if done + read as u64 > file.bytes {
            part.set_len(0)?;
            return Ok(Outcome::Refused(format!("it is longer than the {} bytes it should have", file.bytes)));
        }
        // Opened to append: it goes to the end, wherever that is after set_len.
        part.write_all(&buffer[..read])?;
        done += read as u64;
        progress(Progress { file: file.name, done, bytes: file.bytes });
    }
}

fn length(part: &File) -> std::io::Result<u64> {
    Ok(part.metadata()?.len())
}

fn digest(part: &mut File) -> std::io::Result<String> {
    part.rewind()?;
    of_file(part)
}
