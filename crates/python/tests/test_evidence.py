"""λ judged by the evidence, without an outer loss: Bayesian linear regression, whose evidence has a closed form."""

import bilevel as bl
import numpy as np
import pytest
from bilevel._check import difference
from bilevel.errors import NotApplicableError, ProblemError

ROWS, WIDTH, NOISE = 40, 4, 0.5
LAM = np.array([-1.0, 0.0, 1.0, 2.0])
CHAIN = dict(step=0.002, steps=6000, burn_in=500, temperature=1.0)
PHI = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
Y = PHI @ np.array([2.0, -1.0, 0.3, 0.0]) + NOISE * np.random.default_rng(1).normal(size=ROWS)


def exact(lam=LAM):
    """The slope of −log evidence: with the posterior N(m, S) it is ½·e^λ·(m² + diag S) − ½."""
    precision = np.exp(lam)
    s = np.linalg.inv(PHI.T @ PHI / NOISE**2 + np.diag(precision))
    m = s @ PHI.T @ Y / NOISE**2
    return 0.5 * precision * (m**2 + np.diag(s)) - 0.5


def in_numpy():
    return bl.problem(
        {"log_precision": LAM}, {"w": np.zeros(WIDTH)}, data={"phi": PHI, "y": Y},
        inner=lambda s, lam, params: ((s.phi @ params["w"] - s.y) ** 2).sum() / (2 * NOISE**2)
        + 0.5 * (bl.exp(lam["log_precision"]) * params["w"] ** 2 - lam["log_precision"]).sum())


def in_jax(**more):
    jnp = pytest.importorskip("jax.numpy")

    def inner(lam, params, train):
        prior = 0.5 * (jnp.exp(lam["log_precision"]) * params["w"] ** 2 - lam["log_precision"]).sum()
        return ((train["phi"] @ params["w"] - train["y"]) ** 2).sum() / (2 * NOISE**2) + prior

    return bl.jax.problem(inner, None, {"log_precision": LAM}, {"w": np.zeros(WIDTH)}, train={"phi": PHI, "y": Y}, **more)


def in_torch(**more):
    torch = pytest.importorskip("torch")

    class Prior(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.log_precision = torch.nn.Parameter(torch.from_numpy(LAM.copy()))

        def forward(self, w):
            return 0.5 * (self.log_precision.exp() * w**2 - self.log_precision).sum()

    def inner(out, batch, hyper, params):
        return ((out[:, 0] - batch[1]) ** 2).sum() / (2 * NOISE**2) + hyper(params["weight"][0])

    model = torch.nn.Linear(WIDTH, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    return bl.torch.problem(model, Prior(), inner, None, train=(torch.from_numpy(PHI), torch.from_numpy(Y)), **more)


@pytest.mark.parametrize("made", [in_numpy, in_jax, in_torch])
def test_the_slope_of_the_evidence_is_that_of_the_closed_form(made):
    problem = made()
    assert problem.dtype == "f64"
    found = problem.hypergradient("evidence", **CHAIN)
    value, error = (leaf.flatten() for leaf in (np.asarray(found.value["log_precision"]), np.asarray(found.standard_error["log_precision"])))
    assert (np.abs(value - exact()) < 4 * error).all(), (value, exact(), error)
    # An error bar that covers everything would show nothing.
    assert (error < 0.1 * np.abs(exact()).max()).all(), error


@pytest.mark.parametrize("made", [in_jax, in_torch])
def test_all_front_ends_walk_the_same_chain(made):
    here, there = (problem.hypergradient("evidence", **CHAIN).value["log_precision"] for problem in (in_numpy(), made()))
    assert difference([np.asarray(there)], [np.asarray(here)]) < 1e-10


@pytest.mark.parametrize("made", [in_jax, in_torch])
def test_a_run_ends_where_the_evidence_is_largest(made):
    run = made().run("evidence", **{**CHAIN, "steps": 1500}, optimizer=bl.sgd(), rate=0.5, iterations=60, progress=False)
    found = np.asarray(run.lam["log_precision"]).flatten()
    # A weight that is 0 has no finite precision: the others are compared.
    assert np.abs(exact(found))[:3].max() < 0.05, (found, exact(found))


@pytest.mark.parametrize("made", [in_numpy, in_jax, in_torch])
def test_a_method_that_needs_an_outer_loss_is_refused_with_what_to_do(made):
    with pytest.raises(NotApplicableError, match="evidence"):
        made().hypergradient("rmd", step=0.01, steps=5)
    assert made().methods() == ["evidence"]


def test_rows_to_judge_by_are_refused():
    for given in ({"valid": {"phi": PHI, "y": Y}}, {"held_out": 0.2}, {"split": bl.Split()}):
        with pytest.raises(ProblemError, match=f"{next(iter(given))}=… is for an outer loss"):
            in_jax(**given)
    torch = pytest.importorskip("torch")
    with pytest.raises(ProblemError, match="valid=… is for an outer loss"):
        in_torch(valid=(torch.from_numpy(PHI), torch.from_numpy(Y)))


def test_metrics_see_the_rows_of_valid():
    problem = in_jax(valid={"phi": PHI[:5], "y": Y[:5]}, metrics={"error": lambda lam, params, valid: ((valid["phi"] @ params["w"] - valid["y"]) ** 2).mean()})
    assert problem.losses()["error"] == pytest.approx((Y[:5] ** 2).mean())
