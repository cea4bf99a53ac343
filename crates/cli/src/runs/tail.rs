//! The end of a file of lines that another process may be writing: only whole lines are seen.

use bilevel::files::whole_file::open_regular;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The first read at the end of a file, in bytes: a line of metrics has a few hundred.
const FIRST_LOOK: u64 = 8 << 10;
/// The longest line that is looked for, in bytes.
const LONGEST_LOOK: u64 = 1 << 20;

/// The last whole line of a file, without its end; `None` if there is none.
pub fn last_line(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    let mut look = FIRST_LOOK;
    let further = |look: u64| (8 * look).min(LONGEST_LOOK);
    loop {
        let bytes = end(&mut file, length, look)?;
        let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            if look >= length.min(LONGEST_LOOK) {
                return Ok(None);
            }
            look = further(look);
            continue;
        };
        match bytes[..last].iter().rposition(|byte| *byte == b'\n') {
            Some(before) => return Ok(Some(bytes[before + 1..last].to_vec())),
            None if bytes.len() as u64 == length => return Ok(Some(bytes[..last].to_vec())),
            None if look >= LONGEST_LOOK => return Ok(None),
            None => look = further(look),
        }
    }
}

/// This many bytes before the place that was the end of the file.
fn end(file: &mut File, length: u64, bytes: u64) -> std::io::Result<Vec<u8>> {
    let bytes = bytes.min(length);
    file.seek(SeekFrom::Start(length - bytes))?;
    let mut found = vec![];
    file.take(bytes).read_to_end(&mut found)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_is_found_whatever_is_written_after_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lines");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            last_line(&path).unwrap().map(|line| String::from_utf8(line).unwrap())
        };
        assert_eq!(of(""), None);
        assert_eq!(of("torn"), None);
        assert_eq!(of("one\n"), Some("one".into()));
        assert_eq!(of("one\ntwo\ntor"), Some("two".into()));
        let long = "x".repeat(100_000);
        assert_eq!(of(&format!("one\n{long}\nto")), Some(long.clone()));
        assert_eq!(of(&format!("{long}\n")), Some(long));
        assert!(of(&format!("one\n{}\n", "y".repeat(3 << 20))).is_none());
        assert!(last_line(&place.path().join("gone")).is_err());
    }
}
