"""Problems in JAX: hypergradients equal to references written in JAX, and what is refused."""

import functools
import pickle

import bilevel as bl
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bilevel._check import difference
from bilevel.errors import CheckError, DataError, ProblemError, ShapeError, UnsupportedError

TOLERANCE = 1e-10


def digits(rows):
    """Ten noisy 8×8 shapes, as digits are, without a file."""
    rng = np.random.default_rng(0)
    shapes, labels = rng.uniform(0, 1, (10, 64)), rng.integers(0, 10, rows)
    return {"x": np.clip(shapes[labels] + 0.3 * rng.normal(size=(rows, 64)), 0, 1), "y": labels}


DATA = digits(300)
TRAIN = {k: v[:100] for k, v in DATA.items()}
VALID = {k: v[100:] for k, v in DATA.items()}


def start(seed=0):
    rng = np.random.default_rng(seed)
    layer = lambda n, m: {"w": rng.normal(size=(n, m)) * 0.1, "b": np.zeros(m)}  # noqa: E731
    return {"first": layer(64, 32), "second": layer(32, 10)}


def network(params, x):
    h = jnp.tanh(x @ params["first"]["w"] + params["first"]["b"])
    return h @ params["second"]["w"] + params["second"]["b"]


def cross_entropy(logits, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def inner(lam, params, batch):
    penalty = sum((jnp.exp(lam[k]) * params[k]["w"] ** 2).sum() for k in lam)
    return cross_entropy(network(params, batch["x"]), batch["y"]) + penalty


def outer(lam, params, batch):
    return cross_entropy(network(params, batch["x"]), batch["y"])


LAM = {"first": np.full((64, 32), -5.0), "second": np.full((32, 10), -4.0)}


@pytest.fixture(scope="module")
def problem():
    return bl.jax.problem(inner, outer, LAM, start(), train=TRAIN, valid=VALID)


def largest(found, expected):
    leaves = jax.tree_util.tree_leaves
    return difference(leaves(found), leaves(expected))


def descended(lam, params, steps, step):
    def one(params, _):
        slope = jax.grad(inner, 1)(lam, params, TRAIN)
        return jax.tree.map(lambda p, g: p - step * g, params, slope), None

    return jax.lax.scan(one, jax.tree.map(jnp.asarray, params), None, length=steps)[0]


def test_the_check_compared_everything(problem):
    report = problem.check()
    assert [row.quantity for row in report.rows] == ["value", "gradient", "Hessian product"] * 2
    assert all(row.difference < 1e-12 for row in report.rows)


def test_reverse_mode_is_the_gradient_of_the_unrolled_training(problem):
    expected = jax.jit(jax.grad(lambda lam: outer(lam, descended(lam, start(), 50, 0.5), VALID)))(LAM)
    for settings in ({}, {"storage": "checkpoints"}):
        found = problem.hypergradient("rmd", step=0.5, steps=50, **settings)
        assert largest(found.value, expected) <= TOLERANCE


def test_implicit_differentiation_is_conjugate_gradients_in_jax(problem):
    steps, step, sweeps, damping = 50, 0.5, 6, 0.1

    @jax.jit
    def reference(lam):
        params = descended(lam, start(), steps, step)
        slope = jax.grad(lambda p: inner(lam, p, TRAIN))
        dot = lambda a, b: sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))  # noqa: E731
        plus = lambda a, s, b: jax.tree.map(lambda x, y: x + s * y, a, b)  # noqa: E731
        times = lambda v: plus(jax.jvp(slope, (params,), (v,))[1], damping, v)  # noqa: E731
        r = jax.grad(outer, 1)(lam, params, VALID)
        q, p = jax.tree.map(jnp.zeros_like, r), r
        for _ in range(sweeps):
            moved = times(p)
            alpha = dot(r, r) / dot(p, moved)
            q, new = plus(q, alpha, p), plus(r, -alpha, moved)
            p, r = plus(new, dot(new, new) / dot(r, r), p), new
        mixed = jax.grad(lambda lam: dot(jax.grad(inner, 1)(lam, params, TRAIN), q))(lam)
        return jax.tree.map(lambda a, b: a - b, jax.grad(outer)(lam, params, VALID), mixed)

    found = problem.hypergradient("ift-cg", step=step, steps=steps, iterations=sweeps, regularisation=damping)
    assert largest(found.value, reference(LAM)) <= TOLERANCE


def test_the_langevin_adjoint_is_its_recursion_in_jax(problem):
    steps, burn_in, step = 60, 20, 0.3

    @jax.jit
    def reference(lam):
        slope = lambda lam, p: jax.grad(inner, 1)(lam, p, TRAIN)  # noqa: E731
        dot = lambda a, b: sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))  # noqa: E731

        def one(carry, m):
            params, z, total = carry
            direct, f = jax.grad(outer, (0, 1))(lam, params, VALID)
            mixed = jax.grad(lambda lam: dot(slope(lam, params), z))(lam)
            bent = jax.jvp(lambda p: slope(lam, p), (params,), (z,))[1]
            kept = m >= burn_in
            total = jax.tree.map(lambda t, a, b: t + jnp.where(kept, a - b, 0.0), total, direct, mixed)
            z = jax.tree.map(lambda z, f, h: z + step * (f - h), z, f, bent)
            params = jax.tree.map(lambda p, g: p - step * g, params, slope(lam, params))
            return (params, z, total), None

        zeros = lambda tree: jax.tree.map(lambda x: jnp.zeros_like(jnp.asarray(x)), tree)  # noqa: E731
        first = (jax.tree.map(jnp.asarray, start()), zeros(start()), zeros(lam))
        total = jax.lax.scan(one, first, jnp.arange(steps))[0][2]
        return jax.tree.map(lambda t: t / (steps - burn_in), total)

    found = problem.hypergradient("langevin-adjoint", step=step, steps=steps, burn_in=burn_in)
    assert largest(found.value, reference(LAM)) <= TOLERANCE


def test_every_method_that_applies_runs(problem):
    small = bl.jax.problem(
        lambda lam, p: ((p - jnp.tanh(lam)) ** 2 * jnp.array([1.0, 2.0])).sum(), lambda lam, p: ((p - 0.3) ** 2).sum(),
        np.array([0.5, -0.5]), np.zeros(2),
    )
    assert set(small.methods()) == set(problem.methods())
    for name in small.methods():
        run = small.run(name, iterations=2)
        assert np.isfinite(run.lam).all() and not run.summary["failed"], name


def test_a_learned_initialisation_runs():
    task = jnp.array([1.0, -2.0])
    problem = bl.jax.problem(
        lambda lam, p: ((p["w"] - task) ** 2).sum(), lambda lam, p: ((p["w"] - task * 2) ** 2).sum(), {"w": np.zeros(2)}, {"w": np.zeros(2)},
        start=lambda lam: lam)
    found = problem.hypergradient("rmd", step=0.1, steps=5)
    # θ = task + 0.8⁵·(λ − task), so dθ/dλ = 0.8⁵.
    theta = task * (1 - 0.8**5)
    assert difference([found.value["w"]], [2 * (theta - 2 * task) * 0.8**5]) <= TOLERANCE


def test_a_run_improves_and_gives_back_the_users_trees(problem):
    run = problem.run("langevin-adjoint", optimizer="adam", rate=0.1, iterations=20, step=0.3, steps=20)
    assert jax.tree.structure(run.lam) == jax.tree.structure(LAM)
    assert jax.tree.structure(run.params) == jax.tree.structure(start())
    assert run.iterations[-1]["outer_loss"] < run.iterations[0]["outer_loss"]
    assert abs(float(outer(run.lam, run.params, VALID)) - problem.losses(run.lam, run.params)["outer"]) < 1e-12


def test_f32_is_computed_in_f32():
    narrow = lambda tree: jax.tree.map(lambda a: np.asarray(a, np.float32) if np.asarray(a).dtype == np.float64 else a, tree)  # noqa: E731
    with jax.enable_x64(False):
        one = bl.jax.problem(inner, outer, narrow(LAM), narrow(start()), train=narrow(TRAIN), valid=narrow(VALID))
    assert one.dtype == "f32" and one.check().passed


def test_minibatches_are_epochs_and_keys_are_streams():
    def noisy(lam, params, batch, key):
        kept = jax.random.bernoulli(key, 0.8, batch["x"].shape)
        return inner(lam, params, {**batch, "x": jnp.where(kept, batch["x"] / 0.8, 0.0)})

    problem = bl.jax.problem(noisy, outer, LAM, start(), train=TRAIN, valid=VALID, batch_size=25)
    assert "random" in repr(problem.check())
    losses = [problem.losses(seed=s)["inner"] for s in range(60)]
    keys = jax.random.split(jax.random.key(1), 60)
    rows = np.random.default_rng(0)
    theirs = [float(noisy(LAM, start(), {k: v[i] for k, v in TRAIN.items()}, key))
              for key in keys for i in [rows.choice(100, 25, replace=False)]]
    # Two samples of one distribution: their means are within four standard errors.
    error = np.hypot(np.std(losses), np.std(theirs)) / np.sqrt(60)
    assert abs(np.mean(losses) - np.mean(theirs)) < 4 * error
    assert 0.5 < np.std(losses) / np.std(theirs) < 2.0


def test_draws_of_several_keys_are_different():
    def spread(lam, params, key):
        a, b = jax.random.split(key)
        draws = jnp.stack([jax.random.normal(a), jax.random.normal(b), jax.random.normal(jax.random.fold_in(a, 3)), jax.random.uniform(a),
                           jax.vmap(jax.random.normal)(jax.random.split(b, 3)).sum()])
        return ((params - draws) ** 2).sum() + 0 * lam

    problem = bl.jax.problem(spread, lambda lam, p: (p**2).sum() + lam**2, np.zeros(()), np.zeros(5))
    ends = problem.train(steps=1, step=0.5).params
    assert len({round(float(x), 12) for x in ends}) == 5


def test_batch_statistics_are_carried():
    def with_state(lam, params, state, batch):
        mean = batch["x"].mean(0)
        loss = ((batch["x"] - mean) @ params["w"] - 1.0) ** 2
        return loss.mean() + jnp.exp(lam) * (params["w"] ** 2).sum(), {"mean": 0.9 * state["mean"] + 0.1 * mean}

    def judged(lam, params, state, batch):
        return (((batch["x"] - state["mean"]) @ params["w"] - 1.0) ** 2).mean()

    data = {"x": np.random.default_rng(0).normal(size=(30, 4)) + 2.0}
    problem = bl.jax.problem(with_state, judged, np.array(-1.0), {"w": np.ones(4)}, state={"mean": np.zeros(4)}, train=data, valid=data)
    trained = problem.train(step=0.01, steps=7).params
    assert difference([trained["state"]["mean"]], [data["x"].mean(0) * (1 - 0.9**7)]) <= TOLERANCE

    def unrolled(lam):
        def one(carry, _):
            params, state = carry
            slope, state = jax.grad(with_state, 1, has_aux=True)(lam, params, state, data)
            return (jax.tree.map(lambda p, g: p - 0.01 * g, params, slope), state), None

        params, state = jax.lax.scan(one, ({"w": jnp.ones(4)}, {"mean": jnp.zeros(4)}), None, length=7)[0]
        return judged(lam, params, state, data)

    found = problem.hypergradient("rmd", step=0.01, steps=7).value
    assert difference([found], [jax.grad(unrolled)(jnp.array(-1.0))]) <= TOLERANCE


def test_bounds_hold():
    problem = bl.jax.problem(
        lambda lam, p: ((p - lam["a"] - lam["b"]) ** 2).sum(), lambda lam, p: ((p - 9.0) ** 2).sum(), {"a": np.zeros(2), "b": np.zeros(2)},
        np.zeros(2), bounds={"a": (None, 0.25)})
    run = problem.run("rmd", step=0.4, steps=20, rate=0.5, iterations=30)
    assert (run.lam["a"] <= 0.25).all() and (run.lam["b"] > 1.0).all()
    with pytest.raises(ProblemError, match="'c'"):
        bl.jax.problem(lambda lam, p: (p - lam["a"]) ** 2, lambda lam, p: p**2, {"a": 0.0}, 0.0, bounds={"c": (0, 1)})


def test_pickling_keeps_the_problem(problem):
    again = pickle.loads(pickle.dumps(problem))
    a, b = (p.hypergradient("rmd", step=0.5, steps=5).value for p in (problem, again))
    assert largest(a, b) == 0.0


def test_an_outer_loop_of_ones_own_differentiates_through_the_minimum():
    weights = jnp.array([1.0, 2.0, 3.0])
    solve = bl.jax.implicit(
        lambda lam, p: (weights * (p - jnp.sin(lam)) ** 2).sum() + 0.1 * (p**2).sum(), jnp.zeros(3), step=0.1, steps=400, iterations=20,
        regularisation=0.0)
    loss = lambda lam: (solve(lam) ** 3).sum()  # noqa: E731
    lam = jnp.array([0.3, -0.7, 1.1])
    exact = lambda lam: ((weights * jnp.sin(lam) / (weights + 0.1)) ** 3).sum()  # noqa: E731
    assert abs(loss(lam) - exact(lam)) < 1e-9
    assert difference([jax.grad(loss)(lam)], [jax.grad(exact)(lam)]) < 1e-8
    assert difference([jax.jit(jax.grad(loss))(lam * 0.5)], [jax.grad(exact)(lam * 0.5)]) < 1e-8


# What is refused.


def refused(kind, match, inner=inner, outer=outer, lam=LAM, params=None, train=TRAIN, valid=VALID, **options):
    with pytest.raises(kind, match=match):
        bl.jax.problem(inner, outer, lam, start() if params is None else params, train=train, valid=valid, **options)


def test_bad_data_are_refused():
    broken = {**TRAIN, "x": np.where(np.arange(64) == 3, np.nan, TRAIN["x"])}
    refused(DataError, r"train/x has the value nan at \(0, 3\)", train=broken)
    refused(DataError, "no minibatch of 500 rows", batch_size=500)
    refused(DataError, "type", train={**TRAIN, "y": np.array(["a"] * 100)})
    refused(ProblemError, "only floats are learned", params={"first": np.arange(3)})
    refused(ProblemError, "without train", train=None, batch_size=3, inner=lambda lam, p: 0.0)


def test_losses_of_the_wrong_kind_are_refused():
    refused(ProblemError, "must return one number", inner=lambda lam, p, b: network(p, b["x"]))
    refused(ProblemError, "cannot be called with 3 arguments", inner=lambda lam: 0.0)
    refused(ProblemError, "nothing to train", inner=lambda lam, p, b: (lam["first"] ** 2).sum())
    refused(UnsupportedError, "test_jax_problem.py", inner=lambda lam, p, b: jnp.abs(jnp.fft.fft(p["first"]["w"])).sum())

    def branching(lam, p, b):
        return p["first"]["w"].sum() if p["first"]["w"][0, 0] > 0 else p["first"]["w"].max()

    refused(UnsupportedError, r"test_jax_problem\.py:\d+ \(branching\): .*in place of if", inner=branching)
    refused(UnsupportedError, r"test_jax_problem\.py:\d+ .*jax.numpy", inner=lambda lam, p, b: np.tanh(np.asarray(p["first"]["w"])).sum())

    def printing(lam, p, b):
        jax.debug.print("{x}", x=p["first"]["w"][0, 0])
        return inner(lam, p, b)

    refused(UnsupportedError, "debug", inner=printing)
    refused(UnsupportedError, "complex|not supported", inner=lambda lam, p, b: jnp.abs(p["first"]["w"] * 1j).sum())


def test_a_side_effect_that_changes_the_loss_is_found_by_the_check():
    calls = []

    def counting(lam, p, b):
        calls.append(None)
        return inner(lam, p, b) * len(calls)

    refused(CheckError, "the inner loss as traced differs from the original: its value", inner=counting)


def test_wrong_shapes_are_refused_with_the_line():
    transposed = {**VALID, "x": VALID["x"].T}
    with pytest.raises((TypeError, ValueError)) as caught:
        bl.jax.problem(inner, outer, LAM, start(), train=TRAIN, valid=transposed)
    assert any(entry.name == "network" for entry in caught.traceback)


def test_a_loss_that_is_lowered_wrongly_is_found_by_the_check(monkeypatch):
    from bilevel.jax import _walk

    monkeypatch.setitem(_walk.RULES, "tanh", lambda lowering, equation, x: x.unary("sin"))
    refused(CheckError, "differs from the original: its value")


def test_trees_of_another_structure_are_refused(problem):
    with pytest.raises(ShapeError):
        problem.hypergradient("rmd", lam={"first": LAM["first"]})
    with pytest.raises(ShapeError):
        problem.hypergradient("rmd", params=functools.reduce(lambda a, b: a, [start()]) | {"third": np.zeros(3)})


def test_labels_outside_the_classes_end_a_run_with_an_error():
    bad = {**TRAIN, "y": np.where(np.arange(100) == 7, 99, TRAIN["y"])}
    problem = bl.jax.problem(
        lambda lam, p, b: inner(lam, p, b), outer, LAM, start(), train=bad, valid=VALID, check=False)
    # JAX fills with NaN what is out of range; so does the traced loss, and the run says so.
    run = problem.run("rmd", step=0.1, steps=3, iterations=2)
    assert run.summary["failed"]


def divided(options):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    y = x @ np.array([1.0, -2.0, 0, 0]) + rng.normal(size=60)

    def inner(lam, params, data):
        return ((data["x"] @ params["w"] - data["y"]) ** 2).mean() + (jnp.exp(lam["decay"]) * params["w"] ** 2).sum()

    def outer(lam, params, data):
        return (data["x"] @ params["w"] - data["y"]) ** 2

    return bl.jax.problem(inner, outer, {"decay": np.full(4, -2.0)}, {"w": np.zeros(4)}, **options(x, y)), x, y


def test_rows_are_divided_by_a_split():
    problem, x, y = divided(lambda x, y: dict(train={"x": x, "y": y}, split=bl.Split(0.4, 0.3, 0.1, 0.2)))
    assert [len(rows) for rows in problem.rows().values()] == [24, 18, 6, 12]
    w = np.array([0.5, -1.0, 0.2, 0.1])
    expected = ((x @ w - y) ** 2)[problem.rows()["test"]]
    assert np.abs(problem.row_losses("test", params={"w": w}) - expected).max() < 1e-12
    run = problem.run("rmd", step=0.1, steps=20, rate=0.1, iterations=4, guard={"every": 2})
    assert run.guard["rows"] == 6
    assert problem.baselines(run, step=0.1, steps=20).part == "test"
    assert problem.folded(3).sizes == (4, 12)


def test_held_out_and_test_rows_are_given_beside_the_others():
    part = lambda x, y, rows: {"x": x[rows], "y": y[rows]}  # noqa: E731
    problem, x, y = divided(lambda x, y: dict(
        train=part(x, y, slice(0, 20)), valid=part(x, y, slice(20, 40)), held_out=0.25, test=part(x, y, slice(40, 60)), batch_size=5))
    assert [len(rows) for rows in problem.rows().values()] == [20, 15, 5, 20]
    assert problem.run("rmd", step=0.05, steps=20, iterations=3, guard={"every": 1}).guard["rows"] == 5
    given, _, _ = divided(lambda x, y: dict(
        train=part(x, y, slice(0, 20)), valid=part(x, y, slice(20, 40)), held_out=part(x, y, slice(40, 60))))
    assert given.rows()["held-out"] == list(range(40, 60))
    with pytest.raises(ShapeError, match="structure"):
        divided(lambda x, y: dict(train=part(x, y, slice(0, 20)), valid=part(x, y, slice(20, 40)), test={"x": x}))
