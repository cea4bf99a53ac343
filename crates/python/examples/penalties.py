"""One penalty for each weight of a network, in JAX: which weights should be small is learned from validation data.

    python crates/python/examples/penalties.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import jax
import jax.numpy as jnp
import numpy as np

FEATURES, USEFUL, ROWS = 30, 5, 60


def data(seed, rows):
    """A logistic regression of which only the first few features say anything."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    slope = np.zeros(FEATURES)
    slope[:USEFUL] = 2.0
    return {"x": x, "y": (rng.uniform(size=rows) < 1 / (1 + np.exp(-x @ slope))).astype(np.float32)}


def error(params, batch):
    logits = batch["x"] @ params["w"] + params["b"]
    return (jax.nn.softplus(logits) - batch["y"] * logits).mean()


def inner(lam, params, train):
    return error(params, train) + (jnp.exp(lam) * params["w"] ** 2).mean()


def outer(lam, params, valid):
    return error(params, valid)


def main(picture=None):
    params = {"w": np.zeros(FEATURES, np.float32), "b": np.zeros((), np.float32)}
    start = np.zeros(FEATURES, np.float32)
    problem = bl.jax.problem(
        inner, outer, start, params, train=data(0, ROWS), valid=data(1, 300), metrics={"test": lambda lam, p, _: error(p, data(2, 3000))},
        bounds=(-8, 8))
    before = problem.train(step=0.3, steps=300)
    run = problem.run("ift-cg", step=0.3, steps=300, rate=0.3, iterations=60, metrics_every=10, progress=False)
    useful, useless = run.lam[:USEFUL].mean(), run.lam[USEFUL:].mean()
    print(f"test loss {before.metrics['test']:.3f} before, {run.metrics['test']:.3f} with learned penalties")
    print(f"mean λ of the features that say something {useful:.2f}, of the others {useless:.2f}")
    if picture:
        run.plot().save(picture)
    return before.metrics["test"], run.metrics["test"], useful, useless


if __name__ == "__main__":
    main(*sys.argv[1:])
