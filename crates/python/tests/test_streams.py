"""Iterators and loaders as data, and what becomes of those that fail."""

import itertools
import pickle
import signal
import threading
import time

import bilevel as bl
import numpy as np
import pytest
from bilevel._stream import Stream, is_stream
from bilevel.errors import DataError, Error, StreamError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(64, 3)), RNG.normal(size=64)
BATCHES = [{"x": X[i : i + 8], "y": Y[i : i + 8]} for i in range(0, 64, 8)]


class Loader:
    """Batches that can be gone through again, and nothing else."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def regression(train, **options):
    jnp = pytest.importorskip("jax.numpy")

    def inner(lam, w, batch):
        return ((batch["x"] @ w - batch["y"]) ** 2).mean() + jnp.exp(lam) * (w**2).sum()

    def outer(lam, w, batch):
        return ((batch["x"] @ w - batch["y"]) ** 2).mean()

    return bl.jax.problem(inner, outer, np.float64(-1.0), np.zeros(3), train=train, valid={"x": X, "y": Y}, **options)


def test_each_step_has_the_next_batch():
    found = regression(Loader(BATCHES)).train(step=0.1, steps=20).params
    w, decay = np.zeros(3), np.exp(-1.0)
    for batch in itertools.islice(itertools.cycle(BATCHES), 20):
        w = w - 0.1 * (2 / 8 * batch["x"].T @ (batch["x"] @ w - batch["y"]) + 2 * decay * w)
    assert np.abs(found - w).max() < 1e-12


def test_reverse_mode_meets_the_same_batches_again():
    settings = dict(step=0.1, steps=12)
    whole = regression(Loader(BATCHES)).hypergradient("rmd", storage="all", **settings)
    again = regression(Loader(BATCHES)).hypergradient("rmd", storage="checkpoints", **settings)
    assert abs(whole.value - again.value) < 1e-13

    def trained(lam):
        return regression(Loader(BATCHES)).train(np.float64(lam), **settings).outer_loss

    h = 1e-4
    slope = (8 * (trained(-1 + h) - trained(-1 - h)) - (trained(-1 + 2 * h) - trained(-1 - 2 * h))) / (12 * h)
    assert abs(whole.value - slope) < 1e-8


def test_a_run_reads_ahead_while_python_goes_on():
    run = regression(Loader(BATCHES)).run("rmd", step=0.1, steps=10, iterations=5, blocking=False)
    assert run.wait(timeout=60) and len(run.iterations) == 5


def test_what_ends_fails_or_changes_is_a_stream_error():
    with pytest.raises(StreamError, match="ended after 8 batches"):
        regression(iter(BATCHES)).train(step=0.1, steps=9)
    # The losses at the end are those of one more batch.
    regression(iter(BATCHES)).train(step=0.1, steps=7)
    with pytest.raises(StreamError, match="no batches"):
        regression(Loader([]))

    def dying():
        yield from BATCHES[:3]
        raise RuntimeError("worker (pid 7) exited unexpectedly")

    with pytest.raises(DataError, match=r"failed after 3 batches: RuntimeError: worker \(pid 7\) exited unexpectedly"):
        regression(dying()).train(step=0.1, steps=5)
    changed = [BATCHES[0], {"x": X[:8, :2], "y": Y[:8]}]
    with pytest.raises(StreamError, match="shapes"):
        regression(Loader(changed)).train(step=0.1, steps=2)
    with pytest.raises(Error, match="stream"):
        pickle.dumps(regression(Loader(BATCHES)))
    with pytest.raises(DataError, match="nan"):
        regression(Loader([BATCHES[0], {"x": X[:8] * np.nan, "y": Y[:8]}])).train(step=0.1, steps=2)


def test_the_rest_of_an_epoch_is_left_out():
    rest = [*BATCHES[:2], {"x": X[:5], "y": Y[:5]}]
    with pytest.warns(UserWarning, match="left out"):
        batches = Stream(Loader(rest), lambda b: (list(b), list(b.values())), "train")
        batches.declared("train")
        found = [batches((0, 0), step)[0] for step in range(4)]
    assert all(np.array_equal(a, rest[i % 2]["x"]) for i, a in enumerate(found))
    assert np.array_equal(batches((0, 0), 1)[0], found[1])


def test_arrays_are_no_streams():
    assert is_stream(iter([1])) and is_stream(Loader([])) and is_stream(x for x in [1])
    assert not any(map(is_stream, ([1], (1,), {"x": 1}, np.ones(3), "text", 3.0)))


def interrupted(call):
    """Whether Ctrl-C ends a call, and after how many seconds."""
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call()
    timer.join()
    return time.monotonic() - since


def test_ctrl_c_ends_training_and_hypergradients_too():
    problem = bl.problem(
        {"l": np.zeros(())}, {"w": np.ones((60, 60)) / 60}, inner=lambda s, l, t: ((t["w"] @ t["w"] - l["l"]) ** 2).sum(),
        outer=lambda s, l, t: t["w"].sum())
    endless = dict(step=1e-9, steps=2**30)
    assert interrupted(lambda: problem.train(**endless)) < 30
    assert interrupted(lambda: problem.hypergradient("langevin-adjoint", **endless)) < 30
    # Afterwards all goes on as before.
    assert np.isfinite(problem.train(step=1e-9, steps=3).outer_loss)
    assert np.isfinite(problem.hypergradient("langevin-adjoint", step=1e-9, steps=3).value["l"])


def test_a_run_that_has_ended_is_pickled_with_its_page():
    problem = bl.problem(
        {"l": np.zeros(())}, {"w": np.zeros(2)}, inner=lambda s, l, t: ((t["w"] - l["l"]) ** 2).sum(),
        outer=lambda s, l, t: ((t["w"] - 1) ** 2).sum())
    run = problem.run("rmd", step=0.2, steps=10, rate=0.1, iterations=4)
    again = pickle.loads(pickle.dumps(run))
    assert again.lam == run.lam and again.iterations == run.iterations and again.report() == run.report()
    assert repr(again) == repr(run) and not again.is_running
    with pytest.raises(Error, match="state_dict"):
        run.state_dict()
