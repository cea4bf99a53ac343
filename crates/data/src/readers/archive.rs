//! The files of a folder, a zip file or a tar file of any compression, one after the other.
//!
//! Nothing is written to disk here. Regardless of declared sizes, no more is read from an archive than the limits
//! allow, counting the bytes of all its files together.

use crate::error::{Error, Result};
use crate::input::Input;
use crate::limits::{Allowance, Limits};
use std::collections::HashSet;
use std::io::{BufRead, Read};
use std::path::Path;

/// How a zip file begins, with files in it or without.
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Bytes of a block of a tar file. Two blocks of zeros end it, though some programs write only one.
const BLOCK: usize = 512;

/// Called with each file: its path, with `/` between folders, and its bytes.
pub(crate) type Visit<'a> = dyn FnMut(String, Vec<u8>) -> Result<()> + 'a;

/// Visits every wanted file: in the order of their paths in folders and zip files, as they come in tar files.
pub(crate) fn visit(input: &Input, wanted: &dyn Fn(&str) -> bool, visit: &mut Visit) -> Result<()> {
    if let Some(folder) = input.folder() {
        return visit_folder(input, folder, wanted, visit);
    }
    for magic in ZIP {
        if input.begins_with(magic)? {
            return visit_zip(input, wanted, visit);
        }
    }
    visit_tar(input, wanted, visit)
}

/// The paths of the files in a folder, sorted, relative to it and with `/` between folders.
pub(crate) fn files_in(folder: &Path, limits: &Limits) -> Result<Vec<String>> {
    let (mut found, mut folders) = (vec![], vec![(folder.to_path_buf(), String::new())]);
    // A link to a folder is followed, and a folder that was seen is not looked into again: links could lead around for
    // ever.
    let mut seen = HashSet::new();
    while let Some((folder, before)) = folders.pop() {
        let failed = Error::io("read the folder", &folder);
        if !seen.insert(std::fs::canonicalize(&folder).map_err(&failed)?) {
            continue;
        }
        let mut entries =
            std::fs::read_dir(&folder).map_err(&failed)?.collect::<std::io::Result<Vec<_>>>().map_err(&failed)?;
        // In the order of their names, so that it does not depend on the file system which of two links is followed.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else {
                let place = entry.path().display().to_string();
                return Err(Error::damaged(&place, "has a name that is not UTF-8; rename it"));
            };
            let path = format!("{before}{name}");
            let kind = std::fs::metadata(entry.path()).map_err(Error::io("read", &entry.path()))?;
            if kind.is_dir() {
                folders.push((entry.path(), format!("{path}/")));
            } else if kind.is_file() {
                found.push(path);
            }
        }
        limits.count(&folder.display().to_string(), "files", found.len().max(folders.len()))?;
    }
    found.sort();
    Ok(found)
}

fn visit_folder(input: &Input, folder: &Path, wanted: &dyn Fn(&str) -> bool, visit: &mut Visit) -> Result<()> {
    let mut allowance = Allowance::stored(&input.limits());
    for path in files_in(folder, &input.limits())?.into_iter().filter(|path| wanted(path)) {
        let place = folder.join(&path);
        let file = bilevel::files::whole_file::open_regular(&place).map_err(Error::io("read", &place))?;
        let bytes = allowance.read_all(&place.display().to_string(), file)?;
        visit(path, bytes)?;
    }
    Ok(())
}

fn visit_zip(input: &Input, wanted: &dyn Fn(&str) -> bool, visit: &mut Visit) -> Result<()> {
    let damaged = |error: zip::result::ZipError| match error {
        zip::result::ZipError::Io(error) => input.decoding(error),
        other => input.damaged(format!("is not a readable zip file: {other}")),
    };
    let (packed, length) = input.packed()?;
    let mut archive = zip::ZipArchive::new(packed).map_err(damaged)?;
    input.limits().count(input.name(), "files", archive.len())?;
    let mut files = vec![];
    for (number, name) in archive.file_names().enumerate() {
        let path = tidy(&name.map_err(damaged)?);
        if !path.ends_with('/') && wanted(&path) {
            files.push((path, number));
        }
    }
    files.sort();
    let mut allowance = Allowance::unpacking(&input.limits(), length);
    for (path, number) in files {
        let file = archive.by_index(number).map_err(damaged)?;
        let bytes = allowance.read_all(&format!("{}: {path}", input.name()), file)?;
        visit(path, bytes)?;
    }
    Ok(())
}

fn visit_tar(input: &Input, wanted: &dyn Fn(&str) -> bool, visit: &mut Visit) -> Result<()> {
    let (_, length) = input.packed()?;
    // The stream has a separate limit; this one is for files with holes, whose zeros are not in the stream.
    let mut allowance = Allowance::unpacking(&input.limits(), length);
    let mut stream = input.stream()?;
    if stream.fill_buf().map_err(|error| input.decoding(error))?.is_empty() {
        return Err(input.damaged("is empty, but a folder, a zip file or a tar file was expected"));
    }
    let mut ending = Ending { inner: stream, zeros: 0 };
    let mut archive = tar::Archive::new(&mut ending);
    let entries = archive.entries().map_err(|error| input.decoding(error))?;
    for (number, entry) in entries.enumerate() {
        input.limits().count(input.name(), "files", number + 1)?;
        let entry = entry.map_err(|error| input.decoding(error))?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8(entry.path_bytes().into_owned());
        let path = tidy(&name.map_err(|_| input.damaged("contains a file whose name is not UTF-8"))?);
        if wanted(&path) {
            let size = entry.size();
            let bytes = allowance.read_all(&format!("{}: {path}", input.name()), entry)?;
            // The decoder of tar files takes the end of the stream for the end of the file.
            if bytes.len() as u64 != size {
                return Err(input.damaged(format!("ends within {path}: it is truncated")));
            }
            visit(path, bytes)?;
        }
    }
    // The bytes after the last file are read too, to verify the checksum of the compression.
    std::io::copy(&mut ending, &mut std::io::sink()).map_err(|error| input.decoding(error))?;
    // The decoder takes the end of the stream for the end of the archive.
    if ending.zeros < BLOCK {
        return Err(input.damaged("has no end-of-archive marker: it is truncated"));
    }
    Ok(())
}

/// A reader that counts the trailing zeros of the bytes read so far.
struct Ending<R> {
    inner: R,
    zeros: usize,
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let zeros = buffer[..read].iter().rev().take_while(|byte| **byte == 0).count();
        self.zeros = if zeros == read { self.zeros.saturating_add(read) } else { zeros };
        Ok(read)
    }
}

/// A path without leading `./` and with `/` between folders.
fn tidy(path: &str) -> String {
    let path = path.replace('\\', "/");
    let mut rest = path.as_str();
    while let Some(shorter) = rest.strip_prefix("./") {
        rest = shorter;
    }
    rest.to_string()
}
