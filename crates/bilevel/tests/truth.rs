//! The truth suite: what it holds, and every method held to what its documentation claims.

use bilevel::truth::{self, Effort, Table, Target, TruthProblem, Verdict};
use bilevel::{AnyMethod, Cpu, Method, methods};

fn all_methods() -> Vec<AnyMethod> {
    methods().iter().map(|info| AnyMethod::named(info.name).unwrap()).collect()
}

fn print(table: &Table) {
    for row in &table.rows {
        let number = |x: Option<f64>| x.map_or("–".into(), |x| format!("{x:.1e}"));
        println!(
            "{:17} {:36} {:8} bias {:8} ± {:8} cos {:6} size {:8} growth {:8} {}{:?}",
            row.method,
            row.problem,
            number(row.truth),
            number(row.relative_bias()),
            number(row.standard_error.zip(row.truth).map(|(e, t)| e / t)),
            row.cosine.map_or("–".into(), |x| format!("{x:.3}")),
            number(row.size),
            number(row.growth_rate),
            if row.claimed { "claimed " } else { "" },
            row.verdict,
        );
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "millions of steps: run it in release")]
fn every_method_is_right_wherever_it_claims_to_be() {
    let problems = truth::problems().unwrap();
    for method in all_methods() {
        let name = method.name();
        let covered: Vec<TruthProblem> = problems.iter().filter(|p| method.claims().cover(&p.facts)).cloned().collect();
        let table = Table::measure(&[method], &covered, Effort::QUICK, &Cpu::with_threads(1)).unwrap();
        print(&table);
        assert!(table.broken_claims().is_empty(), "{:#?}", table.broken_claims());
        // A claim that nothing was measured for would be empty words.
        let right = table.rows.iter().any(|row| row.claimed && row.verdict == Verdict::Right);
        assert_eq!(right, !covered.is_empty(), "{name}");
    }
}

#[test]
fn whole_trainings_are_followed_exactly_by_the_methods_that_say_so() {
    let trainings = truth::trainings(300).unwrap();
    let named = |names: &[&str]| -> Vec<AnyMethod> { names.iter().map(|n| AnyMethod::named(n).unwrap()).collect() };
    let methods = named(&["rmd", "fmd", "langevin-adjoint", "hpo-sgld"]);
    let table = Table::measure(&methods, &trainings, Effort::QUICK, &Cpu::with_threads(1)).unwrap();
    print(&table);
    assert!(table.broken_claims().is_empty(), "{:#?}", table.broken_claims());
}

#[test]
fn there_are_problems_of_every_kind() {
    let problems = truth::problems().unwrap();
    assert!(problems.len() >= 20, "{}", problems.len());
    let count = |is: fn(&TruthProblem) -> bool| problems.iter().filter(|p| is(p)).count();
    assert!(count(|p| matches!(p.facts.target, Target::Minimum)) >= 8);
    assert!(count(|p| matches!(p.facts.target, Target::Gibbs { .. })) >= 8);
    assert!(count(|p| p.facts.several_minima) >= 4);
    assert!(count(|p| p.facts.singular) >= 2 && count(|p| p.facts.minibatches) >= 1);
    assert!(count(|p| p.problem.starts_from_lambda()) >= 3);
    assert!(count(|p| p.truth.len() == 1000) >= 2 && count(|p| p.truth.len() == 1) >= 8);
    for problem in &problems {
        assert!(problem.truth.iter().all(|h| h.is_finite()) && problem.truth.iter().any(|h| *h != 0.0));
        assert_eq!(problem.truth.len(), problem.problem.sizes().0, "{}", problem.name);
    }
}
