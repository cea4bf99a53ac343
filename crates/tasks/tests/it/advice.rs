//! Advice on the problems of the truth suite, each left out of what its own prediction is made of, against what was measured there.

use bilevel::{Cpu, InnerLoop, Key};
use bilevel_run::Registry;
use bilevel_run::advise::{Advice, Measured, Question, Situation, Suite, advise};
use bilevel_truth as truth;

/// Advice is right where the error of the method it names is within this factor of the best that can be afforded.
const FACTOR: f64 = 3.0;
/// A method can be afforded where it costs at most this many times as much as the training itself.
const AFFORDABLE: f64 = 10.0;

fn advised(suite: &Suite, problem: &truth::TruthProblem, registry: &Registry) -> Advice {
    let bilevel::methods::claims::Facts { target, inner, .. } = problem.facts;
    let question = Question { target, inner: InnerLoop::new(inner.step, inner.steps.min(4000)) };
    let (cpu, key) = (Cpu::with_threads(1), Key::from_seed(3));
    let situation = Situation::measure(&problem.problem, &question, &cpu, key).unwrap();
    advise(registry, suite, &problem.problem, (situation, &question), Some(&problem.name)).unwrap()
}

#[test]
fn advice_is_right_on_nine_of_ten_problems_of_the_truth_suite() {
    let (registry, suite) = (bilevel_tasks::register(Registry::new()), Suite::stored().unwrap());
    let (mut right, mut all) = (0, 0);
    for problem in truth::problems().unwrap() {
        let place = suite.problems.iter().position(|known| known.name == problem.name).unwrap();
        let rows: Vec<&Measured> = suite.rows.iter().filter(|row| row.problem == place).collect();
        let budget = AFFORDABLE * problem.facts.inner.steps as f64;
        let affordable = rows.iter().filter(|row| row.price.is_some_and(|price| price <= budget));
        let best = affordable.map(|row| row.error).fold(f64::INFINITY, f64::min);
        let advice = advised(&suite, &problem, &registry);
        let first = advice.ranked.first().map_or("", |first| &first.method);
        let found = rows.iter().find(|row| row.method == first).map_or(f64::INFINITY, |row| row.error);
        all += 1;
        right += u32::from(found <= FACTOR * best);
        println!("{:40} {first:20} {found:.1e} best {best:.1e} {:?}", problem.name, advice.situation);
    }
    assert!(all >= 20 && right * 10 >= all * 9, "{right} of {all}");
}

#[test]
fn the_stored_suite_has_every_method_on_some_problem_and_every_problem_by_some_method() {
    let suite = Suite::stored().unwrap();
    for method in bilevel::methods::all() {
        assert!(
            suite.of(method.name).next().is_some(),
            "{}: run 'bilevel reproduce truth' again and store its rows",
            method.name
        );
    }
    for (place, known) in suite.problems.iter().enumerate() {
        assert!(suite.rows.iter().any(|row| row.problem == place), "{}", known.name);
    }
}

#[test]
fn what_is_stored_is_what_is_measured() {
    let suite = Suite::stored().unwrap();
    for problem in truth::problems().unwrap().iter().filter(|p| p.name.starts_with("quadratic")) {
        for name in ["rmd", "ift-cg", "hpo-sgld"] {
            let (method, inner) = truth::fitted(&bilevel::methods::AnyMethod::named(name).unwrap(), problem).unwrap();
            let row = truth::measure((&method, &inner), problem, truth::Effort::QUICK, &Cpu::with_threads(1)).unwrap();
            let place = suite.problems.iter().position(|known| known.name == problem.name).unwrap();
            let stored = suite.of(name).find(|row| row.problem == place).unwrap();
            let (now, then) = (row.relative_bias().unwrap(), stored.bias);
            assert!((now - then).abs() <= 1e-6 + 0.01 * then, "{name} on {}: {now}, stored {then}", problem.name);
        }
    }
}
