"""A ridge regression in JAX, whose hypergradient is known in closed form: three methods beside it.

    python crates/python/examples/ridge.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)


def rows(seed, count):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=count)
    x = np.stack([common + 0.3 * rng.normal(size=count), common + 0.3 * rng.normal(size=count)], 1)
    return {"x": x, "y": x @ np.array([1.0, 0.5]) + 0.8 * rng.normal(size=count)}


def error(params, data):
    return 0.5 * ((data["x"] @ params - data["y"]) ** 2).mean()


def exact(lam, train, valid):
    """The outer loss at the end of training, θ* = (XᵀX/n + e^λ·I)⁻¹·Xᵀy/n."""
    x, y = train["x"], train["y"]
    return error(jnp.linalg.solve(x.T @ x / len(y) + jnp.exp(lam) * jnp.eye(2), x.T @ y / len(y)), valid)


def main(picture=None):
    train, valid = rows(0, 8), rows(1, 40)
    problem = bl.jax.problem(
        lambda lam, params, data: error(params, data) + 0.5 * jnp.exp(lam) * (params**2).sum(),
        lambda lam, params, data: error(params, data),
        np.float64(-7.0), np.zeros(2), train=train, valid=valid, bounds=(-9, 3))
    settings = {"ift-cg": dict(steps=4000), "rmd": dict(steps=4000), "hpo-sgld": dict(steps=20, burn_in=10)}
    grid, slopes, errors = np.linspace(-7, 2, 13), {"closed form": []}, {}
    slope = jax.grad(exact)
    for lam in grid:
        slopes["closed form"].append((lam, float(slope(lam, train, valid))))
        for method, own in settings.items():
            found = float(problem.hypergradient(method, lam=lam, step=0.1, **own).value)
            slopes.setdefault(method, []).append((lam, found))
            errors[method] = max(errors.get(method, 0.0), abs(found - slopes["closed form"][-1][1]))
    for method, largest in errors.items():
        print(f"{method:10} largest error of dF/dλ {largest:.1e}")
    if picture:
        bl.Plot("The hypergradient of a ridge regression", "λ", "dF/dλ", slopes.items()).save(picture)
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:])
