"""A loss function that is itself learned, without a framework: a third of the targets are wrong, always in the same direction.

    python crates/python/examples/learned_loss.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import numpy as np

WIDTHS = [0.5, 1.5, 5.0, 100.0]
START = [-4.0, -4.0, -4.0, 0.0]  # nearly a square


def rows(seed, count, wrong):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, count)
    outlier = rng.uniform(size=count) < wrong
    return x, 2 * x - 1 + np.where(outlier, rng.uniform(4, 8, count), 0.3 * rng.normal(size=count))


def cost(residual, amounts):
    """Squares that are flat beyond their widths, by how much of each there is."""
    square = residual**2
    return sum(bl.log1p(bl.exp(amounts[k])) * (square / (1 + square / width**2)).mean() for k, width in enumerate(WIDTHS))


def main(picture=None):
    (x, y), (clean_x, clean_y) = rows(0, 150, 0.33), rows(1, 40, 0.0)
    problem = bl.problem(
        {"amounts": np.array(START)}, {"offset": np.zeros(()), "slope": np.zeros(())}, data={"x": x, "y": y},
        inner=lambda s, lam, line: cost(s.x * line["slope"] + line["offset"] - s.y, lam["amounts"]),
        outer=lambda s, lam, line: ((line["slope"] * clean_x + line["offset"] - clean_y) ** 2).mean())
    run = problem.run("rmd", step=0.05, steps=200, cold=True, rate=0.1, iterations=150, progress=False)
    squares = problem.train(step=0.05, steps=3000).params
    learned = problem.train(run.lam, step=0.05, steps=3000).params
    print("the data are y = 2.00 x − 1.00")
    for name, line in [("squares", squares), ("learned", learned)]:
        print(f"{name}: {float(line['slope']):.2f} x {float(line['offset']):+.2f}".replace("-", "− ").replace("+", "+ "))
    if picture:
        amounts, r = np.log1p(np.exp(run.lam["amounts"])), np.linspace(0, 8, 161)
        value = sum(a * r**2 / (1 + (r / w) ** 2) for a, w in zip(amounts, WIDTHS))
        bl.Plot("The cost of a residual", "residual", "cost", [("learned", list(zip(r, value)))]).save(picture)
    return squares, learned


if __name__ == "__main__":
    main(*sys.argv[1:])
