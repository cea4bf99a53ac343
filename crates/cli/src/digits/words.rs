//! The study in words: what is done, what came out, what it cannot show.

use super::Study;
use bilevel_tasks::digits::study::{BOTH, METHODS, NONE, Plan, SHARED, Trial};

/// Three commands for whoever wants to go on, to be given to this program.
pub fn next(program: &str) -> String {
    let commands = [
        ("compare digits-l2 --seeds 2", "more training digits, all settings yours to change"),
        ("run hyper-cleaning", "learn which training labels are wrong"),
        ("tour", "how a loss is written, derived and run"),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let line = |(command, what): (&str, &str)| format!("  {program} {command:<width$}  {what}\n");
    commands.map(line).concat()
}

/// How this program is called: as cargo does it, where cargo did.
pub fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "bilevel" }
}

/// Letters in a line that is easily read.
pub const LONGEST: usize = 100;

/// Text in lines of at most so many letters.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > columns {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n")
}

/// What is about to be done.
pub fn opening(plan: &Plan) -> String {
    format!(
        "Learning a regularisation weight for each of the 640 parameters of a digit classifier: {} digits to train on, 599 \
         to choose the weights by, 599 to test, on {} splits.",
        plan.train,
        plan.splits.len()
    )
}

/// A line for a split that is done.
pub fn split_done(split: u64, trials: &[Trial]) -> String {
    let one = |trial: &Trial| trial.scores.map(|scores| format!("{} {:.3}", trial.name, scores.test.loss));
    let shown = trials.iter().filter(|trial| trial.name != BOTH).filter_map(one).collect::<Vec<_>>().join(", ");
    format!("split {split}: test loss {shown}")
}

/// What came out, sentence by sentence; every number is from this study.
pub fn outcome(study: &Study) -> Vec<String> {
    let validation = |name: &str| study.spread(name, |scores| scores.validation.loss).mean;
    let test = |name: &str| study.spread(name, |scores| scores.test.loss).mean;
    let accuracy = |name: &str| 100.0 * study.spread(name, |scores| scores.test.accuracy).mean;
    let least = |of: &dyn Fn(&str) -> f64| {
        let names = study.names().into_iter().filter(|name| of(name).is_finite());
        names.min_by(|a, b| of(a).total_cmp(&of(b))).unwrap_or(NONE)
    };
    let (chosen, tested) = (least(&validation), least(&test));
    let mut said = vec![];
    said.push(if chosen == tested {
        format!("Best on validation and on test digits: {chosen}.")
    } else {
        format!("Best on validation digits: {chosen}; on test digits: {tested}.")
    });
    let learned = METHODS.iter().map(|method| method.name);
    let better = learned.clone().filter(|name| test(name) < test(SHARED)).count();
    said.push(match (better, METHODS.len()) {
        (0, _) => format!("On test digits no method beats one tuned weight, whose loss is {:.3}.", test(SHARED)),
        (all, count) if all == count => {
            format!("On test digits all {count} methods beat one tuned weight, whose loss is {:.3}.", test(SHARED))
        }
        (some, count) => {
            format!(
                "On test digits {some} of {count} methods beat one tuned weight, whose loss is {:.3}.",
                test(SHARED)
            )
        }
    });
    let gap = |name: &str| test(name) - validation(name);
    if let Some(worst) = learned.filter(|name| gap(name) > gap(SHARED)).max_by(|a, b| gap(a).total_cmp(&gap(b))) {
        said.push(format!(
            "640 weights chosen by 599 digits fit those digits: {worst} has {:.3} on validation digits and {:.3} on test \
             digits, while one tuned weight has {:.3} and {:.3}. Believe the test column.",
            validation(worst),
            test(worst),
            validation(SHARED),
            test(SHARED)
        ));
    }
    let better = if test(BOTH) < test(tested) { "Labels are worth more in training" } else { "For comparison" };
    said.push(format!(
        "{better}: one tuned weight, trained on the validation digits as well, has a test loss of {:.3} and {:.1} % right.",
        test(BOTH),
        accuracy(BOTH)
    ));
    said
}

/// What a reader must know before believing the rest.
pub fn warnings(study: &Study) -> Vec<String> {
    let failed = study.splits.iter().flatten().filter_map(|trial| {
        let why = trial.failed.as_ref()?;
        Some(format!("On split {} {} gave no classifier: {why}.", trial.split, trial.name))
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_the_terminal_is_wide() {
        let text = opening(&Plan::full());
        for columns in [40, 80, LONGEST] {
            let lines = wrapped(&text, columns);
            assert!(lines.lines().all(|line| line.chars().count() <= columns), "{lines}");
            assert_eq!(lines.replace('\n', " "), text);
        }
    }
}
