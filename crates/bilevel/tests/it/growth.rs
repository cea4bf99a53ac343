//! Does a hypergradient exist? The trust region of the Langevin adjoint, the growth rate of sensitivities, inner steps that are
//! reduced, and an adjoint that forgets.

use crate::with::{Usual, With};
use bilevel::diagnostics::Warning;
use bilevel::methods::{Fmd, LangevinAdjoint, Rmd};
use bilevel::optimizers::{InnerOptimizer, Momentum};
use bilevel::{Array, Cpu, DType, Hypergradient, InnerLoop, Key, Leaf, Method, Problem, State, Variable};

fn cpu() -> Cpu {
    Cpu::with_threads(1)
}

/// Calls in a row from one state; the hypergradients, and the state they left.
fn calls(problem: &bilevel::AnyProblem, method: &dyn Method, count: u32) -> (Vec<Hypergradient>, State) {
    let mut estimator = method.prepared_on(problem, &cpu()).unwrap();
    let mut state = State::initial(problem, &cpu(), Key::from_seed(3)).unwrap();
    let found = (0..count).map(|call| estimator.estimate(&mut state, Key::from_seed(4).fold_in(call)).unwrap());
    (found.collect(), state)
}

/// L_T = ½·Σ hᵢ(θᵢ − λᵢ)², f = Σ θᵢ, and θ at the minimum: what grows there is the sensitivity alone.
fn bowl(curvatures: &[f64], dtype: DType) -> Problem {
    let n = curvatures.len();
    Problem::builder(Leaf(Variable::constant([n], 0.5)), Leaf(Variable::constant([n], 0.5)))
        .data("curvature", Array::from_f64([n], curvatures.to_vec()).unwrap())
        .inner(|s, l, t| (s.data("curvature") * (t.0 - l.0).square()).sum_all() * 0.5)
        .outer(|_, _, t| t.0.sum_all())
        .dtype(dtype)
        .build()
        .unwrap()
        .erase()
}

/// A curvature drawn again at every step, between 0 and 8, around a minimum that all draws share.
fn drawn_curvature(dtype: DType) -> Problem {
    Problem::builder(Leaf(Variable::constant([3], 0.5)), Leaf(Variable::constant([3], 0.5)))
        .inner(|s, l, t| (s.uniform([3], 0.0, 8.0) * (t.0 - l.0).square()).sum_all() * 0.5)
        .outer(|_, _, t| t.0.sum_all())
        .dtype(dtype)
        .build()
        .unwrap()
        .erase()
}

/// A quartic with rows of data drawn in minibatches.
fn minibatches(dtype: DType) -> Problem {
    let rows: Vec<f64> = (0..40).map(|i| (i as f64 * 0.7).sin()).collect();
    Problem::builder(Leaf(Variable::constant([2], 0.3)), Leaf(Variable::constant([2], 0.1)))
        .data("rows", Array::from_f64([20, 2], rows).unwrap())
        .inner(|s, l, t| {
            let rows = s.data("rows").gather(s.minibatch(20, 4), 0);
            let off = (rows - t.0.broadcast_to([4, 2])).square();
            (off.square() * 0.1 + off).mean_all() + (l.0.exp() * t.0.square()).sum_all() * 0.1
        })
        .outer(|_, l, t| (t.0 - 0.4).square().sum_all() + (l.0 * t.0).sum_all() * 0.1)
        .dtype(dtype)
        .build()
        .unwrap()
        .erase()
}

#[test]
fn where_training_contracts_the_trust_region_changes_no_bit() {
    let double_well = || {
        Problem::builder(Leaf(Variable::constant([], 0.3)), Leaf(Variable::constant([], 0.2)))
            .inner(|_, l, t| (t.0.square() - 1.0).square() / 4.0 - l.0 * t.0)
            .outer(|_, _, t| t.0.square() * t.0)
            .build()
            .unwrap()
            .erase()
    };
    let cases = [
        ("bowl", bowl(&[0.1, 1.0, 3.0], DType::F64), 0.5, 0.0),
        ("bowl in f32", bowl(&[0.1, 1.0, 3.0], DType::F32), 0.5, 0.2),
        ("flat bowl", bowl(&[0.0, 1.0], DType::F64), 0.3, 0.1),
        ("minibatches", minibatches(DType::F64), 0.05, 0.1),
        ("minibatches in f32", minibatches(DType::F32), 0.05, 0.0),
        // It contracts on average only: between the wells the inner loss curves downwards.
        ("double well", double_well(), 0.01, 0.5),
    ];
    for (name, problem, step, temperature) in cases {
        for outer_every_step in [true, false] {
            let with = With(
                LangevinAdjoint { outer_every_step, ..LangevinAdjoint::default() },
                InnerLoop { burn_in: 3, ..InnerLoop::new(step, 303).at_temperature(temperature) },
            );
            let without = With(LangevinAdjoint { trust: false, ..with.0 }, with.1);
            let ((safe, safe_state), (bare, bare_state)) = (calls(&problem, &with, 20), calls(&problem, &without, 20));
            for (safe, bare) in safe.iter().zip(&bare) {
                assert_eq!(safe.value.arrays().unwrap(), bare.value.arrays().unwrap(), "{name}");
                assert_eq!(safe.diagnostics.trust_exits, Some(0.0), "{name}");
            }
            let leaves = safe_state.theta.len();
            let (safe, bare) = (safe_state.memory.arrays().unwrap(), bare_state.memory.arrays().unwrap());
            assert_eq!(safe[..leaves], bare[..leaves], "z: {name}");
        }
    }
}

#[test]
fn the_growth_rate_of_a_quadratic_is_the_logarithm_of_its_longest_factor() {
    // Factors 1 − γh of 0.55 and −1.7: the sensitivity grows along the second, and at half the step along none.
    let (step, steps) = (0.9, 60);
    for (curvatures, expected) in [(vec![0.5, 3.0], 1.7f64.ln()), (vec![0.5, 1.0], 0.55f64.ln())] {
        let problem = bowl(&curvatures, DType::F64);
        let rmd = With(Rmd::default(), InnerLoop::new(step, steps));
        let fmd = With(Fmd::default(), InnerLoop::new(step, steps));
        let adjoint = With(
            LangevinAdjoint { trust: false, warm: false, ..LangevinAdjoint::default() },
            InnerLoop::new(step, steps),
        );
        for method in [&rmd as &dyn Method, &fmd, &adjoint] {
            let (name, seen) = (method.name(), calls(&problem, method, 1).0[0].diagnostics);
            let rate = seen.growth_rate.unwrap();
            // The first steps are along f_θ or a random vector, and an adjoint that settles is not along the slowest one alone.
            let near = if expected > 0.0 { (rate - expected).abs() < 0.05 } else { rate < 0.0 };
            assert!(near, "{name}: {rate}, and not {expected}");
            let warned = seen.warnings().iter().any(|w| matches!(w, Warning::NoHypergradient { .. }));
            assert_eq!(warned, expected > 0.0, "{name}: {seen:?}");
            if expected > 0.0 {
                assert_eq!(seen.calm_step, Some(step / 2.0), "{name}");
                let text = seen.warnings().iter().map(|w| w.to_string()).collect::<String>();
                assert!(text.contains("no hypergradient exists") && text.contains("below 4.50e-1"), "{name}: {text}");
            }
        }
    }
}

#[test]
fn the_exponent_of_a_random_curvature_is_the_mean_logarithm() {
    // E ln|1 − u| over u from 0 to 8 is (7·ln 7 − 8)/8.
    let expected = (7.0 * 7f64.ln() - 8.0) / 8.0;
    let one = |dtype| {
        Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.5)))
            .inner(|s, l, t| s.uniform([], 0.0, 8.0) * (t.0 - l.0).square() * 0.5)
            .outer(|_, _, t| t.0)
            .dtype(dtype)
            .build()
            .unwrap()
            .erase()
    };
    let problem = one(DType::F64);
    let steps = 400;
    let rmd = With(Rmd::default(), InnerLoop::new(1.0, steps));
    let fmd = With(Fmd::default(), InnerLoop::new(1.0, steps));
    for method in [&rmd as &dyn Method, &fmd] {
        let rate = calls(&problem, method, 1).0[0].diagnostics.growth_rate.unwrap();
        // One logarithm has the standard deviation 1.0.
        assert!((rate - expected).abs() < 0.15, "{}: {rate}, and not {expected}", method.name());
    }
    // In 32-bit floats reverse mode overflows, and what was measured before says why.
    let mut estimator = rmd.usual(&bilevel::Session::new(&one(DType::F32), &cpu()).unwrap()).unwrap();
    let mut state = State::initial(&one(DType::F32), &cpu(), Key::from_seed(3)).unwrap();
    let found = estimator.estimate(&mut state, Key::from_seed(4)).unwrap();
    assert!(!found.value[0].item().unwrap().is_finite());
    assert!((found.diagnostics.growth_rate.unwrap() - expected).abs() < 0.25, "{:?}", found.diagnostics);
}

#[test]
fn where_no_hypergradient_exists_the_adjoint_stays_bounded_and_says_so() {
    for dtype in [DType::F32, DType::F64] {
        let problem = drawn_curvature(dtype);
        let safe = With(LangevinAdjoint::default(), InnerLoop::new(1.0, 50));
        let (found, _) = calls(&problem, &safe, 40);
        let exits: f64 = found.iter().filter_map(|h| h.diagnostics.trust_exits).sum();
        assert!(exits > 10.0, "{exits}");
        for h in &found {
            // ‖z‖ is at most 10·γ·n·‖f_θ‖ after n steps, but for what two more steps add.
            let norm = h.diagnostics.adjoint_norm.unwrap();
            assert!(norm < 50.0 * 10.0 * 2000.0 * 3f64.sqrt(), "{norm}");
        }
        assert!(
            found.iter().any(|h| h.diagnostics.warnings().iter().any(|w| matches!(w, Warning::NoHypergradient { .. })))
        );
        let bare = With(LangevinAdjoint { trust: false, ..safe.0 }, safe.1);
        let mut estimator = bare.prepared_on(&problem, &cpu()).unwrap();
        let mut state = State::initial(&problem, &cpu(), Key::from_seed(3)).unwrap();
        let largest = (0..40).map(|call| match estimator.estimate(&mut state, Key::from_seed(4).fold_in(call)) {
            Ok(h) => h.diagnostics.adjoint_norm.unwrap(),
            Err(_) => f64::INFINITY,
        });
        assert!(largest.fold(0.0, f64::max) > 1e20, "without the region it explodes");
    }
}

#[test]
fn a_step_is_reduced_until_a_hypergradient_exists_and_stays_so() {
    let problem = bowl(&[0.5, 3.0], DType::F64);
    let (step, steps) = (0.9, 60);
    let methods: [(Box<dyn Method>, Box<dyn Method>); 3] = [
        (
            Box::new(With(Rmd::default(), InnerLoop { shrink: true, ..InnerLoop::new(step, steps) })),
            Box::new(With(Rmd::default(), InnerLoop::new(step / 2.0, steps))),
        ),
        (
            Box::new(With(Fmd::default(), InnerLoop { shrink: true, ..InnerLoop::new(step, steps) })),
            Box::new(With(Fmd::default(), InnerLoop::new(step / 2.0, steps))),
        ),
        (
            Box::new(With(
                LangevinAdjoint::default(),
                InnerLoop { shrink: true, ..InnerLoop::new(step, steps).at_temperature(1e-6) },
            )),
            Box::new(With(LangevinAdjoint::default(), InnerLoop::new(step / 2.0, steps).at_temperature(1e-6))),
        ),
    ];
    for (shrinking, small) in methods {
        let name = shrinking.name();
        let ((shrunk, mut state), (direct, _)) = (calls(&problem, &*shrinking, 3), calls(&problem, &*small, 3));
        for (number, (shrunk, direct)) in shrunk.iter().zip(&direct).enumerate() {
            assert_eq!(shrunk.value.arrays().unwrap(), direct.value.arrays().unwrap(), "{name}, call {number}");
            assert_eq!(shrunk.diagnostics.reduced_step, Some(step / 2.0), "{name}, call {number}");
            assert!(shrunk.diagnostics.warnings().is_empty(), "{name}: {:?}", shrunk.diagnostics.warnings());
        }
        // The first call tried twice, the others once.
        assert_eq!(shrunk[0].oracles.inner_gradients, 2 * direct[0].oracles.inner_gradients, "{name}");
        assert_eq!(shrunk[1].oracles, direct[1].oracles, "{name}");
        // Another estimator continues from the state with the step that was found.
        let mut other = shrinking.prepared_on(&problem, &cpu()).unwrap();
        let found = other.estimate(&mut state, Key::from_seed(4).fold_in(9)).unwrap();
        assert_eq!((found.diagnostics.reduced_step, found.oracles), (Some(step / 2.0), direct[1].oracles), "{name}");
    }
    // A burst that is over before it has grown a thousandfold, 1.7¹⁰ = 202, may be the end of a network.
    for method in [
        &With(Rmd::default(), InnerLoop { shrink: true, ..InnerLoop::new(step, 10) }) as &dyn Method,
        &With(LangevinAdjoint::default(), InnerLoop { shrink: true, ..InnerLoop::new(step, 10).at_temperature(1e-6) }),
    ] {
        let found = &calls(&problem, method, 1).0[0];
        assert_eq!(found.diagnostics.reduced_step, Some(step / 2.0), "{}", method.name());
    }
    // Where a hypergradient exists nothing is reduced.
    let calm = bowl(&[0.5, 1.0], DType::F64);
    let found = &calls(&calm, &With(Rmd::default(), InnerLoop { shrink: true, ..InnerLoop::new(step, steps) }), 1).0[0];
    assert_eq!(found.diagnostics.reduced_step, None);
}

#[test]
fn an_adjoint_that_forgets_is_off_by_a_curvature_of_one_over_step_times_horizon() {
    // z settles at (H + I/(γK))⁻¹·f_θ, and C = −H here: h = H·(H + I/(γK))⁻¹·1.
    let curvatures = [0.3, 1.0, 2.5];
    let (step, horizon) = (0.2, 25);
    let method = With(
        LangevinAdjoint { horizon, ..LangevinAdjoint::default() },
        InnerLoop { burn_in: 2000, ..InnerLoop::new(step, 2001) },
    );
    let found = calls(&bowl(&curvatures, DType::F64), &method, 1).0[0].value.numbers().unwrap();
    for (h, value) in curvatures.iter().zip(found) {
        let expected = h / (h + 1.0 / (step * horizon as f64));
        assert!((value - expected).abs() < 1e-12, "curvature {h}: {value}, and not {expected}");
    }
    let error = With(LangevinAdjoint { horizon: 1, ..method.0 }, method.1)
        .prepared_on(&bowl(&[1.0], DType::F64), &cpu())
        .err()
        .unwrap();
    assert!(error.to_string().contains("horizon"), "{error}");
}

#[test]
fn downward_curvature_is_told_from_a_step_that_is_too_large() {
    // θ stays at the top of a hill: no step is small enough.
    let problem = Problem::builder(Leaf(Variable::constant([], 0.5)), Leaf(Variable::constant([], 0.0)))
        .inner(|_, l, t| -t.0.square() * 0.5 + l.0 * t.0.square() * t.0)
        .outer(|_, _, t| t.0)
        .build()
        .unwrap()
        .erase();
    let method = With(Rmd::default(), InnerLoop::new(0.2, 60));
    let seen = calls(&problem, &method, 1).0[0].diagnostics;
    assert!((seen.growth_rate.unwrap() - 1.2f64.ln()).abs() < 1e-9, "{seen:?}");
    assert_eq!(seen.calm_step, None);
    let text = seen.warnings().iter().map(|w| w.to_string()).collect::<String>();
    assert!(text.contains("curves downwards"), "{text}");
}

#[test]
fn with_momentum_the_rate_is_that_of_the_whole_state() {
    // θ and v of one curvature h: the eigenvalues of [[1 − γh, −γμ], [h, μ]] decide.
    let (h, gamma, decay, steps) = (3.0, 1.5, 0.5, 80);
    let (trace, determinant): (f64, f64) = (1.0 - gamma * h + decay, decay);
    let largest = (trace.abs() + (trace * trace - 4.0 * determinant).sqrt()) / 2.0;
    let optimizer = InnerOptimizer::Momentum(Momentum { decay, nesterov: false });
    let problem = bowl(&[h], DType::F64);
    let rmd = With(Rmd::default(), InnerLoop { optimizer, ..InnerLoop::new(gamma, steps) });
    let fmd = With(Fmd::default(), InnerLoop { optimizer, ..InnerLoop::new(gamma, steps) });
    for method in [&rmd as &dyn Method, &fmd] {
        let seen = calls(&problem, method, 1).0[0].diagnostics;
        let rate = seen.growth_rate.unwrap();
        assert!((rate - largest.ln()).abs() < 0.03, "{}: {rate}, and not {}", method.name(), largest.ln());
        assert_eq!(seen.calm_step, None, "only plain descent tells what a smaller step would do");
    }
}
