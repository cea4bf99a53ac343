//! Downloads from a server that breaks off, starts over, lies and refuses.

use bilevel_data::registry::{Access, Dataset, FileState, Progress, Remote, check, fetch};
use bilevel_data::{Error, sha256};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// How the server answers one request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// With what was asked for.
    Well,
    /// With this many of the bytes, and then the connection ends.
    Only(usize),
    /// With all bytes, whatever was asked for.
    All,
    /// With all bytes, of which only this many come before the connection ends.
    AllButOnly(usize),
    /// With a different part than requested.
    OtherPart,
    /// With bytes that never end.
    Endless,
    /// With a status.
    Status(u16),
}

struct Server {
    address: String,
    /// The `Range` of every request, empty where there was none.
    asked: Arc<Mutex<Vec<String>>>,
}

/// A server for one file, with an answer per request; after the last it answers well.
fn serve(file: Vec<u8>, answers: &[Answer]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/file", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(vec![]));
    let (seen, mut answers) = (asked.clone(), answers.iter().copied().collect::<VecDeque<_>>());
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let range = request(&connection);
            seen.lock().unwrap().push(range.clone());
            // A client that hangs up early is not a failure of the server.
            let _ = answer(connection, &file, &range, answers.pop_front().unwrap_or(Answer::Well));
        }
    });
    Server { address, asked }
}

/// Reads a request, and gives its `Range`.
fn request(connection: &TcpStream) -> String {
    let lines = BufReader::new(connection).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let range = |line: String| line.to_ascii_lowercase().strip_prefix("range: ").map(String::from);
    lines.filter_map(range).last().unwrap_or_default()
}

fn answer(mut connection: TcpStream, file: &[u8], range: &str, answer: Answer) -> std::io::Result<()> {
    let from = range.strip_prefix("bytes=").and_then(|rest| rest.strip_suffix('-')?.parse::<usize>().ok());
    let whole =
        |status: &str, length: usize| format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n");
    let (head, body): (String, &[u8]) = match (answer, from) {
        (Answer::Status(status), _) => (whole(&format!("{status} No"), 0), b""),
        (Answer::Endless, _) => ("HTTP/1.1 200 OK\r\nConnection: close\r\n".into(), &[7; 1 << 20]),
        (Answer::OtherPart, _) => (whole("206 Part", 3) + "Content-Range: bytes 1-3/9\r\n", &file[1..4]),
        (Answer::Well | Answer::Only(_), Some(from)) => {
            let (rest, last) = (&file[from..], file.len() - 1);
            (whole("206 Part", rest.len()) + &format!("Content-Range: bytes {from}-{last}/{}\r\n", file.len()), rest)
        }
        _ => (whole("200 OK", file.len()), file),
    };
    write!(connection, "{head}\r\n")?;
    match answer {
        Answer::Only(bytes) | Answer::AllButOnly(bytes) => connection.write_all(&body[..bytes.min(body.len())]),
        _ => connection.write_all(body),
    }
}

fn bytes() -> Vec<u8> {
    (0..200_000u32).flat_map(|number| number.to_le_bytes()).collect()
}

/// A dataset of one file on a server.
fn dataset(server: &Server, file: &[u8], unpack: Option<&'static str>) -> Dataset {
    let remote = Remote {
        name: "file.bin",
        url: server.address.clone().leak(),
        bytes: file.len() as u64,
        sha256: sha256(file).leak(),
        unpack,
    };
    Dataset {
        name: "test",
        summary: "bytes",
        licence: "none",
        home: "here",
        folder: "test",
        access: Access::Files(vec![remote].leak()),
    }
}

/// Fetches, and gives the ranges that were asked for.
fn fetched(file: &[u8], answers: &[Answer], folder: &Path) -> (Result<(), Error>, Vec<String>) {
    let server = serve(file.to_vec(), answers);
    let result = fetch(&dataset(&server, file, None), folder, &mut |_| {});
    let asked = server.asked.lock().unwrap().clone();
    (result, asked)
}

#[test]
fn a_file_is_fetched_checked_and_not_fetched_again() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    let server = serve(file.clone(), &[]);
    let dataset = dataset(&server, &file, None);
    assert_eq!(check(&dataset, folder.path()).unwrap()[0].1, FileState::Missing);
    let mut last = 0;
    fetch(&dataset, folder.path(), &mut |progress: Progress| last = progress.done).unwrap();
    assert_eq!((last, std::fs::read(folder.path().join("test/file.bin")).unwrap()), (file.len() as u64, file));
    assert_eq!(check(&dataset, folder.path()).unwrap()[0].1, FileState::Good);
    fetch(&dataset, folder.path(), &mut |_| {}).unwrap();
    assert_eq!(server.asked.lock().unwrap().len(), 1);
    // Only the file is left.
    assert_eq!(std::fs::read_dir(folder.path().join("test")).unwrap().count(), 1);
}

#[test]
fn a_download_that_breaks_off_goes_on_where_it_was() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    let (result, asked) = fetched(&file, &[Answer::Only(1000), Answer::Only(3000)], folder.path());
    result.unwrap();
    assert_eq!(asked, ["", "bytes=1000-", "bytes=4000-"]);
    assert_eq!(std::fs::read(folder.path().join("test/file.bin")).unwrap(), file);
}

#[test]
fn a_download_goes_on_in_another_process() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    std::fs::create_dir(folder.path().join("test")).unwrap();
    std::fs::write(folder.path().join("test/.file.bin.part"), &file[..12_345]).unwrap();
    let (result, asked) = fetched(&file, &[], folder.path());
    result.unwrap();
    assert_eq!(asked, ["bytes=12345-"]);
    assert_eq!(std::fs::read(folder.path().join("test/file.bin")).unwrap(), file);
}

#[test]
fn two_downloads_of_one_file_do_not_mix() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    std::fs::create_dir(folder.path().join("test")).unwrap();
    let part = std::fs::File::create(folder.path().join("test/.file.bin.part")).unwrap();
    part.lock().unwrap();
    let error = fetched(&file, &[], folder.path()).0.unwrap_err().to_string();
    assert!(error.contains("another process is downloading it"), "{error}");
    drop(part);
    fetched(&file, &[], folder.path()).0.unwrap();
}

#[test]
fn a_server_without_ranges_sends_all_again() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    let (result, asked) = fetched(&file, &[Answer::Only(1000), Answer::All], folder.path());
    result.unwrap();
    assert_eq!(asked, ["", "bytes=1000-"]);
    assert_eq!(std::fs::read(folder.path().join("test/file.bin")).unwrap(), file);
}

#[test]
fn what_was_begun_with_other_bytes_is_begun_anew() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    std::fs::create_dir(folder.path().join("test")).unwrap();
    std::fs::write(folder.path().join("test/.file.bin.part"), [9; 500]).unwrap();
    let (result, asked) = fetched(&file, &[], folder.path());
    result.unwrap();
    assert_eq!(asked, ["bytes=500-", ""]);
    assert_eq!(std::fs::read(folder.path().join("test/file.bin")).unwrap(), file);
}

#[test]
fn a_damaged_file_is_fetched_again() {
    let (folder, file) = (tempfile::tempdir().unwrap(), bytes());
    std::fs::create_dir(folder.path().join("test")).unwrap();
    let path = folder.path().join("test/file.bin");
    let mut wrong = file.clone();
    wrong[5] ^= 1;
    for (bytes, state) in [(&wrong[..], FileState::WrongBytes), (&wrong[..9], FileState::WrongSize { found: 9 })] {
        std::fs::write(&path, bytes).unwrap();
        let server = serve(file.clone(), &[]);
        let dataset = dataset(&server, &file, None);
        assert_eq!(check(&dataset, folder.path()).unwrap()[0].1, state);
        fetch(&dataset, folder.path(), &mut |_| {}).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), file);
    }
}

#[test]
fn other_bytes_than_those_known_are_refused_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut known) = (bytes(), bytes());
    known[0] ^= 1;
    let server = serve(file, &[]);
    let error = fetch(&dataset(&server, &known, None), folder.path(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("SHA-256 is not"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path().join("test")).unwrap().count(), 0);
}

#[test]
fn a_server_that_refuses_lies_or_never_ends_gives_an_error() {
    let cases = [
        (Answer::Status(404), "the server answered 404"),
        (Answer::Endless, "longer than the 800000 bytes"),
        (Answer::OtherPart, "a different part than requested"),
    ];
    for (answer, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let error = fetched(&bytes(), &[answer; 20], folder.path()).0.unwrap_err();
        assert!(matches!(error, Error::Download { .. }) && error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_server_that_fails_for_a_while_is_asked_again_and_given_up_in_the_end() {
    let file = bytes();
    let folder = tempfile::tempdir().unwrap();
    let (result, asked) = fetched(&file, &[Answer::Status(503); 2], folder.path());
    result.unwrap();
    assert_eq!(asked.len(), 3);
    let folder = tempfile::tempdir().unwrap();
    let (result, asked) = fetched(&file, &[Answer::Status(503); 20], folder.path());
    assert!(result.unwrap_err().to_string().contains("the server answered 503; received bytes are kept"));
    assert_eq!(asked.len(), 5);
}

#[test]
fn a_server_that_always_begins_anew_and_never_ends_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let answers: Vec<Answer> = (0..40).map(|number| Answer::AllButOnly(1000 + number % 2 * 1000)).collect();
    let (result, asked) = fetched(&bytes(), &answers, folder.path());
    assert!(result.unwrap_err().to_string().contains("received bytes are kept"));
    assert!(asked.len() < 10, "{}", asked.len());
}

#[test]
fn an_archive_is_unpacked_into_a_folder_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = crate::common::gzip(&crate::common::tar(&[("a/b.txt", b"one".to_vec()), ("c.txt", b"two".to_vec())]));
    let server = serve(file.clone(), &[]);
    let dataset = dataset(&server, &file, Some("unpacked"));
    fetch(&dataset, folder.path(), &mut |_| {}).unwrap();
    let read = |path: &str| std::fs::read_to_string(folder.path().join("test/unpacked").join(path)).unwrap();
    assert_eq!((read("a/b.txt"), read("c.txt")), ("one".into(), "two".into()));
    // What is there is left alone, and what is missing is unpacked from the file that is there.
    std::fs::write(folder.path().join("test/unpacked/c.txt"), "mine").unwrap();
    fetch(&dataset, folder.path(), &mut |_| {}).unwrap();
    assert_eq!(read("c.txt"), "mine");
    std::fs::remove_dir_all(folder.path().join("test/unpacked")).unwrap();
    fetch(&dataset, folder.path(), &mut |_| {}).unwrap();
    assert_eq!((read("c.txt"), server.asked.lock().unwrap().len()), ("two".into(), 1));
}

#[test]
fn an_archive_that_leads_out_of_its_folder_is_refused_and_nothing_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = crate::common::zip(&[("good.txt", b"one".to_vec()), ("x/../../../outside.txt", b"two".to_vec())]);
    let server = serve(file.clone(), &[]);
    let error = fetch(&dataset(&server, &file, Some("unpacked")), folder.path(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("leads out of it"), "{error}");
    let left: Vec<_> =
        std::fs::read_dir(folder.path().join("test")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file.bin"]);
    assert!(!folder.path().join("outside.txt").exists() && !folder.path().join("test/outside.txt").exists());
}

#[test]
fn what_has_to_be_downloaded_by_hand_says_where_and_is_found_when_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    for dataset in bilevel_data::registry::list() {
        let Access::ByHand { how, expects } = dataset.access else { continue };
        let error = fetch(dataset, folder.path(), &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(how) && how.contains("https://"), "{error}");
        assert!(check(dataset, folder.path()).unwrap().iter().all(|(_, state)| *state == FileState::Missing));
        expects.iter().for_each(|path| std::fs::create_dir_all(folder.path().join(dataset.folder).join(path)).unwrap());
        assert!(check(dataset, folder.path()).unwrap().iter().all(|(_, state)| *state == FileState::There));
    }
}

#[test]
fn what_is_listed_is_complete() {
    for dataset in bilevel_data::registry::list() {
        let words = [dataset.name, dataset.summary, dataset.licence, dataset.home, dataset.folder];
        assert!(words.iter().all(|word| !word.is_empty()), "{dataset:?}");
        if let Access::Files(files) = dataset.access {
            for file in files {
                assert!(file.sha256.len() == 64 && file.sha256.bytes().all(|letter| letter.is_ascii_hexdigit()));
                assert!(file.bytes > 0 && file.url.starts_with("http"), "{file:?}");
            }
        }
    }
}
