//! `bilevel serve`: what it answers, what it refuses, many clients beside a run that is being written, and a real browser.

mod browser;

use crate::common::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

/// A server that is ended with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Of the runs in this folder of a place.
    fn start(place: &Place, folder: &str) -> Self {
        let mut child = place.start(&["serve", folder, "--port", "0"]);
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().trim_end_matches('/').rsplit(':').next().unwrap().parse();
        Server { child, port: port.unwrap_or_else(|_| panic!("{line}")) }
    }

    /// Sends these bytes, and reads what comes back until the connection is closed.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // It may close before all is sent.
        let _ = stream.write_all(bytes);
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, target: &str) -> Answer {
        self.with(target, "")
    }

    /// With more headers, each with its end.
    fn with(&self, target: &str, headers: &str) -> Answer {
        let port = self.port;
        Answer::of(&self.send(format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n").as_bytes()))
    }

    fn runs(&self) -> Value {
        serde_json::from_str(&self.get("/api/runs").body).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Answer { code, head: head.to_string(), body: body.to_string() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn run(place: &Place, more: &[&str]) {
    place.run(&[&["run", "synth1d", "--method", "rmd", "--quiet"][..], more].concat()).done();
}

#[test]
fn it_serves_the_page_the_list_comparisons_and_reports() {
    let place = Place::new();
    run(&place, &["--iterations", "30", "--out", "runs/one", "--name", "<b>first</b>", "--note", "a note"]);
    run(&place, &["--iterations", "30", "--rate", "0.1", "--out", "runs/two"]);
    place.run(&["run", "digits-l2", "--iterations", "3", "--out", "runs/digits", "--quiet"]).done();
    let server = Server::start(&place, "runs");
    let page = server.get("/");
    assert_eq!((page.code, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.body.contains("http://") && !page.body.contains("https://"), "the page needs nothing from elsewhere");
    for file in ["/page.css", "/page.js", "/figures.js"] {
        assert_eq!(server.get(file).code, 200, "{file}");
    }
    let all = server.runs();
    let names: Vec<&str> = all["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(names, ["digits", "one", "two"]);
    assert_eq!((&all["runs"][2]["status"], &all["runs"][2]["report"]), (&"finished".into(), &true.into()));
    let both = server.get("/api/compare?run=one&run=two");
    assert!(both.body.contains("&lt;b&gt;first&lt;/b&gt;") && !both.body.contains("<b>first"), "{}", both.body);
    assert!(both.body.contains("<h2>Outer loss</h2>") && both.body.contains("a note"), "{}", both.body);
    let one = server.get("/api/compare?run=digits");
    assert!(
        one.body.contains("The learned λ.log_strength") && one.body.contains("<caption><span>Cost"),
        "{}",
        one.body
    );
    // What a client has already is not sent again.
    let version = one.header("etag").unwrap().to_string();
    let again = server.with("/api/compare?run=digits", &format!("If-None-Match: {version}\r\n"));
    assert_eq!((again.code, again.body.as_str()), (304, ""));
    let list = server.get("/api/runs").header("etag").unwrap().to_string();
    assert_eq!(server.with("/api/runs", &format!("If-None-Match: {list}\r\n")).code, 304);
    let report = server.get("/report?run=one");
    assert!(report.body.starts_with("<!doctype html>"));
    assert!(report.header("content-security-policy").unwrap().contains("sandbox"));
    let head =
        Answer::of(&server.send(format!("HEAD / HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", server.port).as_bytes()));
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), Some(page.body.len().to_string().as_str()));
}

#[test]
fn it_listens_on_this_machine_alone_and_refuses_other_hosts_other_methods_and_other_paths() {
    let place = Place::new();
    run(&place, &["--iterations", "2", "--out", "runs/one"]);
    place.write("secret.txt", "nobody's business");
    let server = Server::start(&place, "runs");
    let port = server.port;
    let host = |host: &str| {
        Answer::of(&server.send(format!("GET /api/runs HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())).code
    };
    assert_eq!(host(&format!("localhost:{port}")), 200);
    for other in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1",
        "127.0.0.1:1",
        "",
        &format!("127.0.0.1:{port}.evil.example"),
    ] {
        assert_eq!(host(other), 403, "{other}");
    }
    assert_eq!(server.with("/api/runs", "Sec-Fetch-Site: cross-site\r\n").code, 403);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"] {
        let said = server.send(format!("{method} / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes());
        assert!(said.starts_with("HTTP/1.1 405 "), "{method}: {said}");
    }
    for path in [
        "/secret.txt",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "//secret.txt",
        "/runs/one/config.toml",
        "/report?run=..",
        "/report?run=../secret.txt",
        "/report?run=%2e%2e%2fsecret.txt",
        "/report?run=one/../../secret.txt",
        "/report?run=one%00",
        "/report?run=/etc/passwd",
        "/api/compare?run=one&run=..%2f..",
        "/api/compare?run=%ff",
        "/api/compare",
        "/report",
        &format!("/api/compare?{}", "run=one&".repeat(9)),
        &format!("/report?run={}", "x".repeat(2000)),
        &format!("/{}", "x".repeat(100_000)),
        "/\u{1}",
    ] {
        let answer = server.get(path);
        assert!([400, 404, 414].contains(&answer.code), "{path}: {} {}", answer.head, answer.body);
        assert!(!answer.body.contains("nobody"), "{path}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    assert_eq!(Answer::of(&server.send(long.as_bytes())).code, 431);
    for nonsense in [&b"\x16\x03\x01\x02\x00\x01"[..], b"\r\n\r\n\r\n", b"GET\r\n\r\n", &[0xff; 4096]] {
        let said = server.send(&[nonsense, b"\r\n\r\n"].concat());
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    assert_eq!(server.get("/").code, 200, "it still answers");
    // Another server on the port is refused in a sentence.
    let taken = place.run(&["serve", "runs", "--port", &port.to_string()]);
    assert_eq!((taken.code, taken.error.lines().count()), (Some(2), 1), "{taken:?}");
    assert!(taken.error.contains(&format!("cannot listen on port {port} of 127.0.0.1")), "{taken:?}");
    assert_eq!(place.run(&["serve", "gone"]).code, Some(2));
}

#[test]
fn names_of_any_kind_are_shown_and_found() {
    let place = Place::new();
    run(&place, &["--iterations", "2", "--out", "runs/one"]);
    for odd in ["a b&c=d#e?f", "<img src=x onerror=alert(1)>", "λ'\"`", "100%", "new\nline", &"n".repeat(200)] {
        std::fs::create_dir(place.path(&format!("runs/{odd}"))).unwrap();
        for file in
            ["config.toml", "metrics.jsonl", "result.json", "provenance.json", "lambda.safetensors", "report.html"]
        {
            std::fs::copy(place.path(&format!("runs/one/{file}")), place.path(&format!("runs/{odd}/{file}"))).unwrap();
        }
    }
    let server = Server::start(&place, "runs");
    let all = server.runs();
    assert_eq!(all["runs"].as_array().unwrap().len(), 7);
    for run in all["runs"].as_array().unwrap() {
        let name: String = run["run"].as_str().unwrap().bytes().map(|byte| format!("%{byte:02X}")).collect();
        let found = server.get(&format!("/api/compare?run={name}"));
        assert!(found.code == 200 && found.body.contains("outer loss"), "{}: {}", run["run"], found.body);
        assert_eq!(server.get(&format!("/report?run={name}")).code, 200);
    }
}

#[test]
fn damaged_runs_and_runs_that_are_being_written_are_shown_as_far_as_they_are_whole() {
    let place = Place::new();
    run(&place, &["--iterations", "20", "--out", "runs/cut"]);
    run(&place, &["--iterations", "20", "--out", "runs/damaged"]);
    std::fs::remove_file(place.path("runs/cut/result.json")).unwrap();
    let metrics = place.read("runs/cut/metrics.jsonl");
    let half = metrics.len() / 2;
    place.write("runs/cut/metrics.jsonl", &metrics[..half]);
    place.write("runs/damaged/metrics.jsonl", &format!("{}garbage\n", &metrics[..metrics.find('\n').unwrap() + 1]));
    run(&place, &["--iterations", "2", "--out", "runs/unreadable"]);
    place.write("runs/unreadable/config.toml", "[task]\n");
    let server = Server::start(&place, "runs");
    let all = server.runs();
    let whole = metrics[..half].matches('\n').count();
    assert_eq!((&all["runs"][0]["iterations"], &all["runs"][0]["status"]), (&whole.into(), &"unfinished".into()));
    assert_eq!(all["runs"][1]["status"], "damaged");
    let cut = server.get("/api/compare?run=cut");
    assert!(cut.body.contains(&format!("{whole} of 20 iterations are done")), "{}", cut.body);
    let damaged = server.get("/api/compare?run=damaged&run=cut");
    assert!(
        damaged.code == 200 && damaged.body.contains("metrics.jsonl is damaged after iteration 1"),
        "{}",
        damaged.body
    );
    // A run that has no curves takes no colour from the next one.
    let beside = server.get("/api/compare?run=unreadable&run=cut");
    assert!(beside.body.contains("data-places=\"1\"") && beside.body.contains("unreadable: "), "{}", beside.body);
    // What was half written is shown when it is whole.
    place.write("runs/cut/metrics.jsonl", &metrics);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(server.runs()["runs"][0]["iterations"], 20);
}

#[test]
fn runs_of_the_same_name_are_told_apart_by_their_folders() {
    let place = Place::new();
    for folder in ["runs/a", "runs/b"] {
        run(&place, &["--iterations", "3", "--out", folder, "--name", "same"]);
    }
    let server = Server::start(&place, "runs");
    let both = server.get("/api/compare?run=a&run=b").body;
    assert!(both.contains("same (a)") && both.contains("same (b)"), "{both}");
}

/// Bytes of memory that a process has at the moment.
fn memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Runs whose lists are asked for at a time.
const CLIENTS: usize = 50;
/// Runs in the folder.
const RUNS: usize = 200;
/// Requests of each client.
const REQUESTS: usize = 8;

#[test]
fn fifty_clients_see_two_hundred_runs_whole_while_one_of_them_is_written() {
    let place = Place::new();
    run(&place, &["--iterations", "50", "--out", "runs/000"]);
    for n in 1..RUNS {
        let to = place.path(&format!("runs/{n:03}"));
        std::fs::create_dir(&to).unwrap();
        for file in ["config.toml", "metrics.jsonl", "result.json", "provenance.json", "lambda.safetensors"] {
            std::fs::copy(place.path(&format!("runs/000/{file}")), to.join(file)).unwrap();
        }
    }
    let server = Server::start(&place, "runs");
    // A real run beside them, written while they look.
    let live = ["run", "synth1d", "--method", "rmd", "--iterations", "4000000", "--set", "inner.steps=20000"];
    let mut writer = place.start(&[&live[..], &["--out", "runs/live", "--quiet"]].concat());
    while !place.path("runs/live/metrics.jsonl").exists() {
        assert!(writer.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Beside clients that ask there are some that never end their request.
    let slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    server.runs();
    let before = memory(server.child.id());
    let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let client = |number: usize| {
            let server = &server;
            move || {
                let mut iterations = vec![];
                for request in 0..REQUESTS {
                    let all: Value = serde_json::from_str(&server.get("/api/runs").body).expect("whole JSON");
                    let runs = all["runs"].as_array().unwrap();
                    let others = runs.iter().filter(|run| run["run"] != "live");
                    let wrong: Vec<&Value> =
                        others.filter(|run| run["iterations"] != 50 || run["status"] != "finished").collect();
                    assert!(wrong.is_empty() && runs.len() == RUNS + 1, "{wrong:?}");
                    let live = runs.iter().find(|run| run["run"] == "live").unwrap();
                    assert_ne!(live["status"], "damaged", "{live}");
                    iterations.push(live["iterations"].as_u64().unwrap());
                    let other = (number * REQUESTS + request) % RUNS;
                    let page = server.get(&format!("/api/compare?run=live&run={other:03}"));
                    assert_eq!(page.code, 200, "{}", page.body);
                    assert!(page.body.ends_with("</section>\n") && !page.body.contains("damaged"), "{}", page.body);
                }
                iterations
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(client(number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(seen.len(), CLIENTS);
    for iterations in &seen {
        assert!(iterations.is_sorted(), "the run went back: {iterations:?}");
    }
    let most = seen.iter().flatten().max().unwrap();
    assert!(seen.iter().flatten().any(|done| done < most), "nothing was written in the meantime");
    if let (Some(before), Some(after)) = (before, memory(server.child.id())) {
        let mib = |bytes: u64| bytes >> 20;
        assert!(after < before + (256 << 20), "memory grew from {} to {} MiB", mib(before), mib(after));
        println!("{} requests; memory {} MiB before, {} after", 2 * CLIENTS * REQUESTS, mib(before), mib(after));
    }
    drop(slow);
    let _ = writer.kill();
    let _ = writer.wait();
}
