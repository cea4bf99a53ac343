"""One run on several processes: the rows of the data are shared out over the ranks of a launcher.

    python crates/python/examples/several_ranks.py
    mpirun -n 2 python crates/python/examples/several_ranks.py
    torchrun --nproc-per-node 2 crates/python/examples/several_ranks.py
"""

import sys

import bilevel as bl
import numpy as np

ROWS, FEATURES = 600, 20


def data(seed):
    """A linear regression of which the first two features say something."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, FEATURES))
    return x, x[:, 0] - 0.5 * x[:, 1] + 0.3 * rng.normal(size=ROWS)


def problem():
    x, y = data(0)
    vx, vy = data(1)

    def error(x, y, w):
        return (((x @ w["w"].reshape((FEATURES, 1))).reshape((ROWS,)) - y) ** 2).mean()

    return bl.problem(
        {"penalty": bl.full((FEATURES,), -3.0, low=-8, high=3)}, {"w": bl.full((FEATURES,))},
        inner=lambda s, lam, w: error(s.x, s.y, w) + (bl.exp(lam["penalty"]) * w["w"] ** 2).sum(),
        outer=lambda s, lam, w: error(s.vx, s.vy, w),
        data={"x": x, "y": y, "vx": vx, "vy": vy})


def main(folder=None):
    with bl.ranks() as ranks:
        run = problem().run(
            "langevin-adjoint", step=0.1, steps=60, rate=0.2, iterations=20, folder=folder, resume=folder is not None, checkpoint_every=1)
        # Every rank has the same λ, to the bit.
        if ranks.rank == 0:
            print(f"{ranks.size} ranks: outer loss {run.outer_loss!r}, penalties {run.lam['penalty'].tolist()!r}")
    return run


if __name__ == "__main__":
    main(*sys.argv[1:])
