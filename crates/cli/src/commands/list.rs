//! `bilevel list`: tasks, studies and methods, one line each.

use crate::arguments::List;
use crate::errors::Result;
use bilevel_run::Registry;
use serde_json::{Value, json};
use std::io::Write;

/// Runs the command.
pub fn list(registry: &Registry, arguments: &List, out: &mut dyn Write) -> Result<()> {
    let methods = registry.methods().iter().map(|known| &known.info);
    if arguments.json {
        let task = |known: &bilevel_run::KnownTask| json!({ "name": known.name, "summary": known.summary, "method": known.usual().defaults().method });
        let method = |m: &bilevel::methods::MethodInfo| json!({ "name": m.name, "summary": m.summary, "cost": m.cost, "memory": m.memory, "when": m.when });
        let study =
            |known: &std::sync::Arc<dyn bilevel_run::Study>| json!({ "name": known.name(), "title": known.title() });
        let tasks: Vec<Value> = registry.tasks().iter().map(task).collect();
        let studies: Vec<Value> = registry.studies().iter().map(study).collect();
        let methods: Vec<Value> = methods.map(method).collect();
        writeln!(out, "{:#}", json!({ "tasks": tasks, "studies": studies, "methods": methods }))?;
        return Ok(());
    }
    let lists = [
        (
            "Tasks (bilevel run TASK):",
            registry.tasks().iter().map(|task| (task.name, task.summary)).collect::<Vec<_>>(),
        ),
        (
            "Studies (bilevel reproduce STUDY):",
            registry.studies().iter().map(|study| (study.name(), study.title())).collect(),
        ),
        ("Methods (bilevel run TASK --method METHOD):", methods.map(|info| (info.name, info.summary)).collect()),
    ];
    let width = lists.iter().flat_map(|(_, lines)| lines).map(|(name, _)| name.len()).max().unwrap_or(0);
    let filled = lists.iter().filter(|(_, lines)| !lines.is_empty());
    for (number, (heading, lines)) in filled.enumerate() {
        writeln!(out, "{}{heading}\n", if number > 0 { "\n" } else { "" })?;
        for (name, summary) in lines {
            writeln!(out, "  {name:width$}  {summary}")?;
        }
    }
    Ok(())
}
