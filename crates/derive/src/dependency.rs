//! Under which name the crate that uses the macro depends on a package: cargo lets a dependency be renamed.
//!
//! Only the few forms that name a dependency are read from `Cargo.toml`, line by line, so that no reader of TOML has to be built:
//!
//! ```text
//! name = "1"                        [dependencies.name]          name.workspace = true
//! name = { package = "…", … }       package = "…"                (renamed in the workspace's Cargo.toml)
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The dependencies of a manifest: name, package if it differs, and whether the workspace defines it.
type Dependencies = HashMap<String, Dependency>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Dependency {
    package: Option<String>,
    workspace: bool,
}

/// The name in Rust code of a dependency on this package; `None` if there is none. The crate itself is not among its
/// dependencies.
pub fn name_of(package: &str) -> Option<String> {
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let own = dependencies(&manifest, |table| !table.starts_with("workspace."));
    let shared = || workspace(&folder).map(|text| dependencies(&text, |table| table.starts_with("workspace.")));
    find(&own, package, shared).map(|name| name.replace('-', "_"))
}

fn find(own: &Dependencies, package: &str, shared: impl Fn() -> Option<Dependencies>) -> Option<String> {
    let of_workspace = own.values().any(|dependency| dependency.workspace);
    let shared = if of_workspace { shared() } else { None }.unwrap_or_default();
    let is_it = |(name, dependency): &(&String, &Dependency)| {
        let inherited = || shared.get(*name).filter(|_| dependency.workspace)?.package.as_ref();
        dependency.package.as_ref().or_else(inherited).unwrap_or(name) == package
    };
    own.iter().find(is_it).map(|(name, _)| name.clone())
}

/// The manifest of the workspace that a folder is in.
fn workspace(folder: &Path) -> Option<String> {
    let manifests = folder.ancestors().filter_map(|above| std::fs::read_to_string(above.join("Cargo.toml")).ok());
    manifests.into_iter().find(|text| text.lines().any(|line| line.trim().starts_with("[workspace")))
}

/// The dependencies of the requested tables, including `[dev-dependencies]` and those of one target.
fn dependencies(manifest: &str, asked: impl Fn(&str) -> bool) -> Dependencies {
    let mut found = Dependencies::new();
    // The table, and its dependency if it is `[dependencies.name]`.
    let (mut within, mut about) = (false, None);
    for line in manifest.lines().map(|line| line.split(" #").next().unwrap_or_default().trim()) {
        if let Some(table) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (head, last) = table.rsplit_once('.').unwrap_or(("", table));
            within = last.ends_with("dependencies") && asked(table);
            about = (head.ends_with("dependencies") && asked(head)).then(|| unquoted(last));
            if let Some(name) = &about {
                found.entry(name.clone()).or_default();
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        match (&about, within, key.split_once('.')) {
            (Some(name), ..) => note(found.entry(name.clone()).or_default(), key, value),
            (None, true, Some((name, key))) => note(found.entry(unquoted(name)).or_default(), key, value),
            (None, true, None) => {
                let dependency = found.entry(unquoted(key)).or_default();
                let inside = value.strip_prefix('{').map_or("", |rest| rest.trim_end_matches('}'));
                for (key, value) in inside.split(',').filter_map(|part| part.split_once('=')) {
                    note(dependency, key.trim(), value.trim());
                }
            }
            _ => {}
        }
    }
    found
}

fn note(dependency: &mut Dependency, key: &str, value: &str) {
    match key {
        "package" => dependency.package = Some(unquoted(value)),
        "workspace" => dependency.workspace = value == "true",
        _ => {}
    }
}

fn unquoted(word: &str) -> String {
    word.trim().trim_matches(['"', '\'']).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "[workspace]\nmembers = []\n\n[workspace.dependencies]\nbilevel = { path = \"x\" }\n\
                             engine = { package = \"bilevel-graph\", version = \"0.2\" }\n";

    /// The name of `bilevel-graph` in a crate with this manifest.
    fn graph_in(manifest: &str) -> Option<String> {
        let own = dependencies(manifest, |table| !table.starts_with("workspace."));
        find(&own, "bilevel-graph", || Some(dependencies(WORKSPACE, |table| table.starts_with("workspace."))))
    }

    #[test]
    fn a_dependency_is_found_in_every_form_it_is_written_in() {
        for manifest in [
            "[dependencies]\nbilevel-graph = \"0.2\"",
            "[package]\nname = \"x\"\n[dev-dependencies]\nbilevel-graph = { version = \"0.2\", features = [\"a\"] } # why",
            "[dependencies.bilevel-graph]\nversion = \"0.2\"",
            "[target.'cfg(unix)'.dependencies]\nbilevel-graph.version = \"0.2\"",
            "[dependencies]\n\"bilevel-graph\".workspace = true",
        ] {
            assert_eq!(graph_in(manifest).as_deref(), Some("bilevel-graph"), "{manifest}");
        }
    }

    #[test]
    fn a_renamed_dependency_has_its_new_name() {
        for manifest in [
            "[dependencies]\ng = { version = \"0.2\", package = \"bilevel-graph\" }",
            "[dependencies.g]\npackage = 'bilevel-graph'",
            "[build-dependencies]\nother = \"1\"\n[dependencies]\ng.package = \"bilevel-graph\"",
        ] {
            assert_eq!(graph_in(manifest).as_deref(), Some("g"), "{manifest}");
        }
        assert_eq!(graph_in("[dependencies]\nengine.workspace = true").as_deref(), Some("engine"));
        assert_eq!(graph_in("[dependencies]\nengine = { workspace = true }").as_deref(), Some("engine"));
    }

    #[test]
    fn what_is_no_dependency_is_not_found() {
        for manifest in [
            "[package]\nname = \"bilevel-graph\"\n[lib]\nbilevel-graph = 1",
            "[dependencies]\nbilevel-graph = { package = \"something-else\" }",
            "[dependencies]\nengine = \"1\"",
            "[features]\nbilevel-graph = []\n[workspace.dependencies]\nbilevel-graph = \"0.2\"",
        ] {
            assert_eq!(graph_in(manifest), None, "{manifest}");
        }
    }
}
