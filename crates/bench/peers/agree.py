"""Loss, gradient and Hessian-vector product of one case by JAX. After agree_models.py and agree_tasks.py, one program with them:

    python agree.py FOLDER CASE [inner|outer]

FOLDER/names.txt has a line "FILE<tab>NAME" for each array that goes in: the parameters p0.npy, p1.npy, ..., the vectors v0.npy,
..., and all else, x0.npy, ...; loss.npy, g0.npy, ... and h0.npy, ... are written beside them, in the type of the parameters.
"""


def mlp(p, x, y):
    return cross_entropy(jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y)


def conv64(p, x, y):
    h = x
    for w in p[:4]:
        h = max_pool(jax.nn.relu(conv(h, w)))
    return cross_entropy(h.reshape(h.shape[0], -1) @ p[4], y)


def vit_block(p, x):
    batch, tokens, d = x.shape
    a = layer_norm(x, p[0], p[1])
    q, k, v = (a @ p[2] + p[3]).reshape(batch, tokens, 3, 12, d // 12).transpose(2, 0, 3, 1, 4)
    mixed = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (d // 12) ** -0.5) @ v
    x = x + mixed.swapaxes(1, 2).reshape(batch, tokens, d) @ p[4] + p[5]
    o = x + jax.nn.gelu(layer_norm(x, p[6], p[7]) @ p[8] + p[9], approximate=False) @ p[10] + p[11]
    return (o * o).sum() * 1e-6


def residual(p, x, y):
    h = jax.nn.relu(batch_norm(conv(x, p[0]), p[1], p[2]))
    h = jax.nn.relu(batch_norm(conv(h, p[3]), p[4], p[5]) + x)
    return cross_entropy(h.mean((2, 3)) @ p[6] + p[7], y)


def warp(p, image, target):
    n, _, height, width = image.shape
    generator = jnp.concatenate([p[0], jnp.zeros((n, 1, 3), p[0].dtype)], 1)
    theta = jax.vmap(jax.scipy.linalg.expm)(generator)[:, :2]
    grid = jnp.einsum("nij,hwj->nhwi", theta, pixel_centres(height, width, image.dtype))
    return mean_square(jax.vmap(grid_sample)(image, grid) * p[1], target)


PARTS = [mlp, conv64, vit_block, residual, warp]


def load(folder):
    """Parameters and all else by name, and the vectors in the order of the parameters."""
    arrays = {"p": {}, "v": {}, "x": {}}
    with open(os.path.join(folder, "names.txt"), encoding="utf-8") as lines:
        for line in lines:
            file, name = line.rstrip("\n").split("\t")
            arrays[file[0]][name] = jnp.asarray(np.load(os.path.join(folder, file + ".npy")))
    return arrays["p"], dict(zip(arrays["p"], arrays["v"].values(), strict=True)), arrays["x"]


def main(folder, case, *level):
    p, v, x = load(folder)
    of = (MODELS | {function.__name__: function for function in PARTS + TASKS})[case]
    names, dtype = list(p), next(iter(p.values())).dtype

    def loss(p):
        # JAX sorts dictionaries by name.
        p = {name: p[name] for name in names}
        if of in PARTS:
            return of(list(p.values()), *x.values())
        return of(p, *x.values()) if case in MODELS else of(p, x, *level)

    # Forward over reverse: another way to the product than the one it is compared with.
    both = jax.jit(lambda p, v: jax.jvp(jax.value_and_grad(loss), (p,), (v,)))
    (value, gradient), (_, product) = both(p, v)
    results = {"loss": value}
    results.update({f"g{i}": gradient[name] for i, name in enumerate(names)})
    results.update({f"h{i}": product[name] for i, name in enumerate(names)})
    for name, array in results.items():
        array = np.asarray(array)
        if array.dtype != dtype:
            raise TypeError(f"{name} of {case} is {array.dtype}, not {dtype}")
        # Not ascontiguousarray, which makes a scalar a vector.
        np.save(os.path.join(folder, name + ".npy"), np.array(array, order="C"))


main(*sys.argv[1:])
