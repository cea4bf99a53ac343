"""Where training should start, in JAX: after a few steps from λ, a network has learned a sine wave that it had never met.

    python crates/python/examples/initialisation.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import jax
import jax.numpy as jnp
import numpy as np

SIZES, WAVES, STEP, STEPS = [1, 24, 24, 1], 32, 0.03, 5


def network(params, x):
    for i, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        x = jnp.tanh(x) if i + 1 < len(params) else x
    return x


def waves(seed):
    """Ten points of each wave to learn from, and forty to be judged by."""
    rng = np.random.default_rng(seed)
    size, phase = rng.uniform(0.5, 3, (WAVES, 1, 1)), rng.uniform(0, 3, (WAVES, 1, 1))
    x = [rng.uniform(-3, 3, (WAVES, points, 1)) for points in (10, 40)]
    return [{"x": place.astype("f4"), "y": (size * np.sin(place + phase)).astype("f4")} for place in x]


def error(params, wave):
    """The sum over all waves of the mean squared error, each with a network of its own, so each is trained as if it were alone."""
    return ((jax.vmap(network)(params, wave["x"]) - wave["y"]) ** 2).mean((1, 2)).sum()


def problem(seed, lam):
    learn, judge = waves(seed)
    copies = lambda tree: jax.tree_util.tree_map(lambda leaf: jnp.broadcast_to(leaf, (WAVES, *leaf.shape)), tree)
    return bl.jax.problem(
        lambda lam, params, wave: error(params, wave), lambda lam, params, wave: error(params, wave) / WAVES,
        lam, jax.tree_util.tree_map(np.asarray, copies(lam)), train=learn, valid=judge, start=copies)


def main(picture=None):
    rng = np.random.default_rng(0)
    pairs = zip(SIZES, SIZES[1:])
    random = [{"w": rng.normal(size=(i, o)).astype("f4") / np.sqrt(i).astype("f4"), "b": np.zeros(o, "f4")} for i, o in pairs]
    run = problem(0, random).run("rmd", step=STEP, steps=STEPS, rate=0.01, iterations=400, progress=False)
    new = problem(1, random)
    before, after = (new.train(lam, step=STEP, steps=STEPS).outer_loss for lam in (random, run.lam))
    print(f"error on {WAVES} new waves after {STEPS} steps: {before:.2f} from random weights, {after:.2f} from the learned ones")
    if picture:
        run.plot().save(picture)
    return before, after


if __name__ == "__main__":
    main(*sys.argv[1:])
