//! What a new user gets wrong is answered with a sentence, and the cause named is the right one.

use crate::with::{Usual, With};
use bilevel::diagnostics::{Cause, Diagnosis, Warning};
use bilevel::methods::{AmigoCg, AmigoSgd, Chains, Covariance, Es, Fmd, IftNeumann, RmdFo, applicable_to};
use bilevel::prelude::*;
use bilevel::{AnyProblem, ProblemBuilder, State};

type One = ProblemBuilder<Leaf<Variable>, Leaf<Variable>>;

fn scalars(lambda: f64, theta: f64) -> One {
    Problem::builder(Leaf(Variable::constant([], lambda)), Leaf(Variable::constant([], theta)))
}

fn run(problem: &AnyProblem, method: impl Method + 'static) -> Outcome {
    Driver::new(&Problem::from(problem.clone()), method).executor(Cpu::with_threads(1)).iterations(20).run().unwrap()
}

fn refused(problem: &AnyProblem, method: impl Method + 'static) -> String {
    Driver::new(&Problem::from(problem.clone()), method).run().unwrap_err().to_string()
}

// ---- A hypergradient that is exactly 0 ----

/// θ⁰ = λ, and λ is nowhere else.
fn learned_start() -> Problem {
    scalars(1.0, 0.0)
        .inner(|_, _, t| t.0.square())
        .outer(|_, _, t| (t.0 - 1.0).square())
        .start(|_, l| *l)
        .build()
        .unwrap()
        .erase()
}

#[test]
fn implicit_methods_refuse_a_problem_whose_lambda_is_the_start_alone() {
    let problem = learned_start();
    let methods: [Box<dyn Method>; 5] = [
        Box::new(IftCg::default()),
        Box::new(IftNeumann::default()),
        Box::new(AmigoCg::default()),
        Box::new(AmigoSgd::default()),
        Box::new(Chains::new(IftCg::default(), 3)),
    ];
    for method in methods {
        let said = refused(&problem, method);
        assert!(
            said.contains("does not apply: its hypergradient would be exactly 0, because λ acts only through θ⁰"),
            "{said}"
        );
        assert!(said.contains("use rmd"), "{said}");
    }
    assert_eq!(run(&problem, Rmd::default()).reason, StopReason::Iterations);
}

#[test]
fn first_order_reverse_mode_refuses_a_problem_without_a_start_and_a_direct_term() {
    let problem =
        scalars(1.0, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.square()).build().unwrap();
    let said = refused(&problem, RmdFo::default());
    assert!(said.contains(
        "rmd-fo does not apply: its hypergradient would be exactly 0, because λ acts only through the inner loss"
    ));
    let direct = scalars(1.0, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, l, t| t.0.square() + l.0.square());
    assert_eq!(run(&direct.build().unwrap(), RmdFo::default()).reason, StopReason::Iterations);
}

#[test]
fn a_lambda_that_reaches_nothing_is_refused_by_all_but_the_searches_that_need_no_derivative() {
    let problem = scalars(1.0, 0.5)
        .inner(|_, l, t| (t.0 - l.0.stop_gradient()).square())
        .outer(|_, _, t| t.0.square())
        .build()
        .unwrap();
    let said = refused(&problem, Rmd::default());
    assert!(said.contains("no differentiable path leads from λ to the outer loss"), "{said}");
    assert_eq!(applicable_to(&problem).unwrap().iter().map(|info| info.name).collect::<Vec<_>>(), ["es", "pes"]);
    assert_eq!(run(&problem, Es { directions: 4, ..Es::default() }).reason, StopReason::Iterations);
}

#[derive(Clone, Tree)]
struct Pair<T> {
    a: T,
    b: T,
}

fn pair(value: f64) -> Pair<Variable> {
    Pair { a: Variable::constant([], value), b: Variable::constant([], value) }
}

#[test]
fn a_leaf_of_lambda_on_a_path_the_method_does_not_see_is_named_before_the_run() {
    let problem = Problem::builder(pair(0.5), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.a).square())
        .outer(|_, _, t| (t.0 - 1.0).square())
        .start(|_, l| Leaf(l.b))
        .build()
        .unwrap();
    let note = "λ.b acts only through θ⁰, which ift-cg does not differentiate, so it will not change; use rmd";
    assert_eq!(run(&problem, IftCg::default()).notes, [note]);
    assert_eq!(run(&problem, Rmd::default()).notes, Vec::<String>::new());
}

#[test]
fn a_run_that_left_lambda_where_it_was_says_so() {
    // The outer loss is flat where θ is trained to: a ReLU that is off.
    let problem =
        scalars(-1.0, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.maximum(0.0)).build().unwrap();
    let outcome = run(&problem, With(Rmd::default(), InnerLoop::new(0.3, 100)));
    assert_eq!(outcome.state.lambda[0].item().unwrap(), -1.0);
    assert!(outcome.notes.iter().any(|note| note.contains("every hypergradient was exactly 0")), "{:?}", outcome.notes);
}

#[test]
fn only_methods_that_apply_are_listed_for_a_problem() {
    let names = |problem: &AnyProblem| applicable_to(problem).unwrap().iter().map(|info| info.name).collect::<Vec<_>>();
    let listed = names(&learned_start());
    assert!(
        ["hpo-sgld", "imaml", "rmd", "rmd-fo", "fmd", "es", "reptile"].iter().all(|name| listed.contains(name)),
        "{listed:?}"
    );
    assert!(
        !["langevin-adjoint", "ift-cg", "soba", "f2sa", "pes"].iter().any(|name| listed.contains(name)),
        "{listed:?}"
    );
    for problem in [learned_start(), quadratic().build().unwrap().erase()] {
        for info in bilevel::methods::all() {
            let method = bilevel::methods::AnyMethod::named(info.name).unwrap();
            let prepared = method.prepared_on(&problem, &Cpu::with_threads(1)).is_ok();
            assert_eq!(prepared, names(&problem).contains(&info.name), "{}", info.name);
        }
    }
}

// ---- Problems that cannot be meant so ----

fn quadratic() -> One {
    scalars(1.0, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 0.5).square())
}

fn not_built(builder: One) -> String {
    builder.build().err().unwrap().to_string()
}

#[test]
fn an_inner_loss_without_theta_is_refused() {
    let said = not_built(quadratic().inner(|_, l, _| l.0.square()));
    assert_eq!(said, "the inner loss does not depend on θ, so there is nothing to train; use θ in .inner(…)");
}

#[test]
fn two_data_sets_or_measures_of_one_name_are_refused() {
    let data = || Array::from_f64([2], vec![1.0, 2.0]).unwrap();
    let said = not_built(quadratic().data("x", data()).data("y", data()).data("x", data()));
    assert_eq!(said, "two data sets are named 'x'; give each its own name");
    let said = not_built(quadratic().measure("m", |_, _, t| t.0).measure("m", |_, l, _| l.0));
    assert_eq!(said, "two metrics are named 'm'; give each its own name");
}

#[test]
fn a_minibatch_larger_than_the_data_or_empty_is_refused() {
    let drawing = |size: usize| {
        let inner = move |s: &Scope, l: &Leaf<Tensor>, t: &Leaf<Tensor>| {
            let rows = s.data("x").take(s.minibatch(2, size));
            (t.0 - l.0).square() + (rows * t.0).sum_all()
        };
        quadratic().data("x", Array::from_f64([2], vec![1.0, 2.0]).unwrap()).inner(inner)
    };
    assert!(drawing(2).build().is_ok());
    let said = not_built(drawing(3));
    assert!(said.starts_with("a minibatch of 3 rows is larger than the 2 rows it is drawn from"), "{said}");
    assert!(not_built(drawing(0)).contains("a minibatch has 0 rows"));
}

#[test]
fn a_leaf_of_theta_that_no_loss_uses_or_training_leaves_alone_is_named_before_the_run() {
    let problem = |outer: bool| {
        Problem::builder(Leaf(Variable::constant([], 1.0)), pair(0.0))
            .inner(|_, l, t| (t.a - l.0).square())
            .outer(move |_, _, t| if outer { (t.a + t.b).square() } else { t.a.square() })
            .build()
            .unwrap()
    };
    assert_eq!(run(&problem(false), Rmd::default()).notes, ["no loss depends on θ.b; use it or leave it out"]);
    let note = "the inner loss does not depend on θ.b, so it will not change";
    assert_eq!(run(&problem(true), Rmd::default()).notes, [note]);
}

#[test]
fn an_outer_loss_without_theta_is_said() {
    let problem = quadratic().outer(|_, l, _| l.0.square()).build().unwrap();
    let notes = run(&problem, Rmd::default()).notes;
    assert!(notes.iter().any(|note| note.starts_with("the outer loss does not depend on θ")), "{notes:?}");
}

// ---- Training that gets worse ----

#[test]
fn an_inner_loss_that_grows_within_the_inner_loop_is_warned_of_whatever_the_method() {
    // θ − λ grows by 1.2 a step, in another direction than f looks: 1.2⁴⁰ = 1470, squared.
    let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), pair(9.0))
        .inner(|_, l, t| (t.a - l.0).square() * 4.4 + (t.b - l.0).square())
        .outer(|_, l, t| t.b.square() + l.0.square())
        .build()
        .unwrap();
    let (step, steps) = (0.25, 40);
    let methods: [Box<dyn Method>; 6] = [
        Box::new(With(Rmd::default(), InnerLoop::new(step, steps))),
        Box::new(With(RmdFo::default(), InnerLoop::new(step, steps))),
        Box::new(With(Fmd::default(), InnerLoop::new(step, steps))),
        Box::new(With(HpoSgld::default(), InnerLoop::new(step, steps).at_temperature(1e-6))),
        Box::new(With(LangevinAdjoint::default(), InnerLoop::new(step, steps).at_temperature(1e-6))),
        Box::new(With(IftCg::default(), InnerLoop::new(step, steps))),
    ];
    for method in methods {
        let name = method.name();
        let mut estimator = method.prepared_on(&problem, &Cpu::with_threads(1)).unwrap();
        let found = estimator
            .estimate(
                &mut State::initial(&problem, &Cpu::with_threads(1), Key::from([0, 0])).unwrap(),
                Key::from([0, 0]),
            )
            .unwrap();
        let warnings = found.diagnostics.warnings();
        let grew = warnings.iter().find_map(|w| match w {
            Warning::InnerLossGrew { from, to } => Some((*from, *to)),
            _ => None,
        });
        assert!(grew.is_some_and(|(from, to)| from < 400.0 && to > 1e6), "{name}: {warnings:?}");
        let outcome = Driver::new(&problem, method).cold(true).rate(1e-9).iterations(2).run().unwrap();
        let said = "the inner loss grew from 3.456e2 to ";
        assert!(outcome.notes.iter().any(|note| note.contains(said)), "{name}: {:?}", outcome.notes);
    }
}

#[test]
fn an_inner_loss_that_falls_or_is_lifted_by_noise_alone_is_no_cause_for_a_warning() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([100], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all() * 0.5)
        .outer(|_, l, t| t.0.square().sum_all() + l.0.square())
        .build()
        .unwrap();
    // From the minimum to the heat of 100 numbers, and from far away to the minimum.
    let noisy = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 200).at_temperature(2.0));
    let covariance =
        With(Covariance::default(), InnerLoop { burn_in: 100, ..InnerLoop::new(0.1, 1100).at_temperature(2.0) });
    let notes = [run(&problem, noisy).notes, run(&problem, covariance).notes].concat();
    assert!(notes.iter().all(|note| !note.contains("grew")), "{notes:?}");
    let outcome = run(
        &scalars(1.0, 300.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| t.0.square()).build().unwrap(),
        Rmd::default(),
    );
    assert_eq!(outcome.notes, Vec::<String>::new());
}

// ---- The right cause ----

fn diagnosis(problem: &AnyProblem, method: impl Method + 'static, rate: f64) -> Diagnosis {
    let outcome = Driver::new(&Problem::from(problem.clone()), method)
        .executor(Cpu::with_threads(1))
        .rate(rate)
        .iterations(3000)
        .run()
        .unwrap();
    match outcome.reason {
        StopReason::Diverged(diagnosis) => diagnosis,
        other => panic!("{other:?} at λ = {:?}", outcome.state.lambda),
    }
}

/// Methods that take derivatives of the outer loss in different ways.
fn some_methods() -> Vec<Box<dyn Method>> {
    vec![
        Box::new(With(LangevinAdjoint::default(), InnerLoop::new(0.1, 100))),
        Box::new(With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(0.1, 100).at_temperature(1e-6) })),
        Box::new(With(Rmd::default(), InnerLoop::new(0.1, 100))),
        Box::new(With(Fmd::default(), InnerLoop::new(0.1, 100))),
        Box::new(With(IftCg::default(), InnerLoop::new(0.1, 100))),
        Box::new(Chains::new(With(Rmd::default(), InnerLoop::new(0.1, 100)), 2)),
    ]
}

#[test]
fn an_adjoint_that_grows_because_the_step_is_too_large_is_blamed_on_the_step() {
    // θ starts at its minimum and stays there, but z does not: step × curvature is 5.7.
    let problem =
        scalars(1.0, 1.0).inner(|_, l, t| (t.0 - l.0).square() * 2.85).outer(|_, l, t| t.0 + l.0.square() * 0.0);
    let problem = problem.build().unwrap();
    let safe = With(LangevinAdjoint::default(), InnerLoop::new(1.0, 1000));
    let adjoint = With(LangevinAdjoint { trust: false, ..safe.0 }, safe.1);
    let found = diagnosis(&problem, adjoint, 1e-3);
    assert_eq!(found.cause, Cause::InnerStepTooLarge, "{found}");
    assert!(found.to_string().contains("inner step × curvature is 5.70"), "{found}");
    // A trust region bounds z, but not the θ that such steps take further and further from a λ that has moved.
    assert_eq!(diagnosis(&problem, safe, 1e-3).cause, Cause::InnerStepTooLarge);
    let found = diagnosis(&problem, With(Rmd::default(), InnerLoop::new(1.0, 1000)), 1e-3);
    assert_eq!(found.cause, Cause::InnerStepTooLarge, "{found}");
}

#[test]
fn an_outer_loss_that_is_nan_at_once_is_blamed_on_itself() {
    let problem =
        scalars(1.0, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 5.0).log()).build().unwrap();
    for method in some_methods() {
        let name = method.name();
        let found = diagnosis(&problem, method, 0.1);
        assert_eq!((found.cause, found.iteration), (Cause::OuterLossUndefined, 1), "{name}: {found}");
        assert!(found.to_string().contains("the outer loss is NaN at the end of training"), "{name}: {found}");
    }
    let found = diagnosis(&problem, Es { directions: 2, ..Es::default() }, 0.1);
    assert_eq!((found.cause, found.iteration), (Cause::OuterLossUndefined, 1), "{found}");
}

#[test]
fn a_root_at_0_is_blamed_on_the_loss_it_is_in() {
    // ‖λ‖ at λ = 0 has the value 0 and no derivative.
    let outer = scalars(0.0, 0.0)
        .inner(|_, l, t| (t.0 - l.0 - 1.0).square())
        .outer(|_, l, t| t.0.square() + l.0.square().sqrt());
    let inner =
        scalars(1.0, 0.0).inner(|_, l, t| (t.0 - l.0).square() + t.0.square().sqrt()).outer(|_, _, t| t.0.square());
    let (outer, inner) = (outer.build().unwrap(), inner.build().unwrap());
    for (number, method) in some_methods().into_iter().enumerate() {
        let name = method.name();
        let found = diagnosis(&outer, method, 10.0);
        assert_eq!((found.cause, found.iteration), (Cause::OuterLossUndefined, 1), "{name}: {found}");
        assert!(found.to_string().contains("but its derivative with respect to λ is not finite"), "{name}: {found}");
        let found = diagnosis(&inner, some_methods().swap_remove(number), 10.0);
        assert_eq!((found.cause, found.iteration), (Cause::InnerLossUndefined, 1), "{name}: {found}");
        let said =
            "the inner loss is 1.000e0, but its derivative with respect to θ is not finite at the start of training";
        assert!(found.to_string().contains(said), "{name}: {found}");
    }
}

#[test]
fn an_outer_loss_of_the_wrong_sign_is_blamed_on_its_sign_at_any_rate() {
    let problem =
        scalars(0.5, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| -(t.0 - 1.0).square()).build().unwrap();
    for rate in [0.05, 0.5, 5.0] {
        for method in some_methods() {
            let name = method.name();
            let found = diagnosis(&problem, method, rate);
            assert_eq!(found.cause, Cause::OuterLossUnbounded, "{name} at {rate}: {found}");
            assert!(found.to_string().contains("check its sign"), "{found}");
        }
    }
}

#[test]
fn an_inner_loss_of_the_wrong_sign_is_blamed_on_its_sign_and_not_on_the_step() {
    let problem =
        scalars(0.5, 0.0).inner(|_, l, t| -(t.0 - l.0).square()).outer(|_, l, t| (t.0 - 1.0).square() + l.0.square());
    let problem = problem.build().unwrap();
    for step in [0.5, 5.0] {
        let found = diagnosis(&problem, With(Rmd::default(), InnerLoop::new(step, 2000)), 0.01);
        assert_eq!(found.cause, Cause::InnerLossUnbounded, "{step}: {found}");
    }
}

#[test]
fn a_step_that_is_too_large_for_the_synthetic_problem_is_blamed_on_the_step() {
    // The loss is curved by 0.2 where θ starts and by 2 where it ends, and falls without end beyond.
    let problem = scalars(0.1, 0.1)
        .inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
        .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
        .build()
        .unwrap();
    for method in [
        Box::new(With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(3.0, 100).at_temperature(1e-6) }))
            as Box<dyn Method>,
        Box::new(With(Rmd::default(), InnerLoop::new(3.0, 100))),
    ] {
        let found = diagnosis(&problem, method, 0.01);
        assert_eq!((found.cause, found.iteration), (Cause::InnerStepTooLarge, 1), "{found}");
    }
}

#[test]
fn an_outer_step_that_is_too_large_is_still_blamed_on_the_rate() {
    let problem =
        scalars(0.5, 0.0).inner(|_, l, t| (t.0 - l.0).square()).outer(|_, _, t| (t.0 - 1.0).square()).build().unwrap();
    for method in some_methods() {
        let name = method.name();
        let found = diagnosis(&problem, method, 50.0);
        assert_eq!(found.cause, Cause::OuterStepTooLarge, "{name}: {found}");
    }
}

// ---- Defaults that can be compared ----

#[test]
fn methods_that_solve_the_same_system_have_the_same_defaults() {
    let (ift, amigo) = (IftCg::default(), AmigoCg::default());
    assert_eq!((ift.regularisation, ift.iterations), (amigo.regularisation, amigo.iterations));
    let problem = quadratic().build().unwrap();
    let first = |method: &dyn Method| {
        let mut state = State::initial(&problem, &Cpu::with_threads(1), Key::from([0, 0])).unwrap();
        method
            .prepared_on(&problem, &Cpu::with_threads(1))
            .unwrap()
            .estimate(&mut state, Key::from([0, 0]))
            .unwrap()
            .value
    };
    assert_eq!(
        first(&ift).arrays().unwrap(),
        first(&amigo).arrays().unwrap(),
        "from a cold start they are the same method"
    );
}
