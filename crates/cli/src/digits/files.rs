//! The study as files: all numbers but times, and the weights.

use super::Study;
use crate::errors::{CliError, Result};
use bilevel_tasks::digits::study::{METHODS, Trial};
use bilevel_tasks::digits::{SHAPE, Score};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::path::Path;

/// The settings of the study.
pub fn settings(study: &Study) -> Value {
    let plan = &study.plan;
    let methods: Vec<Value> = METHODS
        .iter()
        .map(|method| {
            let iterations = study.trials(method.name).map(|trial| trial.iterations).max();
            json!({ "name": method.name, "optimizer": "adam", "rate": method.rate, "iterations": iterations })
        })
        .collect();
    json!({
        "device": study.device, "splits": plan.splits, "training_digits": plan.train, "training_steps": plan.steps,
        "grid": plan.grid, "inner_steps": plan.inner_steps, "budget": plan.budget, "methods": methods,
    })
}

/// The same for people.
pub fn settings_text(study: &Study) -> String {
    let plan = &study.plan;
    let list = |numbers: Vec<String>| numbers.join(", ");
    let mut lines = vec![
        ("device", study.device.to_string()),
        ("splits", list(plan.splits.iter().map(u64::to_string).collect())),
        ("training digits", plan.train.to_string()),
        ("training", format!("{} gradient steps of 1 / (largest curvature), from 0", plan.steps)),
        ("shared λ tried", list(plan.grid.iter().map(f64::to_string).collect())),
        ("inner steps", format!("{} for each hypergradient, going on from the last", plan.inner_steps)),
        ("budget", format!("{} gradients for hypergradients", plan.budget)),
    ];
    for method in &METHODS {
        let iterations = study.trials(method.name).map(|trial| trial.iterations).max().unwrap_or(0);
        lines.push((method.name, format!("Adam at rate {}, {iterations} outer iterations", method.rate)));
    }
    lines.into_iter().map(|(name, text)| format!("{name:<18}{text}\n")).collect()
}

/// The text of `result.json`.
pub fn json(study: &Study) -> String {
    let score = |score: Score| json!({ "loss": score.loss, "accuracy": score.accuracy });
    let trial = |trial: &Trial| {
        let scores = trial
            .scores
            .map(|s| json!({ "training": score(s.train), "validation": score(s.validation), "test": score(s.test) }));
        json!({
            "weights": trial.name, "split": trial.split, "scores": scores, "gradients": trial.cost,
            "iterations": trial.iterations, "failed": trial.failed,
        })
    };
    let trials: Vec<Value> = study.splits.iter().flatten().map(trial).collect();
    format!("{:#}\n", json!({ "study": "digits", "settings": settings(study), "trials": trials }))
}

/// The bytes of `lambda.safetensors`: the logarithms of the weights, 64 pixels by 10 classes, as `NAME.split-N`.
pub fn lambda(study: &Study, folder: &Path) -> Result<Vec<u8>> {
    let with_lambda = study.splits.iter().flatten().filter(|trial| !trial.lambda.is_empty());
    let named: Vec<(String, Vec<u8>)> = with_lambda
        .map(|trial| {
            let bytes = trial.lambda.iter().flat_map(|value| value.to_le_bytes()).collect();
            (format!("{}.split-{}", trial.name.replace(' ', "-"), trial.split), bytes)
        })
        .collect();
    let failed = |error: safetensors::SafeTensorError| CliError::File {
        action: "write",
        path: folder.join("lambda.safetensors"),
        reason: error.to_string(),
    };
    let mut views = vec![];
    for (name, bytes) in &named {
        views.push((name.clone(), TensorView::new(Dtype::F64, SHAPE.to_vec(), bytes).map_err(failed)?));
    }
    safetensors::serialize(views, None).map_err(failed)
}
