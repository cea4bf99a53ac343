"""How smooth a curve should be, without a framework and without validation rows: the precision of a prior, chosen by the evidence.

The model is linear, so the evidence has a closed form: y ~ N(0, S) with S = σ²·I + e^−λ·Φ·Φᵀ.

    python crates/python/examples/evidence.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import numpy as np

ROWS, BUMPS, NOISE = 14, 20, 0.3


def features(x):
    """Bumps of one width, side by side."""
    return np.exp(-0.5 * ((x[:, None] - np.linspace(0, 10, BUMPS)) / 0.6) ** 2)


def truth(x):
    return np.sin(x) + 0.3 * x


def exact(lam, phi, y):
    """−log evidence without its constant."""
    s = NOISE**2 * np.eye(len(y)) + np.exp(-lam) * phi @ phi.T
    return 0.5 * y @ np.linalg.solve(s, y) + 0.5 * np.linalg.slogdet(s)[1]


def main(picture=None):
    x = 10 * (np.arange(ROWS) + 0.5) / ROWS
    y = truth(x) + NOISE * np.random.default_rng(0).normal(size=ROWS)
    phi = features(x)
    problem = bl.problem(
        {"log_precision": bl.full((), 5.0, low=-10, high=8)}, {"w": np.zeros(BUMPS)}, data={"phi": phi, "y": y},
        # −log of the likelihood times the prior, whose normaliser is what holds λ back.
        inner=lambda s, lam, params: ((s.phi @ params["w"] - s.y) ** 2).sum() / (2 * NOISE**2)
        + 0.5 * bl.exp(lam["log_precision"]) * (params["w"] ** 2).sum() - 0.5 * BUMPS * lam["log_precision"])
    run = problem.run(
        "evidence", step=0.005, steps=2000, burn_in=100, temperature=1.0, rate=0.2, schedule=bl.cosine(150), iterations=150,
        progress=False)
    grid = np.linspace(-6, 6, 2001)
    best = grid[np.argmin([exact(lam, phi, y) for lam in grid])]
    learned = float(run.lam["log_precision"])
    print(f"λ with the largest evidence: {best:.2f} in closed form, {learned:.2f} learned along the chain")
    if picture:
        at = np.linspace(0, 10, 201)
        curves = [("the truth", list(zip(at, truth(at))))]
        for name, lam in [("learned", learned), ("almost no prior", -9.0)]:
            w = np.linalg.solve(phi.T @ phi / NOISE**2 + np.exp(lam) * np.eye(BUMPS), phi.T @ y / NOISE**2)
            curves.append((name, list(zip(at, features(at) @ w))))
        bl.Plot("A curve through fourteen rows, smoothed by the evidence", "x", "y", curves).save(picture)
    return best, learned


if __name__ == "__main__":
    main(*sys.argv[1:])
