//! A study in a few files, to be carried to another machine and back: a tar.gz archive in parts below 16 MB.
//!
//! It holds the files behind a finished item's rows, and the newest checkpoint of an unfinished item. Pages, figures,
//! older checkpoints and most lines of finished runs' long metrics are left out. `cat NAME.tar.gz.* | tar xz` unpacks
//! it without this command.
//!
//! Unpacking never undoes work: an item gives way only to one that is further.

use crate::errors::{CliError, Result};
use crate::run::folder::{RunFolder, write_whole};
use bilevel::checkpoints::Checkpoints;
use bilevel::files::whole_file::open_regular;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

/// Bytes of a part.
pub const PART: usize = 15 << 20;
/// Metrics of a run that is done and has more bytes than this are thinned: those of some 10 000 iterations.
const LONG_METRICS: u64 = 4 << 20;
/// Lines to keep, in addition to those with measures.
const LINES: usize = 1000;
const METRICS: &str = "metrics.jsonl";
/// The most bytes a file in an archive may have; a checkpoint of the largest network here has a tenth.
const LARGEST: u64 = 4 << 30;
/// The name of the parts, before their number.
const NAME: &str = "study.tar.gz.";
/// Files of an item that its rows are computed from.
const KEPT: [&str; 7] = [
    "config.toml",
    "result.json",
    "metrics.jsonl",
    "lambda.safetensors",
    "theta.safetensors",
    "provenance.json",
    "measurement.json",
];
/// Files that a measurement which is not done keeps to go on from.
const UNFINISHED: &str = "partial.";
/// Those that say an item is done.
const ENDS: [&str; 2] = ["result.json", "measurement.json"];
/// Files of the study itself.
const STUDY_FILES: [&str; 3] = ["study.toml", "provenance.json", "rows.jsonl"];

fn failed(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> CliError {
    move |error| CliError::file(action, path, &error)
}

/// Writes the study in this folder to parts in another, and removes older parts there. The answer is how many there are.
pub fn pack(study: &Path, to: &Path) -> Result<usize> {
    std::fs::create_dir_all(to).map_err(failed("make", to))?;
    let parts = Parts { folder: to.to_path_buf(), count: 0, filled: vec![] };
    let mut archive = tar::Builder::new(GzEncoder::new(parts, Compression::default()));
    for path in files(study)? {
        let place = study.join(&path);
        let wrong = failed("pack", &place);
        let mut file = open_regular(&place).map_err(&wrong)?;
        let is_done = || ENDS.iter().any(|name| place.with_file_name(name).is_file());
        let bytes = file.metadata().map_err(&wrong)?.len();
        if bytes > LONG_METRICS && path.ends_with(METRICS) && is_done() {
            let mut text = vec![];
            file.read_to_end(&mut text).map_err(&wrong)?;
            let text = thinned(&text);
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, &path, &text[..]).map_err(wrong)?;
        } else {
            archive.append_file(&path, &mut file).map_err(wrong)?;
        }
    }
    let wrong = || failed("write to", to);
    let mut parts = archive.into_inner().and_then(GzEncoder::finish).map_err(wrong())?;
    parts.write_part().map_err(wrong())?;
    for number in parts.count + 1.. {
        match std::fs::remove_file(part(to, number)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            removed => removed.map_err(wrong())?,
        }
    }
    Ok(parts.count)
}

/// Thins metrics: lines with measures, the line of the lowest outer loss and the last one stay, and a few others.
fn thinned(text: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let every = lines.len().div_ceil(LINES).max(1);
    let has_measures = |line: &[u8]| line.windows(MEASURES.len()).any(|part| part == MEASURES);
    let loss = |line: &[u8]| {
        let at = line.windows(LOSS.len()).position(|part| part == LOSS)? + LOSS.len();
        let number = line[at..].split(|byte| *byte == b',' || *byte == b'}').next()?;
        std::str::from_utf8(number).ok()?.parse::<f64>().ok()
    };
    let losses = lines.iter().enumerate().filter_map(|(number, line)| Some((number, loss(line)?)));
    let least = losses.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(number, _)| number);
    let kept = lines.iter().enumerate().filter(|(number, line)| {
        number % every == 0 || number + 1 == lines.len() || Some(*number) == least || has_measures(line)
    });
    kept.flat_map(|(_, line)| line.iter().copied()).collect()
}

/// The text that marks measures in a line, and the text before its outer loss.
const MEASURES: &[u8] = b"\"measures\":{\"";
const LOSS: &[u8] = b"\"outer_loss\":";

fn part(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{NAME}{number:03}"))
}

/// An archive that is written in parts.
struct Parts {
    folder: PathBuf,
    count: usize,
    filled: Vec<u8>,
}

impl Parts {
    fn write_part(&mut self) -> std::io::Result<()> {
        if !self.filled.is_empty() {
            self.count += 1;
            bilevel::files::whole_file::write_whole(&part(&self.folder, self.count), &self.filled)?;
            self.filled.clear();
        }
        Ok(())
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.filled.len() == PART {
            self.write_part()?;
        }
        let count = bytes.len().min(PART - self.filled.len());
        self.filled.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Files to pack, relative to the folder of the study, in order.
fn files(study: &Path) -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> =
        STUDY_FILES.map(PathBuf::from).into_iter().filter(|name| study.join(name).is_file()).collect();
    for item in names(study)? {
        let folder = study.join(&item);
        if !folder.is_dir() {
            continue;
        }
        let is_there = |name: &str| folder.join(name).is_file();
        all.extend(KEPT.iter().filter(|name| is_there(name)).map(|name| item.join(name)));
        if ENDS.iter().any(|name| is_there(name)) {
            continue;
        }
        let partial = names(&folder)?.into_iter().filter(|name| name.to_string_lossy().starts_with(UNFINISHED));
        all.extend(partial.map(|name| item.join(name)));
        let run = RunFolder::at(&folder);
        let newest = Checkpoints::new(run.checkpoints()).newest()?.map(|newest| newest.path);
        let files = newest.into_iter().chain(Some(run.path_hash_file())).filter(|path| path.is_file());
        all.extend(files.filter_map(|path| path.strip_prefix(study).ok().map(Path::to_path_buf)));
    }
    Ok(all)
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut names = vec![];
        for entry in std::fs::read_dir(folder)? {
            names.push(PathBuf::from(entry?.file_name()));
        }
        names.sort();
        Ok(names)
    };
    read().map_err(failed("list", folder))
}

/// Unpacks a study from the parts in a folder, if there are any. Returns the number of unpacked items.
pub fn unpack(from: &Path, study: &Path) -> Result<usize> {
    let paths: Vec<PathBuf> = (1..).map(|number| part(from, number)).take_while(|path| path.is_file()).collect();
    if paths.is_empty() {
        return Ok(0);
    }
    let damaged = |reason: String| CliError::File { action: "unpack", path: paths[0].clone(), reason };
    // Everything is known to be whole before anything is written.
    let mut items: BTreeMap<PathBuf, Vec<(PathBuf, u64)>> = BTreeMap::new();
    visit(&paths, &mut |path, file| {
        let item = path.parent().filter(|above| above.components().count() > 0);
        let item =
            item.and_then(|above| above.components().next()).map_or_else(PathBuf::new, |item| PathBuf::from(&item));
        let bytes = std::io::copy(file, &mut std::io::sink())?;
        items.entry(item).or_default().push((path, bytes));
        Ok(())
    })
    .map_err(&damaged)?;
    let wanted: Vec<&PathBuf> = items
        .iter()
        .filter(|(item, files)| match item.as_os_str().is_empty() {
            true => !study.join(STUDY_FILES[0]).is_file(),
            false => distance(&item_files(&study.join(item))) < distance(files),
        })
        .map(|(item, _)| item)
        .collect();
    let mut folders: Vec<&Path> =
        wanted.iter().map(|item| item.as_path()).filter(|item| !item.as_os_str().is_empty()).collect();
    for folder in &folders {
        // The existing item is behind the packed one.
        match std::fs::remove_dir_all(study.join(folder)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CliError::file("replace", &study.join(folder), &error));
            }
            _ => {}
        }
    }
    visit(&paths, &mut |path, file| {
        let is_wanted = wanted.iter().any(|item| match item.as_os_str().is_empty() {
            true => path.components().count() == 1,
            false => path.starts_with(item),
        });
        if is_wanted {
            let (place, mut bytes) = (study.join(&path), vec![]);
            if let Some(folder) = place.parent() {
                std::fs::create_dir_all(folder)?;
            }
            file.read_to_end(&mut bytes)?;
            write_whole(&place, &bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
        }
        Ok(())
    })
    .map_err(damaged)?;
    folders.dedup();
    Ok(folders.len())
}

/// Visits every file of an archive in parts, whose paths lie inside the study.
fn visit(
    parts: &[PathBuf],
    visit: &mut dyn FnMut(PathBuf, &mut dyn Read) -> std::io::Result<()>,
) -> std::result::Result<(), String> {
    let mut stream: Box<dyn Read> = Box::new(std::io::empty());
    for path in parts {
        stream = Box::new(stream.chain(File::open(path).map_err(|error| error.to_string())?));
    }
    let mut stream = GzDecoder::new(stream);
    let mut read = || -> std::io::Result<()> {
        let mut archive = tar::Archive::new(&mut stream);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.into_owned();
            let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
            if !inside || path.components().count() > 3 || !entry.header().entry_type().is_file() {
                return Err(std::io::Error::other(format!(
                    "it holds {}, which is not a file of a \
                    study",
                    path.display()
                )));
            }
            if entry.header().size()? > LARGEST {
                return Err(std::io::Error::other(format!(
                    "{} is larger than a file of a study can be",
                    path.display()
                )));
            }
            visit(path, &mut entry)?;
        }
        // Reads to the end, which has the checksum.
        std::io::copy(&mut stream, &mut std::io::sink()).map(|_| ())
    };
    read().map_err(|error| format!("{error}; copy all its parts again"))
}

/// The files of an existing item.
fn item_files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let sized = |path: PathBuf| {
        let bytes = std::fs::metadata(&path).ok().filter(|data| data.is_file())?.len();
        Some((path, bytes))
    };
    let within = |folder: &Path| -> Vec<PathBuf> {
        names(folder).unwrap_or_default().into_iter().map(|name| folder.join(name)).collect()
    };
    within(folder).into_iter().chain(within(&folder.join("checkpoint"))).filter_map(sized).collect()
}

/// How far an item is: not there, begun, at its newest checkpoint, or done. The name of a checkpoint has its iteration.
fn distance(files: &[(PathBuf, u64)]) -> (u8, String) {
    let names = || files.iter().filter_map(|(path, _)| path.file_name()?.to_str());
    if names().any(|name| ENDS.contains(&name)) {
        return (3, String::new());
    }
    let newest = names().filter(|name| name.starts_with("checkpoint-") && name.ends_with(".bilevel")).max();
    let partial = files
        .iter()
        .filter(|(path, _)| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED)));
    match (newest, partial.map(|(_, bytes)| *bytes).max()) {
        (Some(newest), _) => (2, newest.to_string()),
        // A measurement's file only grows.
        (None, Some(bytes)) => (2, format!("{bytes:020}")),
        _ => (u8::from(!files.is_empty()), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(study: &Path, path: &str, bytes: &[u8]) {
        let place = study.join(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, bytes).unwrap();
    }

    #[test]
    fn a_study_comes_back_from_its_parts_without_pages_and_an_item_that_is_further_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let (study, parts, other) = (at("study"), at("parts"), at("other"));
        write(&study, "study.toml", b"what was asked for");
        write(&study, "done/result.json", b"{}");
        write(&study, "done/report.html", b"a page");
        // More than two parts of incompressible bytes.
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        let noise: Vec<u8> = (0..PART * 5 / 2).map(|_| byte()).collect();
        write(&study, "done/lambda.safetensors", &noise);
        write(&study, "measured/partial.json", b"[1, 2]");
        assert_eq!(pack(&study, &parts).unwrap(), 3);
        for number in 1..=3 {
            assert!(std::fs::metadata(part(&parts, number)).unwrap().len() <= 16_000_000);
        }
        write(&other, "measured/partial.json", b"[1, 2, 3, 4]");
        assert_eq!(unpack(&parts, &other).unwrap(), 1, "one that is further stays");
        assert_eq!(std::fs::read(other.join("done/lambda.safetensors")).unwrap(), noise);
        assert_eq!(std::fs::read(other.join("measured/partial.json")).unwrap(), b"[1, 2, 3, 4]");
        assert!(!other.join("done/report.html").exists() && other.join("study.toml").is_file());
        std::fs::remove_file(part(&parts, 3)).unwrap();
        let torn = unpack(&parts, &at("third")).unwrap_err().to_string();
        assert!(torn.contains("copy all its parts again"), "{torn}");
        assert!(!at("third").exists(), "nothing is written of a damaged archive");
        write(&study, "done/lambda.safetensors", b"short");
        assert_eq!(pack(&study, &parts).unwrap(), 1, "older parts go");
        assert!(!part(&parts, 2).exists());
        assert_eq!(unpack(&at("nothing"), &other).unwrap(), 0);
    }

    #[test]
    fn long_metrics_keep_their_measures_the_least_loss_and_the_end() {
        let line = |n: u32| {
            let measures =
                if n.is_multiple_of(2500) { format!(",\"measures\":{{\"error\":{n}}}") } else { String::new() };
            let loss = if n == 4321 { 0.001 } else { 1.0 + 1.0 / f64::from(n) };
            format!("{{\"iteration\":{n},\"outer_loss\":{loss}{measures}}}\n")
        };
        let whole: String = (1..=10_000).map(line).collect();
        let thin = String::from_utf8(thinned(whole.as_bytes())).unwrap();
        assert!((LINES..LINES + 10).contains(&thin.lines().count()), "{}", thin.lines().count());
        for n in [1, 2500, 4321, 5000, 7500, 10_000] {
            assert!(thin.contains(&line(n)), "{n}");
        }
        assert_eq!(thinned(line(7).as_bytes()), line(7).as_bytes());
    }

    #[test]
    fn a_path_that_leads_out_of_the_study_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(GzEncoder::new(vec![], Compression::default()));
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..9].copy_from_slice(b"../escape");
        header.set_size(1);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        archive.append(&header, &b"x"[..]).unwrap();
        let bytes = archive.into_inner().unwrap().finish().unwrap();
        std::fs::write(part(scratch.path(), 1), bytes).unwrap();
        let refused = unpack(scratch.path(), &scratch.path().join("study")).unwrap_err().to_string();
        assert!(refused.contains("../escape, which is not a file of a study"), "{refused}");
    }
}
