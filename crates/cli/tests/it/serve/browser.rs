//! The served page in a real browser: clicks, a live update, a narrow screen, dark mode. Skipped where there is none, unless CI=true.
//!
//! A proxy of the test adds a script to the page, puts the page into a frame (a headless window cannot be as narrow as a telephone), and
//! writes more of a run when the script asks for it. It leaves the headers of the server as they are, its policy for scripts included.

use super::{Server, run};
use crate::common::Place;
use crate::report::drive;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Looks at the page as a reader would, and tells the page around it.
const SCRIPT: &str = include_str!("browser.js");

/// A run that is written step by step: its folder, the lines of a finished run, and where they are written.
struct Growing {
    folder: PathBuf,
    lines: Vec<String>,
}

impl Growing {
    /// Leaves this many lines and half of the next.
    fn write(&self, count: usize) {
        let half = &self.lines[count][..self.lines[count].len() / 2];
        std::fs::write(self.folder.join("metrics.jsonl"), self.lines[..count].concat() + half).unwrap();
    }
}

/// Answers one request: the page around the frame, the script, a step of the run, or what the server answers.
fn answer(mut stream: TcpStream, port: u16, own: u16, growing: &Growing) {
    let (mut request, mut part) = (vec![], [0; 4096]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(read) if read > 0 => request.extend_from_slice(&part[..read]),
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request).replace(&format!("127.0.0.1:{own}"), &format!("127.0.0.1:{port}"));
    let target = request.split(' ').nth(1).unwrap_or("/").to_string();
    let reply = |kind: &str, body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let text = if let Some(size) = target.strip_prefix("/around?") {
        let (width, height) = size.split_once('x').unwrap();
        let script = "addEventListener('message', (e) => { verdict.textContent = JSON.stringify(e.data); });";
        let frame =
            format!("<iframe src=\"/\" style=\"border:0;display:block;width:{width}px;height:{height}px\"></iframe>");
        reply(
            "text/html",
            &format!(
                "<!doctype html><html><body style=\"margin:0\"><script>{script}</script>{frame}<pre id=\"verdict\"></pre></body></html>"
            ),
        )
    } else if target == "/test.js" {
        reply("text/javascript", SCRIPT)
    } else if let Some(count) = target.strip_prefix("/step?") {
        growing.write(count.parse().unwrap());
        // Until the server looks at the folder again.
        std::thread::sleep(Duration::from_millis(700));
        reply("text/plain", "done")
    } else {
        let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        server.write_all(request.replace("keep-alive", "close").as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = server.read_to_string(&mut answer);
        match target == "/" {
            true => {
                let (head, body) = answer.split_once("\r\n\r\n").unwrap();
                let body = body.replace("</body>", "<script src=\"/test.js\"></script></body>");
                let head: Vec<&str> = head.lines().filter(|line| !line.starts_with("Content-Length")).collect();
                format!("{}\r\nContent-Length: {}\r\n\r\n{body}", head.join("\r\n"), body.len())
            }
            false => answer,
        }
    };
    let _ = stream.write_all(text.as_bytes());
}

/// Opens the page in a window and fails where a reader would stumble.
fn check(browser: &Path, folder: &Path, place: &Place, (width, height, dark): drive::Window) {
    let server = Server::start(place, "runs");
    let metrics = place.read("finished/metrics.jsonl");
    let lines = metrics.lines().map(|line| format!("{line}\n")).collect();
    let growing = Growing { folder: place.path("runs/live"), lines };
    growing.write(10);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    let scheme = if dark { "dark" } else { "light" };
    let picture = folder.join(format!("{width}-{scheme}.png"));
    let ended = Arc::new(AtomicBool::new(false));
    let dom = std::thread::scope(|scope| {
        let (server, growing, ending) = (&server, &growing, ended.clone());
        scope.spawn(move || {
            for stream in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                scope.spawn(move || answer(stream, server.port, own, growing));
            }
        });
        let address = format!("http://127.0.0.1:{own}/around?{width}x{height}");
        let opened =
            std::panic::catch_unwind(|| drive::open(browser, folder, &address, [width, height], dark, &picture));
        ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", own));
        opened
    });
    let dom = dom.unwrap_or_else(|why| std::panic::resume_unwind(why));
    let verdict = dom.split("<pre id=\"verdict\">").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap_or("");
    let wanted = format!("{{\"failures\":[],\"scheme\":\"{scheme}\",\"width\":{width}}}");
    assert_eq!(verdict, wanted, "at {width} in {scheme}; screenshots are in {}", folder.display());
    assert!(std::fs::metadata(&picture).is_ok_and(|file| file.len() > 10_000), "no screenshot {}", picture.display());
}

#[test]
fn the_page_lists_selects_compares_and_follows_a_run_wide_and_narrow_in_light_and_dark() {
    let Some(browser) = drive::chromium() else { return };
    let place = Place::new();
    run(&place, &["--iterations", "60", "--out", "runs/slow", "--rate", "0.02", "--tag", "baseline"]);
    run(
        &place,
        &[
            "--iterations",
            "60",
            "--out",
            "runs/fast",
            "--rate",
            "0.1",
            "--name",
            "fast one",
            "--note",
            "the rate of the paper",
        ],
    );
    place.run(&["run", "digits-l2", "--iterations", "12", "--out", "runs/digits", "--quiet"]).done();
    let diverged =
        place.run(&["run", "synth1d", "--method", "hpo-sgld", "--rate", "50", "--out", "runs/diverged", "--quiet"]);
    assert_eq!(diverged.code, Some(1));
    // A run that is at work, as its folder shows it.
    run(&place, &["--iterations", "60", "--out", "finished", "--rate", "0.05"]);
    std::fs::create_dir(place.path("runs/live")).unwrap();
    place.write("runs/live/config.toml", &place.read("finished/config.toml"));
    let mut provenance: serde_json::Value = serde_json::from_str(&place.read("finished/provenance.json")).unwrap();
    provenance[0]["ended"] = serde_json::Value::Null;
    place.write("runs/live/provenance.json", &provenance.to_string());
    let folder = std::env::temp_dir().join(format!("serve-browser-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for window in [(1280, 1500, false), (1280, 1500, true), (400, 1500, false), (400, 1500, true)] {
        check(&browser, &folder, &place, window);
    }
    let _ = std::fs::remove_dir_all(folder.join("profile"));
    println!("screenshots are in {}", folder.display());
}
