//! `bilevel list`: experiments and methods, a line each.

use crate::arguments::List;
use crate::errors::Result;
use serde_json::{Value, json};
use std::io::Write;

/// Runs the command.
pub fn list(arguments: &List, out: &mut dyn Write) -> Result<()> {
    let (tasks, methods) = (bilevel_tasks::tasks(), bilevel::methods());
    if arguments.json {
        let tasks: Vec<Value> = tasks
            .iter()
            .map(|task| json!({ "name": task.name, "summary": task.summary, "method": task.defaults.method }))
            .collect();
        let methods: Vec<Value> = methods
            .iter()
            .map(
                |m| json!({ "name": m.name, "summary": m.summary, "cost": m.cost, "memory": m.memory, "when": m.when }),
            )
            .collect();
        writeln!(out, "{:#}", json!({ "experiments": tasks, "methods": methods }))?;
        return Ok(());
    }
    let names = tasks.iter().map(|task| task.name).chain(methods.iter().map(|method| method.name));
    let width = names.map(str::len).max().unwrap_or(0);
    writeln!(out, "Experiments (bilevel run EXPERIMENT):\n")?;
    for task in tasks {
        writeln!(out, "  {:width$}  {}", task.name, task.summary)?;
    }
    writeln!(out, "\nMethods (bilevel run EXPERIMENT --method METHOD):\n")?;
    for method in methods {
        writeln!(out, "  {:width$}  {}", method.name, method.summary)?;
    }
    Ok(())
}
