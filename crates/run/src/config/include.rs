//! Configuration files that include others: `include = "base.toml"`, or an array of files.
//!
//! An included file is named relative to the file that includes it, and its settings stand before those of that file, so that the later
//! and nearer one counts. If the including file chooses another task, method, optimizer or schedule, the included settings of that table
//! are left out: they belong to the old choice.

use super::TAGGED;
use super::entries::{Entry, Given, parse};
use super::errors::{ConfigError, Wrong};
use std::path::{Path, PathBuf};

/// The key.
pub const INCLUDE: &str = "include";

/// The most files that one configuration may be read from.
const MAX_FILES: usize = 64;

/// Reads a file's bytes.
type Read<'a> = dyn Fn(&Path) -> std::io::Result<Vec<u8>> + 'a;

/// The settings in the text of a file and in the files that it includes, which `read` reads.
///
/// ```
/// use bilevel_run::config::parse_including;
/// let read = |path: &std::path::Path| match path.ends_with("base.toml") {
///     true => Ok(b"task.name = \"synth1d\"\nouter.rate = 0.1\n".to_vec()),
///     false => Err(std::io::Error::other("no such file")),
/// };
/// let entries = parse_including(b"include = \"base.toml\"\nouter.rate = 0.2\n", "my/own.toml".as_ref(), &read)?;
/// let last = entries.last().unwrap();
/// assert_eq!((last.dotted(), last.place.to_string()), ("outer.rate".into(), "my/own.toml, line 2".into()));
/// assert_eq!(entries[0].place.to_string(), "my/base.toml, line 1");
/// # Ok::<(), bilevel_run::config::errors::ConfigError>(())
/// ```
pub fn parse_including(text: &[u8], path: &Path, read: &Read) -> Result<Vec<Entry>, ConfigError> {
    let mut files = 1;
    layered(text, path, read, &mut vec![], &mut files)
}

/// The settings of a file below those that include it, which are in `above`.
fn layered(
    text: &[u8],
    path: &Path,
    read: &Read,
    above: &mut Vec<PathBuf>,
    files: &mut usize,
) -> Result<Vec<Entry>, ConfigError> {
    let mut own = parse(text, path)?;
    let mut included = vec![];
    for entry in own.extract_if(.., |entry| entry.key[..] == [INCLUDE]) {
        for name in names(&entry)? {
            included.push((name, entry.place.clone()));
        }
    }
    above.push(path.to_path_buf());
    let mut entries = vec![];
    for (name, place) in included {
        let wrong = |sentence: String| ConfigError::at(&place, Wrong::Other(sentence));
        let file = path.parent().unwrap_or(Path::new("")).join(&name);
        if let Some(first) = above.iter().position(|known| is_same(known, &file)) {
            let circle = above[first..].iter().chain([&file]).map(|path| path.display().to_string());
            let circle = circle.collect::<Vec<_>>().join(" includes ");
            return Err(wrong(format!("files include each other in a circle: {circle}; take one of these lines out")));
        }
        *files += 1;
        if *files > MAX_FILES {
            return Err(wrong(format!("more than {MAX_FILES} files are included; put some of them together")));
        }
        let text = read(&file).map_err(|error| wrong(format!("cannot include {}: {error}", file.display())))?;
        let below = layered(&text, &file, read, above, files)?;
        entries = over(entries, below);
    }
    above.pop();
    Ok(over(entries, own))
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// The files that an entry names.
fn names(entry: &Entry) -> Result<Vec<String>, ConfigError> {
    let takes = || {
        let wrong = Wrong::WrongType {
            key: INCLUDE.into(),
            takes: "a file or an array of files",
            given: entry.value.describe(),
        };
        ConfigError::at(&entry.place, wrong)
    };
    let name = |given: &Given| match given {
        Given::Text(name) if !name.is_empty() => Ok(name.clone()),
        _ => Err(takes()),
    };
    match &entry.value {
        Given::Array(names) => names.iter().map(name).collect(),
        one => Ok(vec![name(one)?]),
    }
}

/// Some settings, and others that count more.
fn over(mut under: Vec<Entry>, over: Vec<Entry>) -> Vec<Entry> {
    for tagged in TAGGED {
        let word = |entries: &[Entry]| entries.iter().rev().find(|e| e.dotted() == tagged.key).map(|e| e.value.clone());
        let (old, new) = (word(&under), word(&over));
        if new.is_some() && old != new {
            let prefix = format!("{}.", tagged.table);
            under.retain(|entry| !entry.dotted().starts_with(&prefix));
        }
    }
    under.extend(over);
    under
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The settings of `main.toml` among these files, as `key place`.
    fn of(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let files: BTreeMap<PathBuf, &str> = files.iter().map(|(name, text)| (PathBuf::from(name), *text)).collect();
        let read = |path: &Path| {
            let text = files.get(path).ok_or_else(|| std::io::Error::other("there is no such file"))?;
            Ok(text.as_bytes().to_vec())
        };
        let main = Path::new("main.toml");
        let entries = parse_including(files[main].as_bytes(), main, &read).map_err(|error| error.to_string())?;
        let settings = entries.iter().filter(|entry| entry.value != Given::Table);
        Ok(settings.map(|entry| format!("{} {}", entry.dotted(), entry.place)).collect())
    }

    #[test]
    fn settings_keep_their_file_and_line_and_the_nearer_come_later() {
        let found = of(&[
            ("main.toml", "seed = 1\ninclude = [\"a.toml\", \"sub/b.toml\"]\n"),
            ("a.toml", "\nchains = 2\n"),
            ("sub/b.toml", "include = \"c.toml\"\nchains = 3\n"),
            ("sub/c.toml", "chains = 4\n"),
        ]);
        let expected = [
            "chains a.toml, line 2",
            "chains sub/c.toml, line 1",
            "chains sub/b.toml, line 2",
            "seed main.toml, line 1",
        ];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn another_choice_leaves_out_the_settings_of_the_old_one() {
        let base = "[method]\nname = \"rmd\"\nstorage = \"all\"\n[outer]\nrate = 1.0\n";
        let found = of(&[("main.toml", "include = \"a.toml\"\nmethod.name = \"ift-cg\""), ("a.toml", base)]).unwrap();
        assert_eq!(found, ["outer.rate a.toml, line 5", "method.name main.toml, line 2"]);
        let same = of(&[("main.toml", "include = \"a.toml\"\nmethod.name = \"rmd\""), ("a.toml", base)]).unwrap();
        assert_eq!(same.len(), 4, "{same:?}");
    }

    #[test]
    fn circles_missing_files_and_other_types_are_refused_with_their_line() {
        for (files, said) in [
            (
                vec![("main.toml", "\ninclude = \"a.toml\""), ("a.toml", "include = \"main.toml\"")],
                "a.toml, line 1: files include each other in a circle: main.toml includes a.toml includes main.toml; take \
                 one of these lines out",
            ),
            (
                vec![("main.toml", "include = \"main.toml\"")],
                "main.toml, line 1: files include each other in a circle: main.toml includes main.toml; take one of these \
                 lines out",
            ),
            (
                vec![("main.toml", "\n\ninclude = \"gone.toml\"")],
                "main.toml, line 3: cannot include gone.toml: there is no such file",
            ),
            (
                vec![("main.toml", "include = 3")],
                "main.toml, line 1: include takes a file or an array of files, not the whole number 3",
            ),
            (
                vec![("main.toml", "include = [\"\"]")],
                "main.toml, line 1: include takes a file or an array of files, not an array",
            ),
            (vec![("main.toml", "include = \"a.toml\""), ("a.toml", "seed =")], "a.toml, line 1: this is not TOML"),
        ] {
            let found = of(&files).unwrap_err();
            assert!(found.starts_with(said), "{found}");
        }
    }

    #[test]
    fn files_that_include_many_others_twice_end() {
        let names: Vec<String> =
            (0..20).map(|n| if n == 0 { "main.toml".into() } else { format!("{n}.toml") }).collect();
        let texts: Vec<String> = (1..=20).map(|n| format!("include = [\"{n}.toml\", \"{n}.toml\"]")).collect();
        let files: Vec<(&str, &str)> = names.iter().zip(&texts).map(|(name, text)| (&name[..], &text[..])).collect();
        let mut files = files;
        files.push(("20.toml", "seed = 1"));
        assert!(of(&files).unwrap_err().ends_with("more than 64 files are included; put some of them together"));
    }
}
