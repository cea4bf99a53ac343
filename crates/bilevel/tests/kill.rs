//! A run killed at random moments, and started again each time, ends with the bits of one that was left alone.

#[path = "../examples/kill_target.rs"]
mod kill_target;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: u32 = 200;

/// Where the child finds its folder and seed: this test program starts itself.
const FOLDER: &str = "BILEVEL_KILL_TEST_FOLDER";
const SEED: &str = "BILEVEL_KILL_TEST_SEED";

/// The name under which the usual arguments of a test program choose the test.
const NAME: &str = "a_run_killed_two_hundred_times_ends_with_the_same_bits";

/// This program has no harness: started by itself it is the run that is killed, and otherwise it is the test.
fn main() {
    if let (Ok(folder), Ok(seed)) = (std::env::var(FOLDER), std::env::var(SEED)) {
        let outcome = kill_target::run(Path::new(&folder), seed.parse().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join("result"), kill_target::bits(&outcome).unwrap()).unwrap();
        return;
    }
    let (options, filters): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with('-'));
    if options.iter().any(|option| option == "--list") {
        return println!("{NAME}: test");
    }
    let chosen = filters.is_empty() || filters.iter().any(|filter| NAME.contains(filter.as_str()));
    if chosen && !options.iter().any(|option| option == "--ignored") {
        a_run_killed_two_hundred_times_ends_with_the_same_bits();
        println!("test {NAME} ... ok");
    }
}

fn child(folder: &Path, seed: u64) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("bilevel-kill-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn a_run_killed_two_hundred_times_ends_with_the_same_bits() {
    let began = Instant::now();
    let (mut kills, mut runs, mut most) = (0, 0, 0);
    let mut random = 0x9E3779B97F4A7C15u64;
    while kills < KILLS {
        runs += 1;
        let seed = runs as u64;
        let alone = folder("alone");
        let start = Instant::now();
        let want = kill_target::bits(&kill_target::run(&alone, seed).unwrap()).unwrap();
        // Moments of death spread over about a third of a whole run, so that it takes several lives to finish.
        let span = (start.elapsed().as_micros() as u64 / 3).max(3000);
        let path = folder("killed");
        let mut lives = 0;
        loop {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut process = child(&path, seed);
            std::thread::sleep(Duration::from_micros((random >> 33) % span));
            // SIGKILL: the process has no say in it.
            process.kill().unwrap();
            let status = process.wait().unwrap();
            if status.success() {
                break;
            }
            assert_eq!(status.code(), None, "the run failed by itself in life {lives} of run {runs}");
            (kills, lives) = (kills + 1, lives + 1);
            // A slow machine must not need for ever: let it finish.
            if lives >= 400 || began.elapsed() > Duration::from_secs(120) {
                assert!(child(&path, seed).wait().unwrap().success());
                break;
            }
        }
        most = most.max(lives);
        assert_eq!(std::fs::read_to_string(path.join("result")).unwrap(), want, "run {runs} after {lives} kills");
        for path in [alone, path] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    println!("{kills} kills in {runs} runs, up to {most} a run, {:.1} s", began.elapsed().as_secs_f64());
}
