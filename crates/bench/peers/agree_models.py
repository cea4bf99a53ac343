"""The models as their papers and timm have them, from leaves by name: p["layers.0.weight"] and so on.

A part of the program agree.py. Matrices are [in, out]; images are [n, c, h, w].
"""
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
# The last line of an error is then the error itself.
os.environ["JAX_TRACEBACK_FILTERING"] = "off"
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")


def below(p, prefix):
    """The leaves whose names begin with a prefix, without it."""
    return {name[len(prefix):]: leaf for name, leaf in p.items() if name.startswith(prefix)}


def listed(p, prefix):
    """The leaves of prefix.0, prefix.1, ..., one dictionary each."""
    found = []
    while part := below(p, f"{prefix}.{len(found)}."):
        found.append(part)
    return found


def cross_entropy(logits, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1))


def mean_square(a, b):
    return jnp.mean((a - b) ** 2)


def affine(p, x):
    y = x @ p["weight"]
    return y + p["bias"] if "bias" in p else y


def conv(x, w, stride=1, padding="SAME", groups=1):
    """Zeros around the image as in TensorFlow ("SAME"), or this many on every side, as in PyTorch."""
    padding = padding if padding == "SAME" else [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups)


def batch_norm(x, gain, bias, mean=None, variance=None, eps=1e-5):
    """With the statistics of the batch, the variance without Bessel's correction, where none are given."""
    each = lambda v: v[:, None, None]
    if mean is None:
        mean = x.mean((0, 2, 3))
        variance = ((x - each(mean)) ** 2).mean((0, 2, 3))
    return (x - each(mean)) / jnp.sqrt(each(variance) + eps) * each(gain) + each(bias)


def layer_norm(x, gain, bias):
    c = x - x.mean(-1, keepdims=True)
    return c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-6) * gain + bias


def max_pool(x):
    n, c, h, w = x.shape
    return x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def perceptron_net(p, x, between=jax.nn.relu):
    *hidden, last = listed(p, "layers")
    for layer in hidden:
        x = between(affine(layer, x))
    return affine(last, x)


def conv4_net(p, x):
    for layer in listed(p, "layers"):
        x = conv(x, layer["conv.weight"], padding=1)
        x = batch_norm(x, layer["norm.weight"], layer["norm.bias"]) if "norm.weight" in layer else x
        x = max_pool(jax.nn.relu(x))
    return affine(below(p, "head."), x.reshape(x.shape[0], -1))


def alexnet_net(p, x):
    """For 32 x 32 pixels: stride 4 in the first layer only; pools after the first two and the last."""
    strides, paddings, pooled = [4, 1, 1, 1, 1], [5, 2, 1, 1, 1], [True, True, False, False, True]
    for layer, stride, padding, pool in zip(listed(p, "features"), strides, paddings, pooled):
        x = conv(x, layer["conv.weight"], stride, padding) + layer["conv.bias"][:, None, None]
        x = max_pool(jax.nn.relu(x)) if pool else jax.nn.relu(x)
    return perceptron_net(below(p, "classifier."), x.reshape(x.shape[0], -1))


def wide_resnet_net(p, x, padding=1, running=False):
    def norm(p, x):
        running_ones = [p["running_mean"], p["running_var"]] if running else []
        return jax.nn.relu(batch_norm(x, p["weight"], p["bias"], *running_ones))

    x = conv(x, p["stem.weight"], padding=padding)
    blocks = listed(p, "blocks")
    for number, block in enumerate(blocks):
        stride = 2 if number in (len(blocks) // 3, 2 * len(blocks) // 3) else 1
        h = norm(below(block, "norm1."), x)
        x = conv(h, block["shortcut.weight"], stride, 0) if "shortcut.weight" in block else x
        h = norm(below(block, "norm2."), conv(h, block["conv1.weight"], stride, padding))
        x = x + conv(h, block["conv2.weight"], padding=padding)
    return affine(below(p, "head."), norm(below(p, "norm."), x).mean((2, 3)))


def efficientnet_net(p, x):
    """tf_efficientnet_lite0: padded as TensorFlow pads, eps 1e-3, ReLU6, no squeeze and excitation, running statistics."""
    def unit(p, x, stride=1, groups=1):
        norm = below(p, "norm.")
        x = conv(x, p["conv.weight"], stride, groups=groups)
        return batch_norm(x, norm["weight"], norm["bias"], norm["running_mean"], norm["running_var"], 1e-3)

    relu6 = lambda x: jnp.clip(x, 0, 6)
    x = relu6(unit(below(p, "stem."), x, 2))
    for first_stride, stage in zip([1, 2, 2, 2, 1, 2, 1], range(7)):
        for number, block in enumerate(listed(p, f"stages.{stage}")):
            expand, depthwise, project = (below(block, part) for part in ("expand.", "depthwise.", "project."))
            h = relu6(unit(expand, x)) if expand else x
            h = relu6(unit(depthwise, h, first_stride if number == 0 else 1, groups=h.shape[1]))
            h = unit(project, h)
            x = x + h if x.shape == h.shape else h
    return affine(below(p, "head."), relu6(unit(below(p, "top."), x)).mean((2, 3)))


def vit_net(p, x, heads):
    kernel = p["patch_embed.proj.weight"]
    n, (d, _, side, _) = x.shape[0], kernel.shape
    patches = conv(x, kernel, side, 0).reshape(n, d, -1).swapaxes(1, 2) + p["patch_embed.proj.bias"]
    x = jnp.concatenate([jnp.broadcast_to(p["cls_token"], (n, 1, d)), patches], 1) + p["pos_embed"]
    for block in listed(p, "blocks"):
        a = affine(below(block, "attn.qkv."), layer_norm(x, block["norm1.weight"], block["norm1.bias"]))
        q, k, v = a.reshape(n, -1, 3, heads, d // heads).transpose(2, 0, 3, 1, 4)
        mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (d // heads) ** -0.5) @ v
        x = x + affine(below(block, "attn.proj."), mixed.swapaxes(1, 2).reshape(n, -1, d))
        h = affine(below(block, "mlp.fc1."), layer_norm(x, block["norm2.weight"], block["norm2.bias"]))
        x = x + affine(below(block, "mlp.fc2."), jax.nn.gelu(h, approximate=False))
    return affine(below(p, "head."), layer_norm(x, p["norm.weight"], p["norm.bias"])[:, 0])


def siren_net(p, x, omega=30.0):
    for layer in listed(p, "layers"):
        x = jnp.sin(omega * affine(layer, x))
    return affine(below(p, "head."), x)


def fourier_net(p, x, frequencies):
    angles = 2 * jnp.pi * (x @ frequencies)
    return perceptron_net(p, jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))


def nerf_field(p, points, highest):
    bands = p["layers.0.weight"].shape[0] // 6
    angles = points[..., None, :] * (2.0 ** jnp.linspace(0, highest, bands))[:, None].astype(points.dtype)
    encoded = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -2).reshape(*points.shape[:-1], -1)
    out = perceptron_net(p, encoded)
    return jax.nn.sigmoid(out[..., :3]), jax.nn.softplus(out[..., 3])


def nerf_colours(p, origins, directions, depths, highest):
    """Rays against white: the light that is left, sample by sample, as a running product."""
    colour, density = nerf_field(p, origins[:, None] + directions[:, None] * depths[..., None], highest)
    last = jnp.full((len(depths), 1), 1e-3, depths.dtype)
    alpha = 1 - jnp.exp(-density * jnp.concatenate([jnp.diff(depths, axis=1), last], 1))
    clear = jnp.cumprod(1 - alpha, 1)
    weights = alpha * jnp.concatenate([jnp.ones_like(clear[:, :1]), clear[:, :-1]], 1)
    return (weights[..., None] * colour).sum(1) + 1 - weights.sum(1)[:, None]


def middles(rays, near, far, samples):
    """Depths in the middles of equal parts, for each of some rays."""
    depths = near + (far - near) * (jnp.arange(samples, dtype=rays.dtype) + 0.5) / samples
    return jnp.broadcast_to(depths, (len(rays), samples))


def alexnet(p, x, y):
    return cross_entropy(alexnet_net(p, x), y)


def logistic(p, x, y):
    return cross_entropy(affine(p, x), y)


def conv4(p, x, y):
    return cross_entropy(conv4_net(p, x), y)


def wide_resnet(p, x, y):
    return cross_entropy(wide_resnet_net(p, x, "SAME"), y)


def wrn_28_10(p, x, y):
    return cross_entropy(wide_resnet_net(p, x), y)


def vit(p, x, y):
    return cross_entropy(vit_net(p, x, 3), y)


def vit_b16(p, x, y):
    return cross_entropy(vit_net(p, x, 12), y)


def efficientnet(p, x, y):
    return cross_entropy(efficientnet_net(p, x), y)


def siren(p, x, colours):
    return mean_square(siren_net(p, x), colours)


def fourier(p, x, colours):
    return mean_square(fourier_net(below(p, "mlp."), x, p["frequencies"]), colours)


def nerf(p, origins, directions, target):
    depths = middles(origins, 0.5, 2.5, 8)
    return mean_square(nerf_colours(below(p, "mlp."), origins, directions, depths, 3.0), target)


def nerf_whole(p, origins, directions, target):
    depths = middles(origins, 2.0, 6.0, 64)
    return mean_square(nerf_colours(below(p, "mlp."), origins, directions, depths, 8.0), target)


NAMED = [alexnet, logistic, conv4, wide_resnet, wrn_28_10, vit, vit_b16, efficientnet, siren, fourier, nerf, nerf_whole]
# EfficientNet-Lite0 in part and whole: one function of other weights.
MODELS = {function.__name__: function for function in NAMED} | {"efficientnet_lite0": efficientnet}


