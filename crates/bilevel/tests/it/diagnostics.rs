//! What comes with every hypergradient: known answers, the warnings and when they must not be given, inner schedules.

use crate::with::{Usual, With, library};
use bilevel::diagnostics::Warning;
use bilevel::methods::{AnyMethod, Chains, Descent, Es, LoopUse};
use bilevel::optimizers::Shape;
use bilevel::prelude::*;
use bilevel::programs::Leaves;
use bilevel::{AnyProblem, Estimator, Hypergradient, Session, State, methods};

fn cpu() -> Cpu {
    Cpu::with_threads(1)
}

fn once(problem: &AnyProblem, method: &dyn Method) -> Hypergradient {
    let mut estimator = method.prepared_on(problem, &cpu()).unwrap();
    estimator.estimate(&mut State::initial(problem, &cpu(), Key::from([1, 2])).unwrap(), Key::from([3, 4])).unwrap()
}

/// Inner curvatures 1 and 4, f_θ = (1, 2) everywhere: the Rayleigh quotient along f_θ is (1·1 + 4·4)/5.
fn plane(direct: bool) -> Problem {
    let curvature = |s: &bilevel::Scope| s.data("curvature");
    Problem::builder(Leaf(Variable::constant([2], 0.5)), Leaf(Variable::constant([2], 0.1)))
        .data("curvature", Array::from_f64([2], vec![1.0, 4.0]).unwrap())
        .data("slope", Array::from_f64([2], vec![1.0, 2.0]).unwrap())
        .inner(move |s, l, t| (curvature(s) * (t.0 - l.0).square()).sum_all() * 0.5)
        .outer(move |s, l, t| {
            let f = (s.data("slope") * t.0).sum_all();
            if direct { f + (l.0 * 3.0).sum_all() } else { f }
        })
        .build()
        .unwrap()
        .erase()
}

#[test]
fn norms_and_curvature_are_those_of_the_formula() {
    let method = With(LangevinAdjoint::default(), InnerLoop::new(0.05, 20).at_temperature(1e-6));
    let seen = once(&plane(true), &method).diagnostics;
    let close = |found: Option<f64>, want: f64| assert!((found.unwrap() - want).abs() < 1e-12, "{found:?} and {want}");
    close(seen.outer_gradient_norm, 5f64.sqrt());
    close(seen.direct_norm, 18f64.sqrt());
    close(seen.curvature, 17.0 / 5.0);
    close(seen.step_curvature, 0.05 * 17.0 / 5.0);
    close(seen.horizon, 0.05 * 20.0 * 17.0 / 5.0);
    assert_eq!(once(&plane(false), &method).diagnostics.direct_norm, None, "f does not depend on λ directly");
}

#[test]
fn the_scaled_indirect_term_is_warned_of_only_where_it_moves_the_optimum() {
    let sgld =
        |step| With(HpoSgld::default(), InnerLoop { burn_in: 10, ..InnerLoop::new(step, 20).at_temperature(1e-6) });
    let scaled = |problem: &AnyProblem, method: &dyn Method| {
        let warnings = once(problem, method).diagnostics.warnings();
        warnings.iter().any(|w| matches!(w, Warning::IndirectTermScaled { .. }))
    };
    // The kept steps have the mean number 15.5, so the indirect term is 52.7·γ times what it should be.
    for (step, far) in [(0.001, true), (1.0 / 52.7, false), (0.03, true)] {
        assert_eq!(scaled(&plane(true), &sgld(step)), far, "step {step}");
        assert!(!scaled(&plane(false), &sgld(step)), "without a direct term only the outer step is rescaled");
    }
    let adjoint = With(LangevinAdjoint::default(), InnerLoop::new(0.001, 20).at_temperature(1e-6));
    assert!(!scaled(&plane(true), &adjoint), "the adjoint does not drop the contraction");
}

#[test]
fn a_driver_says_at_the_end_what_is_wrong_with_the_method_for_this_problem() {
    let method = With(HpoSgld::default(), InnerLoop { burn_in: 10, ..InnerLoop::new(0.001, 20).at_temperature(1e-6) });
    let outcome = Driver::new(&plane(true), method).iterations(3).run().unwrap();
    assert!(outcome.notes.iter().any(|note| note.contains("use langevin-adjoint")), "{:?}", outcome.notes);
    let fine = With(LangevinAdjoint::default(), InnerLoop::new(0.05, 100).at_temperature(1e-6));
    assert_eq!(Driver::new(&plane(true), fine).iterations(3).run().unwrap().notes, Vec::<String>::new());
}

#[test]
fn a_step_beyond_the_curvature_and_an_adjoint_that_grows_are_warned_of() {
    let problem = plane(true);
    for trust in [true, false] {
        let method = With(LangevinAdjoint { trust, ..LangevinAdjoint::default() }, InnerLoop::new(0.7, 30));
        let mut estimator = method.prepared_on(&problem, &cpu()).unwrap();
        let mut state = State::initial(&problem, &cpu(), Key::from([1, 2])).unwrap();
        estimator.estimate(&mut state, Key::from([3, 4])).unwrap();
        let warnings = estimator.estimate(&mut state, Key::from([3, 5])).unwrap().diagnostics.warnings();
        assert!(warnings.iter().any(|w| matches!(w, Warning::StepTooLarge { .. })), "{warnings:?}");
        let calm = |w: &Warning| matches!(w, Warning::NoHypergradient { calm: Some(calm), .. } if *calm == 0.35);
        assert!(warnings.iter().any(calm), "{warnings:?}");
        // In its trust region the adjoint does not grow so far.
        let grows = warnings.iter().any(|w| matches!(w, Warning::AdjointGrowing { growth } if *growth > 10.0));
        assert_eq!(grows, !trust, "{warnings:?}");
        assert!(warnings.iter().all(|w| !w.to_string().is_empty()));
    }
}

/// L_T = ½θ² and f = θ: the chain is an autoregression with correlation 1 − γ.
fn walk() -> Problem {
    Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap()
        .erase()
}

#[test]
fn the_effective_sample_size_is_that_of_the_autoregression() {
    for gamma in [0.05, 0.3] {
        let samples = 40_000;
        let expected = samples as f64 * gamma / (2.0 - gamma);
        let chain = |burn_in| {
            With(
                HpoSgld::default(),
                InnerLoop { burn_in, ..InnerLoop::new(gamma, burn_in + samples).at_temperature(0.5) },
            )
        };
        let adjoint = With(LangevinAdjoint::default(), InnerLoop::new(gamma, samples).at_temperature(0.5));
        let long = InnerLoop::new(gamma, 5 + samples).at_temperature(0.5);
        let covariance = With(bilevel::methods::Covariance::default(), InnerLoop { burn_in: 5, ..long });
        let methods: [&dyn Method; 4] = [&chain(0), &chain(1000), &adjoint, &covariance];
        for method in methods {
            let found = once(&walk(), method).diagnostics.effective_samples.unwrap();
            assert!((found / expected - 1.0).abs() < 0.15, "{method:?}: {found} and not {expected}");
        }
        let four = once(&walk(), &Chains::new(adjoint, 4)).diagnostics.effective_samples.unwrap();
        assert!((four / (4.0 * expected) - 1.0).abs() < 0.15, "chains add up: {four}");
    }
    let frozen = With(LangevinAdjoint::default(), InnerLoop::default());
    assert_eq!(once(&walk(), &frozen).diagnostics.effective_samples, None, "f never moves");
}

#[derive(Clone, Tree)]
struct Penalty<T> {
    weight: T,
    bias: T,
}

#[test]
fn hyperparameters_that_cannot_matter_are_named_with_every_hypergradient() {
    let one = || Variable::constant([], 1.0);
    let problem = Problem::builder(Penalty { weight: one(), bias: one() }, Leaf(one()))
        .inner(|_, l, t| l.weight * t.0.square() + l.bias)
        .outer(|_, _, t| (t.0 - 1.0).square())
        .build()
        .unwrap();
    assert_eq!(&*once(&problem, &Rmd::default()).idle, ["bias"]);
}

/// θ⁰ = λ and a loss that is not quadratic, so that every method applies or says why not.
fn every_kind() -> [Problem; 2] {
    let loss = |l: Tensor, t: Tensor| (t.sin() + (t - l).square()).sum_all();
    let base = move || {
        Problem::builder(Leaf(Variable::constant([3], 0.4)), Leaf(Variable::normal([3], 0.3)))
            .inner(move |s, l, t| loss(l.0, t.0) + (s.normal([3]) * t.0).sum_all() * 0.1)
            .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + l.0.square().sum_all() * 0.1)
    };
    [base().build().unwrap().erase(), base().start(|_, l| *l).build().unwrap().erase()]
}

/// The method with this step in its loop.
fn with_step(name: &str, step: f64) -> With<AnyMethod> {
    let inner = InnerLoop { burn_in: 6, ..InnerLoop::new(step, 12).at_temperature(0.01) };
    let used = AnyMethod::named(name).unwrap().loop_use();
    let inner = if used.burn_in { inner } else { InnerLoop { steps: 6, ..inner } };
    let searches = ["es", "pes", "fg2u"].contains(&name);
    library(name, inner, searches.then_some(6))
}

#[test]
fn a_schedule_of_the_inner_step_gives_the_bits_of_a_method_with_that_step() {
    let mut seen = 0;
    for problem in every_kind() {
        for info in methods::all() {
            let Ok(mut halved) = with_step(info.name, 0.1).prepared_on(&problem, &cpu()) else { continue };
            let mut small = with_step(info.name, 0.05).prepared_on(&problem, &cpu()).unwrap();
            let [mut a, mut b] = [0; 2].map(|_| State::initial(&problem, &cpu(), Key::from([1, 2])).unwrap());
            for key in 0..2 {
                let (a, b) = (
                    halved.estimate_with(&mut a, Key::from([3, key]), 0.05).unwrap(),
                    small.estimate(&mut b, Key::from([3, key])).unwrap(),
                );
                assert_eq!(a.value.arrays().unwrap(), b.value.arrays().unwrap(), "{}", info.name);
                assert_eq!((a.inner_loss, a.outer_loss, a.oracles), (b.inner_loss, b.outer_loss, b.oracles));
                assert_eq!(a.diagnostics, b.diagnostics, "{}", info.name);
                assert!(a.diagnostics.curvature.is_some(), "{}", info.name);
                // One that makes its steps smaller as it goes has no distance that it goes.
                let goes = with_step(info.name, 0.1).loop_use().descent != Descent::Adaptive;
                assert_eq!(a.diagnostics.horizon.is_some_and(f64::is_finite), goes, "{}", info.name);
            }
            assert_eq!(a.snapshot().unwrap(), b.snapshot().unwrap());
            seen += 1;
        }
    }
    assert!(seen >= 20, "only {seen} methods apply to the two problems");
}

#[test]
fn a_driver_follows_the_inner_schedule_and_resumes_on_it() {
    let run = |iterations| {
        let method = With(LangevinAdjoint::default(), InnerLoop::new(0.1, 5).at_temperature(1e-6));
        let schedule = Shape::Step { every: 2, factor: 0.5 }.into();
        let driver = Driver::new(&walk(), method.0).inner(InnerLoop { schedule, ..method.1 });
        driver.diagnose_every(1).iterations(iterations).run().unwrap().last.unwrap().diagnostics.step_curvature.unwrap()
    };
    assert_eq!([1, 2, 3, 5].map(run), [0.1, 0.1, 0.05, 0.025]);
    let schedule = Shape::Step { every: 2, factor: f64::NAN }.into();
    let bad = Driver::new(&walk(), Rmd::default()).inner(InnerLoop { schedule, ..InnerLoop::default() }).run();
    assert_eq!(bad.err().unwrap().to_string(), "factor is NaN but must be above 0 and at most 1");
}

#[test]
fn evolutionary_search_knows_its_standard_error() {
    // f(θ) after one step is linear in λ, so a sample of the raw estimator is (a·z + F)·z for known numbers.
    let method = With(Es { directions: 400, ..Es::default() }, InnerLoop::new(0.5, 1));
    let mut values = vec![];
    let mut errors = vec![];
    let problem = walk();
    let mut estimator = method.prepared_on(&problem, &cpu()).unwrap();
    for key in 0..200 {
        let h = estimator
            .estimate(&mut State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap(), Key::from([7, key]))
            .unwrap();
        values.push(h.value[0].item().unwrap());
        errors.push(h.standard_error.unwrap()[0].item().unwrap());
    }
    let mean = values.iter().sum::<f64>() / 200.0;
    let spread = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 199.0).sqrt();
    let claimed = errors.iter().sum::<f64>() / 200.0;
    assert!((claimed / spread - 1.0).abs() < 0.2, "claims {claimed}, spreads {spread}");
}

#[test]
fn a_method_of_a_users_own_that_says_nothing_of_the_inner_loop_has_no_limit_of_its_step() {
    #[derive(Debug)]
    struct Constant;
    struct Prepared(Session);
    impl Method for Constant {
        fn name(&self) -> &'static str {
            "constant"
        }
        fn compile(&self, session: &Session, _: &InnerLoop) -> bilevel::Result<Box<dyn Estimator>> {
            Ok(Box::new(Prepared(session.clone())))
        }
        fn loop_use(&self) -> LoopUse {
            LoopUse { descent: Descent::Own, ..LoopUse::PLAIN }
        }
    }
    impl Estimator for Prepared {
        fn estimate(&mut self, _: &mut State, _: Key, _: f64) -> bilevel::Result<Hypergradient> {
            let value = Leaves::upload(self.0.executor(), &[Array::scalar(1.0, DType::F64)])?;
            Ok(Hypergradient::new(value, Default::default()).with_inner_loss(0.0).with_outer_loss(0.0))
        }
    }
    let outcome = Driver::new(&walk(), Constant).inner(InnerLoop::new(1e6, 3)).iterations(2).run().unwrap();
    assert_eq!((outcome.iterations, outcome.last.unwrap().diagnostics.step_curvature), (2, None));
}

#[test]
fn a_divergence_names_the_inner_step_at_which_the_loss_was_lost() {
    // θ is multiplied by −9 a step: 5·θ² is 5·81¹⁶² at the start of step 163, the first above the largest number.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 1.0)))
        .inner(|_, l, t| (t.0 - l.0).square() * 5.0)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    let mut seen = 0;
    for info in methods::all() {
        let used = AnyMethod::named(info.name).unwrap().loop_use();
        let inner = InnerLoop { burn_in: 200, ..InnerLoop::new(1.0, 400) };
        let temperature = if info.name == "covariance" { 0.1 } else { 0.0 };
        let searches = ["es", "pes", "fg2u"].contains(&info.name) && !used.burn_in;
        let method = library(info.name, inner.at_temperature(temperature), searches.then_some(200));
        // One that makes its steps smaller as it goes cannot be made to diverge.
        if method.applies(&problem).is_err() || method.loop_use().descent == Descent::Adaptive {
            continue;
        }
        // The penalty's curvature is 2·10², so that θ is multiplied by −199 a step: 5·θ² is 5·199¹³⁴ at the start of step 68.
        let (step, limit) = match method.loop_use().descent {
            Descent::Penalised { .. } => (68, "step × curvature² must stay below 1"),
            _ => (163, "step × curvature must stay below 2"),
        };
        let outcome = Driver::new(&problem, method).executor(cpu()).iterations(1).run().unwrap();
        assert!(matches!(outcome.reason, bilevel::StopReason::Diverged(_)), "{}: {}", info.name, outcome.reason);
        // A search is lost somewhere among its samples, not at a step of its own.
        if !["es", "pes"].contains(&info.name) {
            let said = outcome.reason.to_string();
            assert!(said.contains(&format!("not finite from inner step {step} on")), "{}: {said}", info.name);
            assert!(said.contains("smaller inner step") && said.contains(limit), "{}: {said}", info.name);
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen}");
}

/// A saddle: curvature 1 along the first axis and −1 along the second.
fn saddle() -> Problem {
    Problem::builder(Leaf(Variable::constant([2], 0.5)), Leaf(Variable::constant([2], 0.0)))
        .data("curvature", Array::from_f64([2], vec![1.0, -1.0]).unwrap())
        .data("slope", Array::from_f64([2], vec![1.0, 1.0]).unwrap())
        .inner(|s, l, t| (s.data("curvature") * t.0.square()).sum_all() * 0.5 - (l.0 * t.0).sum_all())
        .outer(|s, _, t| (s.data("slope") * t.0).sum_all())
        .build()
        .unwrap()
        .erase()
}

#[test]
fn conjugate_gradients_that_break_down_say_so_instead_of_converging_to_nothing() {
    // f_θ = (1, 1) and pᵀHp = 0 at once.
    let methods: [&dyn Method; 2] = [
        &With(bilevel::methods::IftCg { regularisation: 0.0, ..Default::default() }, InnerLoop::new(0.01, 1)),
        &bilevel::methods::AmigoCg::default(),
    ];
    for method in methods {
        let mut estimator = method.prepared_on(&saddle(), &cpu()).unwrap();
        let error = estimator
            .estimate(&mut State::initial(&saddle(), &cpu(), Key::from([0, 0])).unwrap(), Key::from([0, 0]))
            .unwrap_err();
        assert!(error.to_string().contains("not positive"), "{error}");
    }
    let solve = bilevel::methods::IftCg { regularisation: -0.0, iterations: 1, ..Default::default() };
    let along = With(solve, InnerLoop::new(0.01, 1));
    let tilted = Problem::builder(Leaf(Variable::constant([2], 0.5)), Leaf(Variable::constant([2], 0.0)))
        .data("curvature", Array::from_f64([2], vec![1.0, -3.0]).unwrap())
        .inner(|s, l, t| (s.data("curvature") * t.0.square()).sum_all() * 0.5 - (l.0 * t.0).sum_all())
        .outer(|_, _, t| t.0.sum_all())
        .build()
        .unwrap();
    // The very first direction curves downwards: nothing is solved, and nothing pretended.
    let mut estimator = along.prepared_on(&tilted, &cpu()).unwrap();
    let mut state = State::initial(&tilted, &cpu(), Key::from([0, 0])).unwrap();
    let error = estimator.estimate(&mut state, Key::from([0, 0])).unwrap_err().to_string();
    assert!(error.contains("met the curvature -1.0e0 after 0 sweeps"), "{error}");
}

#[test]
fn a_proximal_term_counts_as_curvature() {
    let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 1.0)))
        .inner(|_, _, t| t.0.square() * 0.5)
        .outer(|_, _, t| t.0)
        .start(|_, l| *l)
        .build()
        .unwrap();
    let method = With(bilevel::methods::Imaml { rho: 9.0, ..Default::default() }, InnerLoop::new(0.01, 10));
    assert!((once(&problem, &method).diagnostics.curvature.unwrap() - 10.0).abs() < 1e-12);
}

#[test]
fn a_method_that_fails_leaves_lambda_as_it_was() {
    let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 2.0)))
        .inner(|_, _, t| t.0.square().square())
        .outer(|_, l, _| l.0.square())
        .build()
        .unwrap();
    let methods: [&dyn Method; 2] = [
        &With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(1.0, 100).at_temperature(1e-6) }),
        &With(Es { directions: 2, ..Es::default() }, InnerLoop::new(1.0, 50)),
    ];
    for method in methods {
        let mut state = State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap();
        let before = state.lambda.arrays().unwrap();
        let found = method.prepared_on(&problem, &cpu()).unwrap().estimate(&mut state, Key::from([0, 0]));
        assert!(found.is_err(), "{method:?}");
        assert_eq!(state.lambda.arrays().unwrap(), before, "{method:?}");
    }
}

#[test]
fn a_state_without_theta_is_refused() {
    let problem = walk();
    let mut estimator = Rmd::default().prepared_on(&problem, &cpu()).unwrap();
    let mut state = State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap();
    estimator.estimate(&mut state, Key::from([0, 0])).unwrap();
    state.theta = Leaves::default();
    let error = estimator.estimate(&mut state, Key::from([0, 0])).unwrap_err();
    assert!(error.to_string().contains("0 leaves were given for θ, which has 1"), "{error}");
}

#[test]
fn problems_that_cannot_be_are_refused_by_name() {
    let build = |lambda: Variable, theta: Variable| {
        Problem::builder(Leaf(lambda), Leaf(theta))
            .inner(|s, l, t| (t.0 - l.0).square() * s.data("trian"))
            .outer(|_, _, t| t.0)
    };
    let one = || Variable::constant([], 1.0);
    let train = Array::scalar(1.0, DType::F64);
    let said = |problem: bilevel::Result<Problem<_, _>>| problem.err().unwrap().to_string();
    assert_eq!(
        said(build(one(), one()).data("train", train.clone()).build()),
        "there is no data set 'trian'; did you mean train?"
    );
    assert!(said(build(one(), one()).build()).contains("add it with .data(\"trian\", array)"));
    assert!(said(build(one(), one().at_most(3.0)).build()).contains("only λ can be"));
    assert!(said(build(one().at_least(f64::NAN), one()).build()).contains("bounds NaN"));
    let empty =
        Problem::builder(Vec::<Leaf<Variable>>::new(), Leaf(one())).inner(|_, _, t| t.0).outer(|_, _, t| t.0).build();
    assert_eq!(empty.err().unwrap().to_string(), "λ has no variables to learn");
    let wild = Problem::builder(Leaf(one()), Leaf(Variable::normal([], f64::NAN)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| t.0)
        .build();
    assert!(said(wild).contains("θ starts at NaN"));
}

#[test]
fn two_draws_for_an_episode_differ_and_are_the_same_in_both_losses() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|s, l, t| (t.0 - l.0).square() + s.episode().uniform([], 0.0, 1.0) - s.episode().uniform([], 0.0, 1.0))
        .outer(|s, _, t| t.0 + s.episode().uniform([], 0.0, 1.0) - s.episode().uniform([], 0.0, 1.0))
        .measure("the same", |s, _, _| s.episode().uniform([], 0.0, 1.0) - s.episode().uniform([], 0.0, 1.0))
        .measure("again", |s, _, _| s.episode().uniform([], 0.0, 1.0) - s.episode().uniform([], 0.0, 1.0))
        .build()
        .unwrap();
    let mut evaluator = bilevel::training::Evaluator::new(&problem, &cpu()).unwrap();
    let numbers =
        evaluator.at(&State::initial(&problem, &cpu(), Key::from([0, 0])).unwrap(), Key::from([5, 6])).unwrap();
    assert!(numbers[0] != 0.0);
    assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
}

#[test]
fn the_tolerance_is_met_where_a_bound_holds_lambda() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.5).at_most(1.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square())
        .outer(|_, _, t| (t.0 - 3.0).square())
        .build()
        .unwrap();
    let driver = Driver::new(&problem, With(LangevinAdjoint::default(), InnerLoop::new(0.1, 100)));
    let outcome = driver.rate(0.1).iterations(1000).tolerance(1e-6).run().unwrap();
    assert_eq!(outcome.reason, bilevel::StopReason::Tolerance);
    assert!(outcome.iterations < 50, "{}", outcome.iterations);
    assert_eq!(outcome.state.lambda[0].item().unwrap(), 1.0);
}

#[test]
fn a_curvature_that_is_not_finite_is_an_error() {
    let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], -1.0)))
        .inner(|_, l, t| t.0.sqrt() * l.0)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap();
    let state = State::initial(&problem, &cpu(), Key::from_seed(0)).unwrap().snapshot().unwrap();
    let error = problem.curvature(&state, &cpu(), Key::from_seed(0)).unwrap_err();
    assert!(error.to_string().contains("second derivative"), "{error}");
}

#[test]
fn the_covariance_keeps_its_digits_where_f_and_the_score_are_large() {
    // θ ~ N(λ, τ) and f = θ: the derivative is 1, whatever is added to f or to ∂L_T/∂λ.
    let estimate = |dtype: DType, offset: f64| {
        let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 2.0)))
            .dtype(dtype)
            .inner(move |_, l, t| (t.0 - l.0).square() / 2.0 + l.0 * offset)
            .outer(move |_, _, t| t.0 + offset)
            .build()
            .unwrap();
        let inner = InnerLoop { burn_in: 100, ..InnerLoop::new(0.2, 5100).at_temperature(0.01) };
        let method = With(bilevel::methods::Covariance::default(), inner);
        once(&problem, &method).value[0].item().unwrap()
    };
    let (plain, large) = (estimate(DType::F64, 0.0), estimate(DType::F64, 1e6));
    assert!((plain - large).abs() < 1e-4, "{plain} and {large}");
    // In single precision the draws are others, but the same with and without the offset.
    let (plain, large) = (estimate(DType::F32, 0.0), estimate(DType::F32, 300.0));
    assert!((plain - large).abs() < 0.01, "{plain} and {large}");
}

#[test]
fn reverse_mode_that_cannot_fit_into_memory_is_refused_beforehand() {
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([100_000], 0.0)))
        .inner(|_, l, t| (t.0 - l.0).square().sum_all())
        .outer(|_, _, t| t.0.sum_all())
        .build()
        .unwrap();
    let method = With(Rmd::default(), InnerLoop::new(0.01, 2_000_000_000));
    if std::path::Path::new("/proc/meminfo").exists() {
        let said = method.prepared_on(&problem, &cpu()).err().unwrap().to_string();
        assert!(said.contains("set storage to checkpoints"), "{said}");
    }
    assert!(
        With(Rmd { storage: bilevel::methods::Storage::Checkpoints }, method.1).prepared_on(&problem, &cpu()).is_ok()
    );
}

/// L_T = ½c·(θ − λ)² and f = ½(θ − 1)².
fn shifted(curvature: f64, start: f64) -> Problem {
    Problem::builder(Leaf(Variable::constant([], start)), Leaf(Variable::constant([], 0.0)))
        .inner(move |_, l, t| (t.0 - l.0).square() * (0.5 * curvature))
        .outer(|_, _, t| (t.0 - 1.0).square() * 0.5)
        .build()
        .unwrap()
        .erase()
}

#[test]
fn steps_that_adapt_are_not_said_to_be_too_large_for_the_curvature() {
    let method = bilevel::methods::DTfbo { tolerance: 1e-6, ..Default::default() };
    let outcome = Driver::new(&shifted(1000.0, 3.0), method).executor(cpu()).run().unwrap();
    let lambda = outcome.state.lambda[0].item().unwrap();
    assert!((lambda - 1.0).abs() < 1e-3, "a step is taken whole unless told otherwise: {lambda}");
    assert_eq!(outcome.notes, Vec::<String>::new());
    let seen = outcome.last.unwrap().diagnostics;
    assert_eq!((seen.step_curvature, seen.curvature.map(f64::round)), (None, Some(1000.0)));
}

#[test]
fn a_method_that_returns_a_step_warns_of_any_other_rate_or_optimizer() {
    let method = bilevel::methods::DTfbo::default();
    let notes = |driver: Driver<_, _>| driver.executor(cpu()).iterations(1).run().unwrap().notes;
    let problem = shifted(1.0, 3.0);
    assert_eq!(notes(Driver::new(&problem, method)), Vec::<String>::new());
    let slow = notes(Driver::new(&problem, method).rate(0.005));
    assert_eq!(
        slow,
        ["d-tfbo returns the step of λ itself, for the optimizer sgd at rate 1, but this run uses sgd at rate 0.005"]
    );
    let adam = notes(Driver::new(&problem, method).optimizer(bilevel::optimizers::Adam::default()));
    assert!(adam[0].ends_with("but this run uses adam at rate 1"), "{adam:?}");
    assert_eq!(notes(Driver::new(&problem, Rmd::default()).rate(0.005)), Vec::<String>::new());
}

#[test]
fn a_penalty_whose_steps_are_too_large_is_not_blamed_on_the_outer_rate() {
    // The curvature is 2: γ·c² is 1.2, although γ·c is only 0.6.
    let method = With(bilevel::methods::GPbgd { penalty: 10.0 }, InnerLoop::new(0.3, 1));
    let outcome = Driver::new(&shifted(2.0, 3.0), method).executor(cpu()).rate(0.005).iterations(3000).run().unwrap();
    let bilevel::StopReason::Diverged(diagnosis) = &outcome.reason else { panic!("{}", outcome.reason) };
    assert_eq!(diagnosis.cause, bilevel::diagnostics::Cause::PenaltyStepTooLarge, "{diagnosis}");
    assert!(diagnosis.to_string().contains("inner step × curvature² is 1.20"), "{diagnosis}");
    // With the step that its documentation allows it converges at the same rate.
    let method = With(method.0, InnerLoop { step: 0.1, ..method.1 });
    let outcome = Driver::new(&shifted(2.0, 3.0), method).executor(cpu()).rate(0.005).iterations(3000).run().unwrap();
    assert!((outcome.state.lambda[0].item().unwrap() - 1.0).abs() < 1e-2, "{}", outcome.reason);
    assert_eq!(outcome.notes, Vec::<String>::new());
}

#[test]
fn a_direction_that_is_zero_at_first_is_not_called_a_flat_loss() {
    // θ is at the minimum of both losses but for the outer slope: μ is 0, and λ waits.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 5.0)))
        .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
        .outer(|_, _, t| (t.0 - 1.0).square() * 5.0)
        .build()
        .unwrap();
    let method = With(bilevel::methods::Bome::default(), InnerLoop::new(0.01, 10));
    let run =
        |iterations| Driver::new(&problem, method).executor(cpu()).rate(0.01).iterations(iterations).run().unwrap();
    let short = run(3);
    assert_eq!(short.state.lambda[0].item().unwrap(), 0.0);
    assert_eq!(
        short.notes,
        [
            "λ has not changed yet: bome has moved only θ so far, and its direction of λ was exactly 0; run more iterations"
        ]
    );
    let long = run(2000);
    assert!((long.state.lambda[0].item().unwrap() - 1.0).abs() < 0.05);
    assert_eq!(long.notes, Vec::<String>::new());
}
