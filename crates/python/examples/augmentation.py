"""How much augmentation, in JAX: two amplitudes are learned through training and through the augmentation itself.

    python crates/python/examples/augmentation.py [PICTURE.svg]
"""

import sys

import bilevel as bl
import jax
import jax.numpy as jnp
import numpy as np

MET = {"pixels": 0.8, "radians": 0.35}
row, column = np.meshgrid(np.arange(8.0), np.arange(8.0), indexing="ij")


def moved(images, shift, turn):
    """Each image, shifted by pixels and rotated by radians, with bilinear interpolation."""
    cos, sin = jnp.cos(turn)[:, None, None], jnp.sin(turn)[:, None, None]
    r, c = row - 3.5, column - 3.5
    from_row = cos * r - sin * c + 3.5 + shift[:, 0, None, None]
    from_column = sin * r + cos * c + 3.5 + shift[:, 1, None, None]
    hat = lambda at: jax.nn.relu(1 - jnp.abs(at[..., None] - jnp.arange(8.0)))
    return jnp.einsum("nijr,nijc,nrc->nij", hat(from_row), hat(from_column), images)


def augmented(key, images, pixels, radians):
    shift, turn = jax.random.split(key)
    return moved(images, pixels * jax.random.normal(shift, (len(images), 2)), radians * jax.random.normal(turn, (len(images),)))


def logits(params, x):
    return jax.nn.relu(x.reshape(len(x), 64) @ params["w"] + params["b"]) @ params["v"]


def cross_entropy(params, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(params, x)), y[:, None], 1).mean()


def main(picture=None):
    images, labels = bl.digits()
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].reshape(-1, 8, 8).astype("f4"), labels[order]
    met = np.asarray(augmented(jax.random.key(1), images[300:], **MET), "f4")
    half = 300 + len(met) // 2

    def inner(lam, params, train, key):
        x = augmented(key, train["x"], jnp.exp(lam["pixels"]), jnp.exp(lam["radians"]))
        return cross_entropy(params, x, train["y"]) + 1e-3 * sum((p**2).sum() for p in params.values())

    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(64, 24)).astype("f4") / 8, "b": np.zeros(24, "f4"), "v": rng.normal(size=(24, 10)).astype("f4") / 5}
    start = {"pixels": np.float32(np.log(0.1)), "radians": np.float32(np.log(0.05))}
    problem = bl.jax.problem(
        inner, lambda lam, params, valid: cross_entropy(params, valid["x"], valid["y"]), start, params, batch_size=50,
        train={"x": images[:300], "y": labels[:300]}, valid={"x": met[: half - 300], "y": labels[300:half]})
    run = problem.run("rmd", step=0.3, steps=60, rate=0.08, iterations=60, progress=False)

    def accuracy(lam):
        found = problem.train(lam, step=0.3, steps=1500).params
        return float((logits(found, met[half - 300:]).argmax(1) == labels[half:]).mean())

    before, after = accuracy(start), accuracy(run.lam)
    learned = {name: float(np.exp(value)) for name, value in run.lam.items()}
    print(", ".join(f"{name}: {value:.2f} learned, {MET[name]} in the data" for name, value in learned.items()))
    print(f"accuracy on digits as they are met: {before:.1%} with almost no augmentation, {after:.1%} with the learned one")
    if picture:
        run.plot().save(picture)
    return before, after, learned


if __name__ == "__main__":
    main(*sys.argv[1:])
