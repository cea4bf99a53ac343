//! Checking a problem and methods on it: what is right is found right, and what is wrong is named.

use crate::with::{With, library};
use bilevel::diagnostics::Check;
use bilevel::methods::{AnyMethod, HpoSgld, IftCg, IftNeumann, Imaml, LangevinAdjoint, Rmd, RmdFo, applicable_to};
use bilevel::optimizers::InnerOptimizer;
use bilevel::{AnyProblem, Array, Cpu, DType, Error, InnerLoop, Key, Leaf, Method, Problem, Session, State, Variable};

fn quickly(problem: &AnyProblem) -> Check<'_> {
    problem.check().executor(Cpu::with_threads(1)).seed(5)
}

/// Which weight decay, parameter by parameter, makes training end near 0.3?
fn decay(size: usize, dtype: DType) -> Problem {
    Problem::builder(Leaf(Variable::normal([size], 0.3)), Leaf(Variable::normal([size], 0.3)))
        .dtype(dtype)
        .inner(|_, l, t| ((t.0 - 1.0).square() + l.0.exp() * t.0.square()).sum_all())
        .outer(|_, l, t| ((t.0 - 0.3).square() + l.0.square() * 0.01).sum_all())
        .build()
        .unwrap()
        .erase()
}

/// The same with minibatches and dropout of a kind.
fn noisy() -> Problem {
    Problem::builder(Leaf(Variable::normal([3], 0.3)), Leaf(Variable::normal([3], 0.3)))
        .inner(|s, l, t| ((t.0 - s.normal([3])).square() + l.0.exp() * t.0.square()).sum_all())
        .outer(|s, _, t| (t.0 - s.uniform([3], 0.0, 1.0)).square().sum_all())
        .build()
        .unwrap()
        .erase()
}

fn named(name: &str, step: f64, steps: usize) -> With<AnyMethod> {
    let inner = AnyMethod::named(name).unwrap().usual_loop();
    let (directions, inner) = (Some(steps), InnerLoop { step, steps, burn_in: 0, ..inner });
    let searches = ["es", "pes", "fg2u"].contains(&name);
    library(name, inner, directions.filter(|_| searches))
}

#[test]
fn methods_that_unroll_agree_with_differences_of_the_whole_training() {
    let momentum = InnerOptimizer::Momentum(Default::default());
    for problem in [decay(3, DType::F64), noisy()] {
        let report = quickly(&problem)
            .method(named("rmd", 0.05, 12))
            .method(named("fmd", 0.05, 12))
            .method(With(Rmd::default(), InnerLoop::new(0.05, 12).at_temperature(0.1)))
            .method(With(Rmd::default(), InnerLoop { optimizer: momentum, ..InnerLoop::new(0.05, 12) }))
            .run()
            .unwrap();
        for method in &report.methods {
            let found = method.training().unwrap();
            // What extrapolated differences of a smooth function are good for.
            assert!(found.error < 1e-8 && found.cosine > 1.0 - 1e-12, "{report}");
            assert!(method.verdict().contains("is correct for this training"), "{report}");
        }
    }
}

#[test]
fn many_hyperparameters_are_compared_along_random_directions() {
    let problem = decay(100, DType::F64);
    let report = quickly(&problem).directions(5).method(named("rmd", 0.05, 8)).run().unwrap();
    assert_eq!(report.directions, 5);
    assert!(report.methods[0].training().unwrap().error < 1e-8, "{report}");
    assert_eq!(quickly(&decay(3, DType::F64)).method(named("rmd", 0.05, 8)).run().unwrap().directions, 3);
}

#[test]
fn implicit_methods_are_right_for_the_minimum_and_say_where_training_does_not_reach_it() {
    let problem = decay(3, DType::F64);
    let report = quickly(&problem)
        .method(named("ift-cg", 0.05, 500))
        .method(With(IftNeumann { alpha: 0.2, terms: 200, ..IftNeumann::default() }, InnerLoop::new(0.05, 500)))
        .method(With(IftCg::default(), InnerLoop::new(0.05, 3)))
        .method(named("rmd", 0.05, 500))
        .run()
        .unwrap();
    for place in [0, 1, 3] {
        let method = &report.methods[place];
        assert!(method.minimum().unwrap().error < 1e-6 && method.training().unwrap().error < 1e-6, "{report}");
        assert!(method.verdict().contains("is correct, both"), "{report}");
    }
    let early = &report.methods[2];
    assert!(!early.minimum().unwrap().is_close() && !early.training().unwrap().is_close(), "{report}");
}

#[test]
fn a_training_that_does_not_come_to_rest_has_no_minimum_to_compare_with() {
    let problem = noisy();
    let report = quickly(&problem).method(named("ift-cg", 0.05, 10)).run().unwrap();
    let error = report.methods[0].minimum().unwrap_err();
    assert!(matches!(error, Error::NoReference { .. }), "{error}");
    assert!(error.to_string().starts_with("training does not converge in 2000 steps"), "{error}");
    assert!(report.to_string().contains("Nothing could be compared with the minimum: training does not"), "{report}");
    assert!(report.methods[0].training().is_ok());
}

#[test]
fn first_order_reverse_mode_is_seen_to_be_off_for_a_learned_initialisation() {
    let problem = Problem::builder(Leaf(Variable::normal([4], 1.0)), Leaf(Variable::constant([4], 0.0)))
        .inner(|_, _, t| (t.0.square().square() * 0.25 + (t.0 - 1.0).square()).sum_all())
        .outer(|_, _, t| (t.0 + 0.5).square().sum_all())
        .start(|_, l| *l)
        .build()
        .unwrap();
    let report = quickly(&problem)
        .method(named("rmd", 0.05, 5))
        .method(With(RmdFo::default(), InnerLoop::new(0.05, 5)))
        .method(With(Imaml { rho: 2.0, iterations: 20, ..Imaml::default() }, InnerLoop::new(0.05, 400)))
        .method(named("ift-cg", 0.05, 5))
        .run()
        .unwrap();
    let [exact, first_order, proximal, refused] = &report.methods[..] else { panic!("{report}") };
    assert!(exact.training().unwrap().error < 1e-8, "{report}");
    assert!(!first_order.training().unwrap().is_close() && first_order.training().unwrap().cosine > 0.9, "{report}");
    assert!(first_order.verdict().contains("points in the right direction"), "{report}");
    // Its own training, which a proximal term holds near λ, is what it is compared with.
    assert!(proximal.training().unwrap().error < 1e-6 && proximal.minimum().unwrap().error < 1e-6, "{report}");
    assert!(matches!(refused.norm(), Err(Error::NotApplicable { method: "ift-cg", .. })), "{report}");
    assert!(refused.verdict().starts_with("ift-cg: ift-cg does not apply: "), "{}", refused.verdict());
}

#[test]
fn a_short_chain_of_the_papers_method_is_seen_to_be_short() {
    let problem = decay(3, DType::F64);
    let hpo = With(HpoSgld::default(), InnerLoop::new(0.01, 10));
    let adjoint = With(LangevinAdjoint::default(), InnerLoop::new(0.05, 1000));
    let report = quickly(&problem).method(hpo).method(adjoint).run().unwrap();
    assert!(!report.methods[0].minimum().unwrap().is_close(), "{report}");
    // The mean over a chain that begins outside the minimum.
    assert!(report.methods[1].minimum().unwrap().error < 0.1, "{report}");
}

#[test]
fn single_precision_is_checked_in_double() {
    let problem = decay(3, DType::F32);
    let report = quickly(&problem).method(named("rmd", 0.05, 12)).run().unwrap();
    assert!(report.passed(1e-6) && report.methods[0].training().unwrap().error < 1e-8, "{report}");
}

#[test]
fn a_method_that_diverges_says_so_in_its_own_line() {
    let problem = decay(2, DType::F64);
    let report = quickly(&problem).method(named("rmd", 10.0, 900)).method(named("rmd", 0.05, 5)).run().unwrap();
    assert!(matches!(report.methods[0].norm(), Err(Error::Diverged { .. })), "{report}");
    assert!(report.methods[1].training().unwrap().is_close(), "{report}");
}

#[test]
fn a_derivative_that_was_cut_by_mistake_fails() {
    let problem = Problem::builder(Leaf(Variable::constant([2], 0.4)), Leaf(Variable::constant([2], 0.7)))
        .inner(|_, l, t| (l.0.stop_gradient().exp() * t.0.square()).sum_all())
        .outer(|_, l, t| (t.0 - 1.0).square().sum_all() + l.0.sum_all())
        .build()
        .unwrap();
    let report = quickly(&problem).method(named("rmd", 0.05, 5)).run().unwrap();
    assert!(!report.passed(1e-6), "{report}");
    // Differences of the training see what the derivative does not.
    assert!(!report.methods[0].training().unwrap().is_close(), "{report}");
}

#[test]
fn any_state_may_be_checked_and_every_method_that_applies() {
    let problem = decay(2, DType::F64);
    let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
    let state = session.state(Key::from_seed(99)).unwrap().snapshot().unwrap();
    let mut check = quickly(&problem).at(state.clone()).draws(2);
    for info in applicable_to(&problem).unwrap() {
        check = check.method(named(info.name, 0.05, 20));
    }
    let report = check.run().unwrap();
    for method in &report.methods {
        // Whoever does not train by plain descent is compared with the minimum alone.
        let plain = named(method.method, 0.05, 20).loop_use().descent.is_plain();
        let training = method.training().is_ok() || method.method == "ift-neumann";
        assert!(if plain { training } else { method.minimum().is_ok() }, "{report}");
        assert!(report.to_string().contains(&method.verdict()), "{report}");
    }
    let alone = quickly(&problem).at(state).draws(2).method(named("rmd", 0.05, 20)).run().unwrap();
    let together = report.methods.iter().find(|method| method.method == "rmd").unwrap();
    assert_eq!(alone.methods[0], *together, "what is found does not depend on what else is checked");
}

#[test]
fn settings_out_of_range_are_refused() {
    let problem = decay(1, DType::F64);
    assert!(matches!(quickly(&problem).directions(0).run(), Err(Error::Setting { name: "directions", .. })));
    assert!(matches!(quickly(&problem).draws(0).run(), Err(Error::Setting { name: "draws", .. })));
    assert_eq!(named("rmd", 0.05, 3).name(), "rmd");
}

#[test]
fn a_method_with_steps_of_its_own_is_compared_with_a_training_that_converges() {
    // The curvature is 1000, where plain steps of d-tfbo's 1 overflow at once.
    let problem = Problem::builder(Leaf(Variable::constant([2], 3.0)), Leaf(Variable::constant([2], 0.0)))
        .inner(|_, l, t| ((t.0 - l.0).square() * 500.0).sum_all())
        .outer(|_, _, t| (t.0 - 1.0).square().sum_all() + t.0.slice(0, 0, 1).sum_all())
        .build()
        .unwrap();
    let method = bilevel::methods::DTfbo { tolerance: 1e-8, ..Default::default() };
    let wrong = With(bilevel::methods::GPbgd { penalty: 10.0 }, InnerLoop::new(1e-7, 1));
    let report = quickly(&problem).method(method).method(wrong).run().unwrap();
    let [step, penalty] = &report.methods[..] else { panic!("{report}") };
    assert!(step.minimum().unwrap().error < 1e-6, "{report}");
    assert!(step.training().unwrap_err().to_string().contains("does not train by plain descent"), "{report}");
    assert!(step.verdict().contains("It returns a step of λ, so only the direction was compared."), "{report}");
    assert!(step.verdict().starts_with("d-tfbo is correct for the minimum"), "{report}");
    // One that has not trained yet is seen to be off.
    assert!(!penalty.minimum().unwrap().is_close(), "{report}");
}

/// A network with ReLU, all of whose parts matter; `wrong` cuts a derivative of the second layer.
fn network(start: Variable, wrong: bool) -> Problem {
    let x: Vec<f64> = (0..80).map(|i| (1.7 * i as f64).sin()).collect();
    let y: Vec<f64> = (0..20).map(|i| (0.3 * i as f64).cos()).collect();
    let second = Variable::normal([16, 1], 0.4);
    let theta = vec![Leaf(start), Leaf(second)];
    Problem::builder(Leaf(Variable::constant([], -1.0)), theta)
        .data("x", Array::from_f64([20, 4], x).unwrap())
        .data("y", Array::from_f64([20, 1], y).unwrap())
        .inner(move |s, l, t| {
            let out = if wrong { t[1].0 * 0.5 + t[1].0.stop_gradient() * 0.5 } else { t[1].0 };
            let found = s.data("x").matmul(t[0].0).maximum(0.0).matmul(out);
            (found - s.data("y")).square().mean_all()
                + l.0.exp() * (t[0].0.square().sum_all() + t[1].0.square().sum_all())
        })
        .outer(|s, _, t| (s.data("x").matmul(t[0].0).maximum(0.0).matmul(t[1].0) - s.data("y")).square().mean_all())
        .build()
        .unwrap()
        .erase()
}

#[test]
fn a_healthy_relu_network_passes_at_every_draw() {
    for seed in 0..10 {
        let problem = network(Variable::normal([4, 16], 0.5), false);
        let report = quickly(&problem).seed(seed).run().unwrap();
        assert!(report.passed(1e-5) && report.moved.is_none(), "seed {seed}\n{report}");
        assert_eq!(report.empty(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_wrong_derivative_of_a_relu_network_still_fails() {
    for seed in 0..3 {
        let problem = network(Variable::normal([4, 16], 0.5), true);
        assert!(!quickly(&problem).seed(seed).run().unwrap().passed(1e-3));
    }
}

#[test]
fn a_point_at_which_nothing_can_be_compared_is_moved() {
    // With a first layer of zeros every unit is at its kink.
    let zeros = network(Variable::constant([4, 16], 0.0), false);
    let report = quickly(&zeros).run().unwrap();
    let moved = report.moved.unwrap_or_else(|| panic!("{report}"));
    assert!(moved.by > 0.0 && moved.by < 1.0 && moved.lacking > 0, "{report}");
    assert!(
        report.passed(1e-5) && report.to_string().contains("The derivatives above are at a point nearby"),
        "{report}"
    );
    // And a wrong derivative, which is 0 like the right one there, is found.
    assert!(!quickly(&network(Variable::constant([4, 16], 0.0), true)).run().unwrap().passed(1e-3));
}

#[test]
fn zeros_compared_with_zeros_are_called_empty_and_not_correct() {
    // f does not depend on θ² at 0, and λ acts only through its square.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| (t.0 - l.0.square()).square())
        .outer(|_, _, t| t.0.square())
        .build()
        .unwrap();
    let start = State::initial(&problem, &Cpu::with_threads(1), Key::from_seed(0)).unwrap().snapshot().unwrap();
    let moved = quickly(&problem).at(start).method(named("rmd", 0.1, 10)).run().unwrap();
    assert!(moved.moved.is_some() && moved.methods[0].training().unwrap().is_close(), "{moved}");
    // A hyperparameter that is held at 0 cannot be moved.
    let held = Problem::builder(
        Leaf(Variable::constant([], 0.0).at_least(0.0).at_most(0.0)),
        Leaf(Variable::constant([], 1.0)),
    )
    .inner(|_, l, t| (t.0 - l.0.square()).square())
    .outer(|_, _, t| t.0.square())
    .build()
    .unwrap();
    let report = quickly(&held).method(named("rmd", 0.1, 10)).run().unwrap();
    assert!(report.empty().iter().any(|said| said.contains("by lambda of the inner loss: it is 0 here")), "{report}");
    let empty = report.methods[0].training().unwrap_err().to_string();
    assert!(empty.contains("both derivatives are exactly 0 here"), "{empty}");
    assert!(!report.methods[0].verdict().contains("correct"), "{report}");
}
