//! Habits of style in the project's prose, counted: `docs/prose.tsv` has a phrase per row, and no count may rise.
//!
//! Prose is Markdown outside code, comments, and the messages in sources; tests and code are left out. With
//! `UPDATE_GOLDEN=1` counts that fell are written. The ignored tests print:
//!
//! ```sh
//! cargo test -p bilevel-cli --test it prose:: -- --ignored --nocapture     # the table, every match, twenty sentences
//! ```

use std::path::{Path, PathBuf};

/// A sentence with its first line and its words: in lower case, without punctuation at their ends.
struct Sentence {
    file: String,
    line: usize,
    text: String,
    words: Vec<String>,
}

/// A row of `docs/prose.tsv`: the count of this phrase may be at most `allowed`.
struct Habit {
    phrase: String,
    allowed: usize,
    instead: String,
}

impl Habit {
    /// Counts the matches in a sentence: `^` and `$` are its ends, `*` is any word, `|` separates alternatives, and `>N`
    /// is more than N words.
    fn count(&self, words: &[String]) -> usize {
        if let Some(limit) = self.phrase.strip_prefix('>') {
            return usize::from(words.len() > limit.parse::<usize>().unwrap());
        }
        let pattern: Vec<&str> = self.phrase.split(' ').collect();
        let start = usize::from(pattern[0] == "^");
        let end = pattern.len() - usize::from(pattern.last() == Some(&"$"));
        let inner = &pattern[start..end];
        let fits = |at: &usize| {
            (start == 0 || *at == 0)
                && (end == pattern.len() || at + inner.len() == words.len())
                && inner
                    .iter()
                    .zip(&words[*at..])
                    .all(|(part, word)| *part == "*" || part.split('|').any(|p| p == word))
        };
        (0..(words.len() + 1).saturating_sub(inner.len())).filter(fits).count()
    }
}

fn repository() -> PathBuf {
    std::env::var_os("BILEVEL_PROSE").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), PathBuf::from)
}

fn table_of_habits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prose.tsv")
}

fn habits() -> Vec<Habit> {
    let text = std::fs::read_to_string(table_of_habits()).unwrap();
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.map(|row| Habit { phrase: row[0].into(), allowed: row[1].parse().unwrap(), instead: row[2].into() }).collect()
}

/// The files with prose: Markdown, and sources that are no tests.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    const LEFT_OUT: [&str; 6] = ["target", ".git", "tests", "files.md", "benches", "peers"];
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if LEFT_OUT.contains(&&name[..]) || name.starts_with("tests") || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if name.ends_with(".md") || name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Lines of one kind that follow each other: comments with the same mark, a file of Markdown, or a message.
struct Passage {
    line: usize,
    lines: Vec<String>,
    /// Spaces before a line of code.
    indent: usize,
}

/// The comments and messages of a source file.
fn passages(source: &str) -> Vec<Passage> {
    let (mut found, mut line, mut mark): (Vec<Passage>, usize, &str) = (vec![], 1, "");
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            let text = &rest[..end];
            let own = ["//!", "///", "//"].into_iter().find(|mark| text.starts_with(mark)).unwrap();
            let text = text[own.len()..].to_string();
            match found.last_mut() {
                Some(last) if own == mark && last.line + last.lines.len() == line => last.lines.push(text),
                _ => found.push(Passage { line, lines: vec![text], indent: 3 }),
            }
            mark = own;
            end
        } else if let Some((text, end)) = string(rest) {
            if text.split_whitespace().filter(|word| word.chars().all(|c| c.is_alphabetic())).count() >= 3 {
                found.push(Passage { line, lines: vec![text], indent: 3 });
                mark = "";
            }
            end
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            3
        } else {
            first.len_utf8()
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// The text of a string literal at the start, and where it ends in the source.
fn string(rest: &str) -> Option<(String, usize)> {
    let hashes = rest.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
    if rest.starts_with('r') && rest[1 + hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = &rest[2 + hashes..];
        let length = body.find(&end).unwrap_or(body.len());
        return Some((body[..length].to_string(), (2 + hashes + length + end.len()).min(rest.len())));
    }
    let body = rest.strip_prefix('"')?;
    let (mut text, mut chars) = (String::new(), body.char_indices().peekable());
    while let Some((at, c)) = chars.next() {
        match (c, if c == '\\' { chars.next().map(|(_, c)| c) } else { None }) {
            ('"', _) => return Some((text, at + 2)),
            ('\\', Some('\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
            ('\\', Some('n')) => text.push('\n'),
            ('\\', _) => text.push(' '),
            _ => text.push(c),
        }
    }
    Some((text, rest.len()))
}

/// Splits a passage at blank lines, headings, items and cells. Blocks of code and lines with aligned columns are left
/// out.
fn paragraphs(passage: &Passage) -> Vec<(usize, String)> {
    let (mut found, mut fenced) = (vec![(passage.line, String::new())], false);
    let (mut in_list, mut after_blank, mut code) = (false, true, false);
    for (at, line) in passage.lines.iter().flat_map(|line| line.split('\n')).enumerate() {
        let (number, text) = (passage.line + at, line.trim());
        let is_fence = text.starts_with("```") || text.starts_with("~~~");
        let is_item = ["- ", "* ", "#", "> "].iter().any(|mark| text.starts_with(mark))
            || text.split_once(". ").is_some_and(|(digits, _)| digits.parse::<u32>().is_ok());
        let is_indented = line.len() - line.trim_start().len() >= passage.indent && !is_item;
        code = is_indented && (code || after_blank || passage.indent == 3 && !in_list) || code && text.is_empty();
        (in_list, after_blank) = (is_item || in_list && !text.is_empty(), text.is_empty());
        fenced ^= is_fence;
        let is_prose = !(fenced || is_fence || code || text.contains("  "));
        if text.is_empty() || is_item || !is_prose {
            found.push((number, String::new()));
        }
        if !is_prose {
            continue;
        }
        if text.starts_with('|') {
            found.extend(text.split('|').map(|cell| (number, cell.trim().to_string())));
            found.push((number, String::new()));
            continue;
        }
        let last = &mut found.last_mut().unwrap();
        if last.1.is_empty() {
            last.0 = number;
        }
        last.1 += &format!("{} ", text.trim_start_matches(['#', '-', '*', '>', ' ']));
        if text.starts_with('#') {
            found.push((number, String::new()));
        }
    }
    found.retain(|(_, text)| text.chars().any(char::is_alphabetic));
    found
}

/// Replaces code, the addresses of links and the placeholders of messages, which are no prose.
fn plain(text: &str) -> String {
    let code: String = text.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "X" } else { part }).collect();
    let (mut out, mut rest) = (String::new(), &code[..]);
    while let Some(at) = rest.find("](").or_else(|| rest.find('{')) {
        out += &rest[..at];
        let close = if rest[at..].starts_with('{') { '}' } else { ')' };
        out += if close == '}' { "X" } else { "" };
        rest = rest[at..].find(close).map_or("", |end| &rest[at + end + 1..]);
    }
    (out + rest).replace(['[', '|'], " ")
}

/// Splits at full stops, question and exclamation marks that no word in lower case follows.
fn sentences(text: &str) -> Vec<String> {
    let (mut found, mut words) = (vec![], vec![]);
    let all: Vec<&str> = text.split_whitespace().collect();
    for (at, word) in all.iter().enumerate() {
        words.push(*word);
        let bare = word.trim_end_matches([')', '"', '\'', '*', '’', '”']);
        let is_end = bare.ends_with(['.', '?', '!']) && !["e.g.", "i.e.", "cf.", "vs.", "al.", "Dr."].contains(&bare);
        let goes_on = |next: &&str| next.len() > 1 && next.starts_with(|c: char| c.is_ascii_lowercase());
        if is_end && !all.get(at + 1).is_some_and(goes_on) || at + 1 == all.len() {
            found.push(words.join(" "));
            words.clear();
        }
    }
    found
}

fn words(sentence: &str) -> Vec<String> {
    let bare = sentence.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    bare.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Every sentence of the repository's prose, in the order of its files.
fn prose() -> Vec<Sentence> {
    let (root, mut paths, mut all) = (repository(), vec![], vec![]);
    files(&root, &mut paths);
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let found = if file.ends_with(".rs") {
            passages(&text)
        } else {
            vec![Passage { line: 1, lines: text.lines().map(String::from).collect(), indent: 4 }]
        };
        for (line, paragraph) in found.iter().flat_map(paragraphs) {
            for text in sentences(&plain(&paragraph)) {
                all.push(Sentence { file: file.clone(), line, words: words(&text), text });
            }
        }
    }
    all
}

fn count(habit: &Habit, prose: &[Sentence]) -> usize {
    prose.iter().map(|sentence| habit.count(&sentence.words)).sum()
}

#[test]
fn no_habit_of_style_grows() {
    let prose = prose();
    assert!(prose.len() > 5000, "{}", prose.len());
    let counted: Vec<(usize, Habit)> = habits().into_iter().map(|habit| (count(&habit, &prose), habit)).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let row = |(count, habit): &(usize, Habit)| {
            format!("{}\t{}\t{}\n", habit.phrase, habit.allowed.min(*count), habit.instead)
        };
        let rows: String = counted.iter().map(row).collect();
        std::fs::write(table_of_habits(), format!("phrase\tallowed\tinstead\n{rows}")).unwrap();
    }
    let grown = counted.iter().filter(|(count, habit)| *count > habit.allowed);
    let grown: Vec<String> = grown
        .map(|(count, habit)| format!("'{}': {count}, {} allowed; {}", habit.phrase, habit.allowed, habit.instead))
        .collect();
    assert!(grown.is_empty(), "list them by 'prose::table -- --ignored --nocapture':\n{}", grown.join("\n"));
}

#[test]
fn phrases_match_words_ends_and_alternatives() {
    let count = |phrase: &str, text: &str| {
        let habit = Habit { phrase: phrase.into(), allowed: 0, instead: String::new() };
        sentences(&plain(text)).iter().map(|sentence| habit.count(&words(sentence))).sum::<usize>()
    };
    assert_eq!(count("^ of", "Of these. Two of them. Of `x`, one."), 2);
    assert_eq!(count("^ the same $", "The same. The same again."), 1);
    assert_eq!(count("come|came to", "It came to that; they come to it."), 2);
    assert_eq!(count("its * value", "its old value, its value"), 1);
    assert_eq!(count(">3", "One two three. One two three four, see e.g. this."), 1);
    assert_eq!(count("where", "[where](where.md) {where} `where` nowhere"), 1);
    let source = "//! A head.\n//! It goes on.\n\n/// An item.\n/// ```\n/// let code = 1;\n/// ```\n\
        fn f() { g(\"a text of \\\n words\", 'x') } // why\n";
    let found: Vec<(usize, String)> = passages(source).iter().flat_map(paragraphs).collect();
    let found: Vec<(usize, &str)> = found.iter().map(|(line, text)| (*line, text.trim())).collect();
    assert_eq!(found, [(1, "A head. It goes on."), (4, "An item."), (8, "a text of words"), (9, "why")]);
}

#[test]
#[ignore = "prints the table of habits and every sentence that has one"]
fn table() {
    let prose = prose();
    for habit in habits() {
        println!("{:6} {:6}  {}", count(&habit, &prose), habit.allowed, habit.phrase);
    }
    let total: usize = prose.iter().map(|sentence| sentence.words.len()).sum();
    println!("{} sentences, {total} words", prose.len());
    for habit in habits() {
        for s in prose.iter().filter(|sentence| habit.count(&sentence.words) > 0) {
            println!("{}\t{}:{}\t{}", habit.phrase, s.file, s.line, s.text);
        }
    }
}

#[test]
#[ignore = "prints twenty sentences from random places"]
fn sample() {
    let prose: Vec<Sentence> = prose().into_iter().filter(|sentence| sentence.words.len() > 7).collect();
    let mut state: u64 = 20;
    for _ in 0..20 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let s = &prose[(state >> 33) as usize % prose.len()];
        println!("{}:{}: {}", s.file, s.line, s.text);
    }
}
