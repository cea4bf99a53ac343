//! Event files for TensorBoard, read back byte by byte.

use crate::common::Place;
use std::collections::BTreeMap;

/// Scalars of all event files of a run, in the order of the files: tag → (step, value).
fn scalars(place: &Place, folder: &str) -> BTreeMap<String, Vec<(u64, f32)>> {
    let mut files: Vec<_> = std::fs::read_dir(place.path(folder)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut all: BTreeMap<String, Vec<(u64, f32)>> = BTreeMap::new();
    for file in files {
        assert!(file.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."), "{file:?}");
        let bytes = std::fs::read(file).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let event = &rest[12..12 + length];
            rest = &rest[12 + length + 4..];
            if let Some((tag, step, value)) = scalar(event) {
                all.entry(tag).or_default().push((step, value));
            }
        }
    }
    all
}

/// The fields of a message: number and content, where numbers are their bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = vec![];
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut message).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut message) as usize,
            5 => 4,
            kind => panic!("field of kind {kind}"),
        };
        found.push((key >> 3, message[..length].to_vec()));
        message = &message[length..];
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let length = message.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let value = message[..length].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    *message = &message[length..];
    value
}

fn scalar(event: &[u8]) -> Option<(String, u64, f32)> {
    let field = |message: &[u8], number: u64| fields(message).into_iter().find(|f| f.0 == number).map(|f| f.1);
    let value = field(&field(event, 5)?, 1)?;
    let step = u64::from_le_bytes(field(event, 2)?.try_into().ok()?);
    let number = f32::from_le_bytes(field(&value, 2)?.try_into().ok()?);
    Some((String::from_utf8(field(&value, 1)?).ok()?, step, number))
}

#[test]
fn event_files_hold_what_the_metrics_hold_and_a_resumed_run_goes_on_in_a_new_one() {
    let place = Place::new();
    let run = ["run", "digits-l2", "--outer", "6", "--set", "metrics.every=2", "--out", "kept", "--quiet"];
    place.run(&[&run[..], &["--tensorboard"]].concat()).done();
    assert!(place.read("kept/config.toml").contains("tensorboard = true"));
    // The configuration says it, so the flag need not be given again.
    place.run(&["resume", "kept", "--outer", "9", "--quiet"]).done();
    let found = scalars(&place, "kept/tensorboard");
    assert_eq!(std::fs::read_dir(place.path("kept/tensorboard")).unwrap().count(), 2);
    let steps = |tag: &str| found[tag].iter().map(|(step, _)| *step).collect::<Vec<_>>();
    for tag in ["loss/outer", "loss/inner", "hypergradient/norm", "step/norm", "step/rate", "diagnostics/adjoint_norm"]
    {
        assert_eq!(steps(tag), (1..=9).collect::<Vec<_>>(), "{tag}");
    }
    assert_eq!(steps("measures/test accuracy"), [2, 4, 6, 8]);
    for (line, (_, value)) in place.read("kept/metrics.jsonl").lines().zip(&found["loss/outer"]) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["outer_loss"].as_f64().unwrap() as f32, *value);
    }
}

#[test]
fn there_are_none_where_nobody_asked_and_they_can_be_asked_for_later() {
    let place = Place::new();
    place.run(&["run", "synth1d", "--outer", "5", "--out", "kept", "--quiet"]).done();
    assert!(!place.path("kept/tensorboard").exists());
    place.run(&["resume", "kept", "--outer", "8", "--tensorboard", "--quiet"]).done();
    let found = scalars(&place, "kept/tensorboard");
    assert_eq!(found["loss/outer"].iter().map(|(step, _)| *step).collect::<Vec<_>>(), [6, 7, 8]);
    // With and without them a run finds the same.
    let arguments =
        ["run", "synth1d", "--outer", "8", "--set", "metrics.tensorboard=true", "--out", "other", "--quiet"];
    place.run(&arguments).done();
    assert_eq!(place.read("kept/result.json"), place.read("other/result.json"));
}
