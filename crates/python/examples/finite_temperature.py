"""A noisy inner loop in a double well, without a framework: the derivative of a mean over where the chain is.

In one dimension a quadrature knows it exactly. The Langevin adjoint estimates it, and the paper's recursion does not.

    python crates/python/examples/finite_temperature.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import numpy as np

TEMPERATURE, STEP = 0.3, 0.02


def exact(lam):
    """F(λ) = E[(θ − 1)² + 2λ²] under exp(−L_T/τ), by a sum over a grid wide enough that the density is 0 at its ends."""
    x = np.linspace(-4, 4, 4001)
    weight = np.exp(-((x**2 - 1) ** 2 / 4 - lam * x) / TEMPERATURE)
    return (weight * ((x - 1) ** 2 + 2 * lam**2)).sum() / weight.sum()


def estimate(lam, method, count, **loop):
    """The mean of hypergradients in a row along each of four chains."""
    found = []
    for chain in range(4):
        problem = bl.problem(
            {"tilt": np.array(lam)}, {"x": np.zeros(())},
            inner=lambda s, lam, at: (at["x"] ** 2 - 1) ** 2 / 4 - lam["tilt"] * at["x"],
            outer=lambda s, lam, at: (at["x"] - 1) ** 2 + 2 * lam["tilt"] ** 2)
        for i in range(count):
            h = problem.hypergradient(method, seed=1000 * chain + i, warm=i > 0, step=STEP, temperature=TEMPERATURE, **loop)
            if i >= count // 10:
                found.append(float(h.value["tilt"]))
    return np.mean(found)


def main(picture=None):
    at = np.linspace(-0.6, 0.6, 5)
    slope = lambda lam: (exact(lam + 1e-4) - exact(lam - 1e-4)) / 2e-4
    rows = [(lam, slope(lam), estimate(lam, "langevin-adjoint", 80, steps=4000), estimate(lam, "hpo-sgld", 200, steps=100, burn_in=50))
            for lam in at]
    print("    λ  quadrature  langevin-adjoint  hpo-sgld")
    for lam, truth, adjoint, paper in rows:
        print(f"{lam:5.1f} {truth:11.2f} {adjoint:17.2f} {paper:9.2f}")
    if picture:
        grid = np.linspace(-0.6, 0.6, 121)
        curves = [("quadrature", [(lam, slope(lam)) for lam in grid]), ("langevin-adjoint", [(r[0], r[2]) for r in rows]),
                  ("hpo-sgld", [(r[0], r[3]) for r in rows])]
        bl.Plot("The hypergradient of a double well", "λ", "dF/dλ", curves).save(picture)
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
