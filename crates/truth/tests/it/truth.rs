//! The truth suite: what it holds, and every method held to what its documentation claims.

use bilevel::methods::AnyMethod;
use bilevel::methods::claims::{Promise, Target};
use bilevel::{Cpu, Method, methods};
use bilevel_truth::{self as truth, Effort, MAX_STANDARD_ERROR, Table, TruthProblem, Verdict};
use std::time::Instant;

fn all_methods() -> Vec<AnyMethod> {
    methods::all().iter().map(|info| AnyMethod::named(info.name).unwrap()).collect()
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
            match row.kept {
                Some(true) => "kept ",
                Some(false) => "BROKEN ",
                None => "",
            },
            row.verdict,
        );
    }
}

#[test]
fn every_method_keeps_what_it_promises_on_every_problem_that_its_claims_cover() {
    let problems = truth::problems().unwrap();
    let mut broken = vec![];
    for method in all_methods() {
        let (name, claims, began) = (method.name(), method.claims(), Instant::now());
        let covered: Vec<TruthProblem> = problems.iter().filter(|p| claims.cover(&p.facts)).cloned().collect();
        let table = Table::measure(&[method], &covered, Effort::QUICK, &Cpu::with_threads(1)).unwrap();
        print(&table);
        println!("{name} took {:.1?}", began.elapsed());
        broken.extend(table.broken_claims().into_iter().map(|row| format!("{row:#?}")));
        // A claim that covers nothing, or for which nothing was measured, would be empty words.
        let measured = |row: &&truth::Row| match claims.promise {
            Promise::Exact => row.verdict == Verdict::Right,
            _ => row.kept == Some(true),
        };
        assert!(table.rows.iter().any(|row| measured(&row)), "{name} claims nothing that was measured");
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_method_is_right_only_if_its_standard_error_is_small_beside_the_truth() {
    let problems: Vec<TruthProblem> =
        truth::problems().unwrap().into_iter().filter(|p| p.name == "a thousand quadratics").collect();
    let es = AnyMethod::named("es").unwrap();
    let table = Table::measure(&[es], &problems, Effort::QUICK, &Cpu::with_threads(1)).unwrap();
    let row = &table.rows[0];
    // Fifty directions in a thousand dimensions: unbiased, and of no use.
    assert!(row.relative_bias().unwrap() > 0.3 && row.relative_error().unwrap() > MAX_STANDARD_ERROR, "{row:?}");
    assert_eq!((&row.verdict, row.kept), (&Verdict::Noisy, Some(true)));
    assert!(!table.heat_map().cells[0][0].as_ref().unwrap().right);
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
