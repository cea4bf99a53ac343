//! Where a run happens: what there is to choose from, what is refused, and what a run folder keeps of it. None of this needs a
//! GPU.

use crate::common::{Place, golden};
use bilevel_cuda::{Cuda, found_libraries};

/// Why the GPU with this number, which no machine has, cannot be used here.
fn refusal() -> String {
    match Cuda::new(4096) {
        Ok(_) => panic!("there is a GPU 4096"),
        Err(error) => error.to_string(),
    }
}

/// What depends on the machine, masked: numbers of the CPU, whether a library is there, and the GPUs.
fn masked(text: &str) -> String {
    let mut lines = vec![];
    for line in text.lines() {
        let (name, what) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
        let what = what.trim();
        match name {
            _ if name.starts_with("cuda") => continue,
            "cpu" => lines.push(line.replace(what, "N threads, N GiB of memory free")),
            _ if what == "found" || what.starts_with("missing: ") => lines.push(line.replace(what, "FOUND OR MISSING")),
            _ if name.ends_with("uses the CPU.") || name.ends_with("uses cuda:0.") => lines.push("VERDICT".into()),
            _ => lines.push(line.into()),
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_devices_are_listed_with_what_is_missing_whether_or_not_there_is_a_gpu() {
    let place = Place::new();
    let text = place.run(&["devices"]).done().out;
    golden("devices.txt", &masked(&text));
    for (library, found) in found_libraries() {
        assert_eq!(text.contains(&format!("missing: {}\n", library.sentence())), !found, "{text}");
    }
    let gpus = Cuda::devices().unwrap_or_default();
    assert_eq!(text.lines().filter(|line| line.starts_with("  cuda:")).count(), gpus.len(), "{text}");
    let json: serde_json::Value = serde_json::from_str(&place.run(&["devices", "--json"]).done().out).unwrap();
    assert!(json["cpu"]["threads"].as_u64().unwrap() > 0);
    assert_eq!(json["libraries"].as_array().unwrap().len(), 4);
    assert_eq!(json["gpus"].as_array().unwrap().len(), gpus.len());
}

#[test]
fn a_device_that_is_not_there_is_one_sentence_wherever_a_run_happens_and_nothing_is_written() {
    let place = Place::new();
    let why = refusal();
    for command in
        [&["run", "synth1d"][..], &["check", "synth1d"], &["compare", "synth1d"], &["reproduce", "digits", "--quick"]]
    {
        place.run(&[command, &["--device", "cuda:4096"]].concat()).refused(&why);
        place
            .run(&[command, &["--device", "gpu"]].concat())
            .refused("--device: 'gpu' is not a device; use cpu, cuda, cuda:N for GPU number N, or auto");
    }
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
    // What is only shown need not be there.
    let shown = place.run(&["run", "synth1d", "--device", "cuda", "--dry-run"]).done().out;
    assert!(shown.contains("device = \"cuda:0\""), "{shown}");
}

#[test]
fn auto_says_what_it_is_and_the_folder_keeps_that() {
    let place = Place::new();
    let usable = Cuda::new(0).is_ok();
    let device = if usable { "cuda:0" } else { "cpu" };
    let said = place.run(&["run", "synth1d", "--device", "auto", "--outer", "3", "--out", "kept"]).done();
    assert!(said.error.starts_with(&format!("bilevel: --device auto is {device} here: ")), "{said:?}");
    assert!(place.read("kept/config.toml").contains(&format!("device = \"{device}\"")));
    assert!(place.read("kept/checkpoint/configuration").ends_with(&format!(" {device}\n")));
    let quiet = place.run(&["check", "synth1d", "--device", "auto", "--quiet"]).done();
    assert_eq!(quiet.error, "");
}

#[test]
fn a_run_goes_on_where_it_was_and_elsewhere_only_when_asked() {
    let place = Place::new();
    place.run(&["run", "synth1d", "--outer", "10", "--out", "kept", "--quiet"]).done();
    let on = |name: &str, device: &str| {
        let text = place.read(name).replace("cpu\"", &format!("{device}\"")).replace(" cpu\n", &format!(" {device}\n"));
        place.write(name, &text);
    };
    // A configuration changed by hand does not move a run.
    on("kept/config.toml", "cuda:4096");
    place.run(&["resume", "kept"]).refused(
        "the checkpoints in kept were made on cpu, but kept/config.toml has cuda:4096; continue on cpu with 'bilevel \
         resume kept --device cpu', or on cuda:4096 with --device cuda:4096",
    );
    // Nor does a mark that is damaged.
    let mark = place.read("kept/checkpoint/configuration");
    for damaged in ["", "\u{0}", &mark.replace("cpu", "gpu"), &format!("{mark} cpu")] {
        place.write("kept/checkpoint/configuration", damaged);
        place.run(&["resume", "kept"]).refused(
            "kept/config.toml was changed after the run started; change it back, or start a new run with 'bilevel run \
             kept/config.toml'",
        );
    }
    place.write("kept/checkpoint/configuration", &mark);
    // A run that was on a GPU continues there, which has to be there.
    on("kept/checkpoint/configuration", "cuda:4096");
    std::fs::remove_file(place.path("kept/result.json")).unwrap();
    place.run(&["report", "kept", "--quiet"]).done();
    assert!(place.read("kept/report.html").contains("seed 0 · on cuda:4096 · "));
    place.run(&["resume", "kept", "--outer", "12"]).refused(&refusal());
    place
        .run(&["resume", "kept", "--device", "gpu"])
        .refused("--device: 'gpu' is not a device; use cpu, cuda, cuda:N for GPU number N, or auto");
    let said = place.run(&["resume", "kept", "--device", "cpu", "--outer", "12"]).done();
    let note = "the run was on cuda:4096 until now; on cpu its numbers may differ in the last bits\n";
    assert!(said.error.starts_with(note), "{said:?}");
    // From here on it is a run on the CPU.
    assert!(place.read("kept/config.toml").contains("device = \"cpu\""));
    let said = place.run(&["resume", "kept", "--outer", "14"]).done();
    assert!(!said.error.contains("last bit"), "{said:?}");
}

#[test]
fn a_comparison_has_one_device() {
    let place = Place::new();
    let arguments =
        ["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--outer", "3", "--out", "kept", "--quiet"];
    place.run(&[&arguments[..], &["--device", "cpu"]].concat()).done();
    let config = place.read("kept/rmd-s0/config.toml");
    place.write("kept/rmd-s0/config.toml", &config.replace("device = \"cpu\"", "device = \"cuda:4096\""));
    place.run(&arguments).refused(
        "kept/rmd-s0 holds a run with other settings (device is \"cuda:4096\" there and \"cpu\" here); choose another folder \
         with --out",
    );
}
