//! Configuration files that include others: what a run gets, what its folder says, and where errors are.

use crate::common::Place;

#[test]
fn a_run_has_the_settings_of_all_files_and_its_folder_has_them_merged() {
    let place = Place::new();
    std::fs::create_dir(place.path("shared")).unwrap();
    place.write(
        "shared/base.toml",
        "task.name = \"synth1d\"\nmethod.name = \"rmd\"\n[outer]\niterations = 4\nrate = 0.01\n",
    );
    place.write("own.toml", "include = \"shared/base.toml\"\nseed = 3\n[outer]\nrate = 0.02\n");
    place.run(&["run", "own.toml", "--out", "run", "--quiet"]).done();
    let merged = place.read("run/config.toml");
    assert!(!merged.contains("include") && merged.contains("seed = 3") && merged.contains("rate = 0.02"), "{merged}");
    // The folder needs neither file.
    std::fs::remove_dir_all(place.path("shared")).unwrap();
    place.run(&["resume", "run", "--iterations", "6", "--quiet"]).done();
    place
        .run(&["run", "own.toml"])
        .refused("own.toml, line 1: cannot include shared/base.toml: No such file or directory (os error 2)");
}

#[test]
fn errors_name_the_file_and_the_line_that_they_are_in() {
    let place = Place::new();
    place.write("base.toml", "task.name = \"synth1d\"\n\n[outer]\nrat = 0.01\n");
    place.write("own.toml", "include = \"base.toml\"\n");
    place.run(&["run", "own.toml"]).refused("base.toml, line 4: there is no key 'outer.rat'; did you mean outer.rate?");
    place.write("base.toml", "include = \"own.toml\"\n");
    place.run(&["run", "own.toml"]).refused(
        "base.toml, line 1: files include each other in a circle: own.toml includes base.toml includes own.toml; take one \
         of these lines out",
    );
    place.write("base.toml", "seed = 1\n");
    place
        .run(&["run", "own.toml"])
        .refused("base.toml, line 1: it does not say which task to run; add a line such as: task.name = \"synth1d\"");
    std::fs::write(place.path("base.toml"), b"seed = 1\n\xff").unwrap();
    place.run(&["run", "own.toml"]).refused("base.toml, line 2: this is not TOML: it is not UTF-8 text");
}

#[test]
fn the_schema_and_the_suggestions_know_the_key() {
    let place = Place::new();
    let schema: serde_json::Value = serde_json::from_str(&place.run(&["schema"]).done().out).unwrap();
    assert!(schema["properties"]["include"]["anyOf"].is_array());
    assert_eq!(schema["properties"]["about"]["properties"]["tags"]["items"]["type"], "string");
}
