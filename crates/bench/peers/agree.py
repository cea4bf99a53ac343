"""Loss, gradient and Hessian-vector product of one case by JAX.

    python agree.py FOLDER CASE

FOLDER holds the parameters p0.npy, p1.npy, ..., the vectors v0.npy, ... and the data x0.npy, ...; loss.npy, g0.npy, ...
and h0.npy, ... are written beside them, in the type of the parameters.
"""
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")


def cross_entropy(logits, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


def conv(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))


def mlp(p, x, y):
    return cross_entropy(jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y)


def conv64(p, x, y):
    h = x
    for w in p[:4]:
        h = jax.nn.relu(conv(h, w))
        n, k, a, b = h.shape
        h = h[:, :, : a // 2 * 2, : b // 2 * 2].reshape(n, k, a // 2, 2, b // 2, 2).max((3, 5))
    return cross_entropy(h.reshape(h.shape[0], -1) @ p[4], y)


def layer_norm(x, gain, bias):
    c = x - x.mean(-1, keepdims=True)
    return c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-6) * gain + bias


def vit_block(p, x):
    batch, tokens, d = x.shape
    a = layer_norm(x, p[0], p[1])
    q, k, v = (a @ p[2] + p[3]).reshape(batch, tokens, 3, 12, d // 12).transpose(2, 0, 3, 1, 4)
    mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (d // 12) ** -0.5) @ v
    x = x + mixed.swapaxes(1, 2).reshape(batch, tokens, d) @ p[4] + p[5]
    o = x + jax.nn.gelu(layer_norm(x, p[6], p[7]) @ p[8] + p[9], approximate=False) @ p[10] + p[11]
    return (o * o).sum() * 1e-6


def batch_norm(x, gain, bias):
    c = x - x.mean((0, 2, 3), keepdims=True)
    scale = 1 / jnp.sqrt((c * c).mean((0, 2, 3), keepdims=True) + 1e-5)
    return c * scale * gain[:, None, None] + bias[:, None, None]


def residual(p, x, y):
    h = jax.nn.relu(batch_norm(conv(x, p[0]), p[1], p[2]))
    h = jax.nn.relu(batch_norm(conv(h, p[3]), p[4], p[5]) + x)
    return cross_entropy(h.mean((2, 3)) @ p[6] + p[7], y)


def grid_sample(image, grid):
    """Bilinear, zero outside; -1 and 1 are the outer borders of the outermost pixels. One image [c, h, w]."""
    _, height, width = image.shape
    column = ((grid[..., 0] + 1) * width - 1) / 2
    row = ((grid[..., 1] + 1) * height - 1) / 2
    left, top = jnp.floor(column), jnp.floor(row)
    total = 0
    for i in (0, 1):
        for j in (0, 1):
            r, c = top + i, left + j
            weight = (1 - jnp.abs(row - r)) * (1 - jnp.abs(column - c))
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            at = image[:, jnp.clip(r, 0, height - 1).astype(int), jnp.clip(c, 0, width - 1).astype(int)]
            total = total + at * jnp.where(inside, weight, 0)
    return total


def warp(p, image, target):
    n, _, height, width = image.shape
    generator = jnp.concatenate([p[0], jnp.zeros((n, 1, 3), p[0].dtype)], 1)
    theta = jax.vmap(jax.scipy.linalg.expm)(generator)[:, :2]
    x = (2 * jnp.arange(width, dtype=image.dtype) + 1) / width - 1
    y = (2 * jnp.arange(height, dtype=image.dtype) + 1) / height - 1
    places = jnp.stack([*jnp.meshgrid(x, y), jnp.ones((height, width), image.dtype)], -1)
    grid = jnp.einsum("nij,hwj->nhwi", theta, places)
    return jnp.mean((jax.vmap(grid_sample)(image, grid) * p[1] - target) ** 2)


CASES = dict(mlp=mlp, conv64=conv64, vit_block=vit_block, residual=residual, warp=warp)


def load(folder, letter):
    arrays = []
    while os.path.exists(path := os.path.join(folder, f"{letter}{len(arrays)}.npy")):
        arrays.append(jnp.asarray(np.load(path)))
    return arrays


def main(folder, case):
    p, v, x = (load(folder, letter) for letter in "pvx")
    loss = lambda p: CASES[case](p, *x)
    # Forward over reverse: another way to the product than the one it is compared with.
    value, gradient = jax.jit(jax.value_and_grad(loss))(p)
    product = jax.jit(lambda p, v: jax.jvp(jax.grad(loss), (p,), (v,))[1])(p, v)
    results = {"loss": value}
    results.update({f"g{i}": array for i, array in enumerate(gradient)})
    results.update({f"h{i}": array for i, array in enumerate(product)})
    for name, array in results.items():
        array = np.asarray(array)
        if array.dtype != p[0].dtype:
            raise TypeError(f"{name} of {case} is {array.dtype}, not {p[0].dtype}")
        # Not ascontiguousarray, which makes a scalar a vector.
        np.save(os.path.join(folder, name + ".npy"), np.array(array, order="C"))


main(*sys.argv[1:])
