//! Hypergradients of other libraries on the truth suite, compared with ours and the truth.
//!
//! The problems go to a Python program as JSON, with every number that their losses need. The losses themselves are
//! rewritten there, by name; those that it cannot express are skipped. The comparison is by ‖h − truth‖/‖truth‖.

use crate::error::{BenchError, Result};
use crate::timing::peers::failed;
use bilevel::methods::AnyMethod;
use bilevel::methods::claims::Target;
use bilevel::{Array, Cpu, Key, Session};
use bilevel_graph::Graph;
use bilevel_truth::{self as truth, Effort, TruthProblem};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = include_str!("../peers/truth.py");
/// Our methods: one that follows training, one that solves at its end, and the library's default.
const OURS: [&str; 3] = ["rmd", "ift-cg", "langevin-adjoint"];

/// A problem as the program reads it.
fn exported(problem: &TruthProblem, cpu: &Cpu) -> Result<Value> {
    let key = Key::from_seed(truth::KEY);
    let here = Session::new(&problem.problem, cpu)?.state(key)?.snapshot()?;
    let graph = Graph::new();
    let losses = problem.problem.losses(&graph, &here, key)?;
    let array = |array: &Array| json!({ "shape": array.shape(), "values": array.to_f64() });
    let leaves = losses.lambda.len() + losses.theta.len();
    let floats = |array: &&Array| array.dtype().is_float();
    let data: Vec<Value> = losses.point[leaves..].iter().map(|(_, array)| array).filter(floats).map(array).collect();
    Ok(json!({
        "name": problem.name,
        "step": problem.facts.inner.step,
        "steps": problem.facts.inner.steps,
        "starts_from_lambda": problem.problem.starts_from_lambda(),
        "lambda": array(&here.lambda[0]),
        "theta": array(&here.theta[0]),
        "data": data,
    }))
}

/// The result of a library or a method on a problem.
enum Answer {
    /// Relative error, and seconds if they were measured.
    Found(f64, Option<f64>),
    Refused(String),
}

fn relative_error(found: &[f64], truth: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(truth).map(|(f, t)| f - t)) / norm(&mut truth.iter().copied())
}

fn ask(python: &Path, problems: &Value) -> Result<Vec<Value>> {
    let mut command = Command::new(python);
    command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().map_err(|cause| {
        let program = python.display();
        BenchError::Peer(format!("{program} cannot be started ({cause}); give --peer the path of a Python"))
    })?;
    if let Some(mut input) = running.stdin.take() {
        let told = |cause: std::io::Error| BenchError::Peer(format!("the program did not read the problems: {cause}"));
        input.write_all(problems.to_string().as_bytes()).map_err(told)?;
    }
    let output = running.wait_with_output().map_err(|cause| BenchError::Peer(cause.to_string()))?;
    if !output.status.success() {
        return Err(failed("truth.py", &output));
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn ours(name: &str, problem: &TruthProblem, cpu: &Cpu) -> Result<Answer> {
    let (method, inner) = match truth::fitted(&AnyMethod::named(name)?, problem) {
        Ok(fitted) => fitted,
        Err(error) => return Ok(Answer::Refused(error.to_string())),
    };
    let row = truth::measure((&method, &inner), problem, Effort::QUICK, cpu)?;
    Ok(match (row.relative_bias(), row.verdict) {
        (Some(bias), _) => Answer::Found(bias, None),
        (None, truth::Verdict::NotApplicable(why) | truth::Verdict::Failed(why)) => Answer::Refused(why),
        (None, _) => Answer::Refused("no hypergradient".into()),
    })
}

/// Prints the table, and why there are gaps in it.
pub fn run(python: &Path, threads: usize) -> Result<()> {
    let cpu = Cpu::with_threads(threads);
    let answerable = |problem: &TruthProblem| matches!(problem.facts.target, Target::Minimum | Target::Training { .. });
    let problems: Vec<TruthProblem> =
        truth::problems()?.into_iter().filter(|problem| answerable(problem) && !problem.facts.minibatches).collect();
    let told = problems.iter().map(|problem| exported(problem, &cpu)).collect::<Result<Vec<_>>>()?;
    let mut answers: BTreeMap<(String, String), Answer> = BTreeMap::new();
    let mut columns: Vec<String> = OURS.iter().map(|name| name.to_string()).collect();
    for line in ask(python, &Value::Array(told))? {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_string();
        let (name, peer) = (text("problem"), text("peer"));
        let Some(problem) = problems.iter().find(|problem| problem.name == name) else { continue };
        let numbers = line["hypergradient"].as_array().map(|all| all.iter().filter_map(Value::as_f64).collect());
        let answer = match numbers {
            Some::<Vec<f64>>(found) if found.len() == problem.truth.len() => {
                Answer::Found(relative_error(&found, &problem.truth), line["seconds"].as_f64())
            }
            Some(_) => Answer::Refused("its hypergradient has another size".into()),
            None => Answer::Refused(text("refused")),
        };
        if !columns.contains(&peer) {
            columns.push(peer.clone());
        }
        answers.insert((name, peer), answer);
    }
    for problem in &problems {
        for name in OURS {
            answers.insert((problem.name.clone(), name.into()), ours(name, problem, &cpu)?);
        }
    }
    print(&problems, &columns, &answers);
    Ok(())
}

fn print(problems: &[TruthProblem], columns: &[String], answers: &BTreeMap<(String, String), Answer>) {
    say!(
        "‖h − truth‖/‖truth‖ on problems whose hypergradients are known; seconds of one hypergradient, if they were \
            measured"
    );
    let mut refusals = vec![];
    for problem in problems {
        say!("\n{} ({})", problem.name, problem.about);
        for column in columns {
            match answers.get(&(problem.name.clone(), column.clone())) {
                Some(Answer::Found(error, seconds)) => {
                    let took = seconds.map_or(String::new(), |seconds| format!("{seconds:.1e} s"));
                    say!("  {column:<32} {error:>9.1e}  {took}");
                }
                Some(Answer::Refused(why)) => {
                    say!("  {column:<32} {:>9}", "–");
                    refusals.push((column, &problem.name, why));
                }
                None => {}
            }
        }
    }
    if !refusals.is_empty() {
        say!("\nWithout an answer:");
        for (column, problem, why) in refusals {
            say!("  {column} on {problem}: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exported_problem_has_the_arrays_its_losses_are_made_of() {
        let cpu = Cpu::with_threads(1);
        let problems = truth::problems().unwrap();
        let counts =
            [("quadratic", 1), ("ridge, one penalty", 4), ("overparametrised", 3), ("logistic", 0), ("start", 1)];
        for (name, count) in counts {
            let problem = problems.iter().find(|problem| problem.name == name).unwrap();
            let told = exported(problem, &cpu).unwrap();
            assert_eq!(told["data"].as_array().unwrap().len(), count, "{name}");
            assert_eq!(told["lambda"]["values"].as_array().unwrap().len(), problem.truth.len(), "{name}");
        }
    }

    #[test]
    fn ours_are_right_on_every_problem_that_others_are_asked_about() {
        let cpu = Cpu::with_threads(1);
        for problem in
            truth::problems().unwrap().iter().filter(|problem| PROGRAM.contains(&format!("\"{}\":", problem.name)))
        {
            let best = OURS.iter().filter_map(|name| match ours(name, problem, &cpu).unwrap() {
                Answer::Found(error, _) => Some(error),
                Answer::Refused(_) => None,
            });
            let best = best.fold(f64::INFINITY, f64::min);
            assert!(best < 1e-5, "{}: {best}", problem.name);
        }
    }

    #[test]
    fn a_python_that_is_not_there_is_named_with_the_flag_that_helps() {
        let error = ask(Path::new("no-such-python"), &json!([])).unwrap_err().to_string();
        assert!(error.contains("no-such-python") && error.contains("--peer"), "{error}");
    }
}
