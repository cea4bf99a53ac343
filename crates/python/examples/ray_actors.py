"""Many independent runs as Ray actors: every actor has a core and a problem of its own, and the best run is kept.

    pip install ray
    python crates/python/examples/ray_actors.py
"""

import bilevel as bl
import numpy as np
import ray

ROWS, FEATURES = 60, 12


def problem():
    """Ridge regression with a penalty for each feature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2 * ROWS, FEATURES))
    y = x[:, 0] - 0.5 * x[:, 1] + rng.normal(size=2 * ROWS)

    def error(x, y, w):
        return (((x @ w["w"].reshape((FEATURES, 1))).reshape((ROWS,)) - y) ** 2).mean()

    return bl.problem(
        {"penalty": bl.full((FEATURES,), -3.0, low=-8, high=3)}, {"w": bl.full((FEATURES,))},
        inner=lambda s, lam, w: error(s.x, s.y, w) + (bl.exp(lam["penalty"]) * w["w"] ** 2).sum(),
        outer=lambda s, lam, w: error(s.vx, s.vy, w),
        data={"x": x[:ROWS], "y": y[:ROWS], "vx": x[ROWS:], "vy": y[ROWS:]})


@ray.remote(num_cpus=1)
class Learner:
    """Does one run after the other; the problem is compiled once for each."""

    def __init__(self):
        self.problem = problem()

    def run(self, method, rate):
        run = self.problem.run(method, step=0.1, steps=60, rate=rate, iterations=30, threads=1, progress=False)
        return {"method": method, "rate": rate, "outer_loss": run.outer_loss, "penalty": run.lam["penalty"]}


def main(actors=2):
    asked = [(method, rate) for method in ("langevin-adjoint", "rmd", "ift-cg") for rate in (0.05, 0.2)]
    learners = ray.util.ActorPool([Learner.remote() for _ in range(actors)])
    found = list(learners.map(lambda learner, pair: learner.run.remote(*pair), asked))
    best = min(found, key=lambda run: run["outer_loss"])
    print(f"best of {len(found)}: {best['method']} with rate {best['rate']}, outer loss {best['outer_loss']:.4f}")
    return found, best


if __name__ == "__main__":
    ray.init()
    main()
