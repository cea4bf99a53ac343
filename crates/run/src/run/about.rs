//! The user's description of a run: its name, tags and a note. Nothing is computed from them.

use bilevel::{Error, Result};
use serde::{Deserialize, Serialize};

/// The maximum length of a name or tag, in characters, which fits in a list.
const LONGEST_WORD: usize = 120;
/// The longest note, in characters: a page.
const LONGEST_NOTE: usize = 4000;
/// The most tags of a run.
const MOST_TAGS: usize = 32;

/// The name, tags and note of a run. They may be changed at any time in `config.toml`: the run stays the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// A name for lists and reports.
    pub name: String,
    /// Tags to find the run by.
    pub tags: Vec<String>,
    /// Anything to remember.
    pub note: String,
}

impl About {
    /// Refuses text that no list can show; the error names the key below `about`.
    pub fn check(&self) -> Result<()> {
        let short = |name: &'static str, text: &str, most: usize, must: &'static str| {
            let given = text.chars().count();
            let fits = given <= most && !text.chars().any(|c| c.is_control() && c != '\n');
            if fits { Ok(()) } else { Err(Error::setting(name, &*format!("a text of {given} characters"), must)) }
        };
        short("name", &self.name, LONGEST_WORD, "at most 120 characters, none of them a control character")?;
        short("note", &self.note, LONGEST_NOTE, "at most 4000 characters, no control characters but line ends")?;
        if self.tags.len() > MOST_TAGS {
            return Err(Error::setting("tags", &*format!("{} tags", self.tags.len()), "at most 32 tags"));
        }
        for tag in &self.tags {
            short("tags", tag, LONGEST_WORD, "tags of at most 120 characters, none of them a control character")?;
            if tag.trim().is_empty() {
                return Err(Error::setting("tags", "an empty tag", "tags with at least one letter"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_list_can_show_is_refused() {
        let said = |about: About| about.check().map_err(|error| error.to_string());
        assert_eq!(said(About { name: "λ, second try".into(), ..About::default() }), Ok(()));
        assert_eq!(said(About { note: "two\nlines".into(), ..About::default() }), Ok(()));
        for wrong in [
            About { name: "x".repeat(121), ..About::default() },
            About { name: "a\x1b[31m".into(), ..About::default() },
            About { tags: vec![" ".into()], ..About::default() },
            About { tags: vec!["t".into(); 33], ..About::default() },
            About { note: "n".repeat(4001), ..About::default() },
        ] {
            assert!(said(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
