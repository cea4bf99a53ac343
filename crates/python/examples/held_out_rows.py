"""Many penalties overfit the rows that choose them, without a framework: rows that no method sees show from which iteration on.

    python crates/python/examples/held_out_rows.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import numpy as np


def main(picture=None):
    images, labels = bl.digits()
    split = bl.Split(train=100, validation=60, held_out=60, test=1000, seed=1, labels=labels)
    problem = bl.problem(
        {"log_strength": bl.full((64, 10), -5.0, low=-12, high=1)}, {"w": np.zeros((64, 10))}, dtype="f32",
        table={"x": images.astype("f4"), "y": np.eye(10, dtype="f4")[labels]}, split=split,
        inner=lambda s, lam, params: losses(s, params).mean() + (bl.exp(lam["log_strength"]) * params["w"] ** 2).sum(),
        outer=lambda s, lam, params: losses(s, params))
    run = problem.run("langevin-adjoint", step=0.4, steps=100, rate=0.1, iterations=200, progress=False)
    print(run.guard["sentence"])
    found = problem.baselines(run, step=0.4, steps=3000)
    print(found)
    if picture:
        run.plot().save(picture)
    return run, found


def losses(s, params):
    """The cross entropy of each row; targets are rows with a 1."""
    return -(bl.nn.log_softmax(s.x @ params["w"]) * s.y).sum(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
