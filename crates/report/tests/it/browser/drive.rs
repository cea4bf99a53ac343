//! Driving a page in headless Chromium: for every test that makes a page a person will read.
//!
//! The page is put into a frame of the width to be tested (a headless window cannot be as narrow as a telephone). A
//! script in it looks at what a reader would see and tells the page around it, which Chromium prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Width and height of a window, and whether it is dark.
pub type Window = (u32, u32, bool);

/// The browser; where there is none, says that the test is skipped, or fails where `CI` is `true`: there a test that was never run
/// must not look like one that passed.
pub fn chromium() -> Option<PathBuf> {
    let found = find();
    if found.is_none() {
        let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!ci, "no Chromium found on the path, and BILEVEL_CHROMIUM is not set; install one, or set CI=false");
        println!("skipped: no Chromium found on the path, and BILEVEL_CHROMIUM is not set");
    }
    found
}

fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BILEVEL_CHROMIUM") {
        return Some(PathBuf::from(path));
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

/// Opens an address, takes a screenshot, and returns the page as it is then.
pub fn open(
    browser: &Path,
    folder: &Path,
    address: &str,
    [width, height]: [u32; 2],
    dark: bool,
    picture: &Path,
) -> String {
    let (out, log) = (folder.join("dom.html"), folder.join("chromium.log"));
    let mut command = Command::new(browser);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]);
    command.args(["--disable-dev-shm-usage", "--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("--window-size={},{height}", width.max(600)));
    command.arg(format!("--screenshot={}", picture.display()));
    command.arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)));
    command.arg(address);
    command.stdin(Stdio::null()).stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&log).unwrap());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{} cannot be started: {e}", browser.display()));
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(90) {
            _ = child.kill();
            _ = child.wait();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let dom = fs::read_to_string(&out).unwrap_or_default();
    assert!(dom.contains("</html>"), "Chromium printed no page:\n{}", fs::read_to_string(&log).unwrap_or_default());
    dom
}

/// Looks at a page in each of these windows and fails where a reader would stumble. Leaves screenshots in the folder.
#[track_caller]
pub fn check(browser: &Path, folder: &Path, page: &str, windows: &[Window]) {
    fs::create_dir_all(folder).unwrap();
    let early = format!("<head><script>{}</script>", include_str!("early.js"));
    let late = format!("<script>{}</script></body>", include_str!("late.js"));
    let checked = page.replacen("<head>", &early, 1).replacen("</body>", &late, 1);
    fs::write(folder.join("checked.html"), checked).unwrap();
    for &(width, height, dark) in windows {
        let scheme = if dark { "dark" } else { "light" };
        let (around, picture) = (folder.join("around.html"), folder.join(format!("{width}-{scheme}.png")));
        let script = "addEventListener('message', (e) => { verdict.textContent = JSON.stringify(e.data); });";
        let style = format!("border:0;display:block;width:{width}px;height:{height}px");
        let frame = format!("<iframe src=\"checked.html\" style=\"{style}\"></iframe>");
        let body =
            format!("<body style=\"margin:0\"><script>{script}</script>{frame}<pre id=\"verdict\"></pre></body>");
        fs::write(&around, format!("<!doctype html><html>{body}</html>")).unwrap();
        let address = format!("file://{}", around.display());
        let dom = open(browser, folder, &address, [width, height], dark, &picture);
        let verdict =
            dom.split("<pre id=\"verdict\">").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap_or("");
        let wanted = format!("{{\"failures\":[],\"scheme\":\"{scheme}\",\"width\":{width}}}");
        assert_eq!(verdict, wanted, "at {width} in {scheme}; the page is in {}", folder.display());
        assert!(fs::metadata(&picture).is_ok_and(|file| file.len() > 10_000), "no screenshot {}", picture.display());
    }
    _ = fs::remove_dir_all(folder.join("profile"));
}
