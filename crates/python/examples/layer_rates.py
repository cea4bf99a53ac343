"""A learning rate for each layer, in JAX: twenty steps of Adam are all there is time for.

The weights are wₖ = wₖ⁰ + e^λₖ·φₖ with φ = 0 at first. Adam does not see the size of a gradient, so a step γ of φₖ is a step γ·e^λₖ of wₖ.

    python crates/python/examples/layer_rates.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import jax
import jax.numpy as jnp
import numpy as np

WIDTHS, STEP, STEPS = [64, 32, 32, 10], 0.01, 20


def main(picture=None):
    images, labels = bl.digits()
    order = np.random.default_rng(0).permutation(len(labels))
    parts = [{"x": images[rows].astype("f4"), "y": labels[rows]} for rows in np.array_split(order, 3)]
    rng = np.random.default_rng(1)
    start = [(rng.normal(size=(i, o)) / np.sqrt(i)).astype("f4") for i, o in zip(WIDTHS, WIDTHS[1:])]

    def loss(lam, moved, batch):
        first, second, last = (w + jnp.exp(lam[k]) * moved[k] for k, w in enumerate(start))
        scores = jnp.tanh(jnp.tanh(batch["x"] @ first) @ second) @ last
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), batch["y"][:, None], 1).mean()

    problem = bl.jax.problem(
        loss, loss, np.zeros(3, "f4"), [np.zeros_like(w) for w in start], train=parts[0], valid=parts[1], bounds=(-4, 4),
        metrics={"test": lambda lam, moved, _: loss(lam, moved, parts[2])})
    inner = dict(step=STEP, steps=STEPS, inner_optimizer=bl.adam())
    run = problem.run("rmd", cold=True, rate=0.05, iterations=150, progress=False, **inner)
    trained = lambda lam: problem.train(np.asarray(lam, "f4"), record_every=1, **inner)
    single = min((trained(np.full(3, rate)) for rate in np.linspace(-1, 3, 17)), key=lambda found: found.outer_loss)
    own = trained(run.lam)
    print(f"rates {', '.join(f'{STEP * np.exp(rate):.3f}' for rate in run.lam)}")
    print(f"test loss after {STEPS} steps: {single.metrics['test']:.3f} with the best single rate, {own.metrics['test']:.3f} with these")
    if picture:
        curves = [("one rate, best of a grid", single.losses), ("a rate for each layer", own.losses)]
        bl.Plot("Twenty steps of training", "step", "training loss", curves).save(picture)
    return single.metrics["test"], own.metrics["test"]


if __name__ == "__main__":
    main(*sys.argv[1:])
