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


def vit(p, x, y):
    batch, d = x.shape[0], p[0].shape[-1]
    patches = jax.lax.conv_general_dilated(x, p[2], (8, 8), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    patches = patches.reshape(batch, d, -1).swapaxes(1, 2) + p[3]
    x = jnp.concatenate([jnp.broadcast_to(p[0], (batch, 1, d)), patches], 1) + p[1]
    for i in range(4, len(p) - 4, 12):
        b = p[i : i + 12]
        a = layer_norm(x, b[0], b[1]) @ b[2] + b[3]
        q, k, v = a.reshape(batch, -1, 3, 3, d // 3).transpose(2, 0, 3, 1, 4)
        mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (d // 3) ** -0.5) @ v
        x = x + mixed.swapaxes(1, 2).reshape(batch, -1, d) @ b[4] + b[5]
        x = x + jax.nn.gelu(layer_norm(x, b[6], b[7]) @ b[8] + b[9], approximate=False) @ b[10] + b[11]
    return cross_entropy(layer_norm(x, p[-4], p[-3])[:, 0] @ p[-2] + p[-1], y)


def max_pool(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def alexnet(p, x, y):
    for i, (stride, padding, pooled) in enumerate([(4, 5, True), (1, 2, True), (1, 1, False), (1, 1, False), (1, 1, True)]):
        x = jax.lax.conv_general_dilated(
            x, p[2 * i], (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = jax.nn.relu(x + p[2 * i + 1][:, None, None])
        x = max_pool(x) if pooled else x
    return cross_entropy(x.reshape(x.shape[0], -1) @ p[10] + p[11], y)


def strided(x, w, stride=1, groups=1):
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups)


def wide_resnet(p, x, y):
    p = iter(p)
    take = lambda: next(p)
    norm = lambda x: jax.nn.relu(batch_norm(x, take(), take()))
    x = strided(x, take())
    for stride in (1, 2, 2):
        # One block per group, each with a change of channels.
        h = norm(x)
        inside = norm(strided(h, take(), stride))
        inside = strided(inside, take())
        x = strided(h, take(), stride) + inside
    return cross_entropy(norm(x).mean((2, 3)) @ take() + take(), y)


def efficientnet(p, x, y):
    p = iter(p)
    take = lambda: next(p)

    def unit(x, stride=1, depthwise=False):
        x = strided(x, take(), stride, x.shape[1] if depthwise else 1)
        gain, bias, mean, variance = (take()[:, None, None] for _ in range(4))
        return (x - mean) / jnp.sqrt(variance + 1e-3) * gain + bias

    relu6 = lambda x: jnp.clip(x, 0, 6)
    x = relu6(unit(x, 2))
    # The stride of every block, and whether it expands: stages of one, two and two.
    for stride, expands in [(1, False), (2, True), (1, True), (2, True), (1, True)]:
        h = relu6(unit(x)) if expands else x
        h = unit(relu6(unit(h, stride, True)))
        x = x + h if h.shape == x.shape else h
    return cross_entropy(relu6(unit(x)).mean((2, 3)) @ take() + take(), y)


def nerf(p, origins, directions, target):
    depths = 0.5 + 2 * (jnp.arange(8, dtype=origins.dtype) + 0.5) / 8
    points = origins[:, None] + directions[:, None] * depths[:, None]
    angles = points[..., None, :] * (2.0 ** jnp.arange(4, dtype=origins.dtype))[:, None]
    h = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -2).reshape(*points.shape[:2], -1)
    h = jax.nn.relu(jax.nn.relu(h @ p[0] + p[1]) @ p[2] + p[3]) @ p[4] + p[5]
    colour, density = jax.nn.sigmoid(h[..., :3]), jax.nn.softplus(h[..., 3])
    alpha = 1 - jnp.exp(-density * jnp.append(jnp.diff(depths), jnp.asarray(1e-3, origins.dtype)))
    clear = jnp.cumprod(1 - alpha, 1)
    weights = alpha * jnp.concatenate([jnp.ones_like(clear[:, :1]), clear[:, :-1]], 1)
    seen = (weights[..., None] * colour).sum(1) + 1 - weights.sum(1)[:, None]
    return jnp.mean((seen - target) ** 2)


CASES = dict(mlp=mlp, conv64=conv64, vit_block=vit_block, residual=residual, warp=warp, vit=vit, alexnet=alexnet,
             wide_resnet=wide_resnet, efficientnet=efficientnet, nerf=nerf)


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
