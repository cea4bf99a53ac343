"""Both losses of the tasks of the deep experiments, from λ, θ, the data, and what was drawn at random.

A part of the program agree.py. Leaves are p["lambda.…"] and p["theta.…"], data x["data.…"], random numbers x["uniform 0"] and
x["normal 0"], rows that were taken from data x["rows of data.…"]. The numbers of the settings are those of the cases.
"""


def taken(x, name):
    """Rows of the data of this name, as they were taken."""
    return x[f"data.{name}"][x[f"rows of data.{name}"]]


def drawn(x, kind, shape=None):
    """Random numbers of a kind, in order; those of one shape where it is given."""
    found = []
    while (name := f"{kind} {len(found)}") in x:
        found.append(x[name])
    return [array for array in found if shape is None or array.shape == tuple(shape)]


def batch(x, part):
    return taken(x, f"{part} x"), taken(x, f"{part} y")


def part_of(level):
    return "train" if level == "inner" else "validation"


def theta_of(p):
    return below(p, "theta.")


def lambda_of(p):
    return below(p, "lambda.")


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


def pixel_centres(height, width, dtype):
    """[height, width, 3]: x to the right, y downwards, 1."""
    x = (2 * jnp.arange(width, dtype=dtype) + 1) / width - 1
    y = (2 * jnp.arange(height, dtype=dtype) + 1) / height - 1
    return jnp.stack([*jnp.meshgrid(x, y), jnp.ones((height, width), dtype)], -1)


# Shifts along x and y, rotation, scales of x and y, shear.
GENERATORS = np.zeros((6, 3, 3))
GENERATORS[0, 0, 2] = GENERATORS[1, 1, 2] = 1
GENERATORS[2, 0, 1], GENERATORS[2, 1, 0] = -1, 1
GENERATORS[3, 0, 0] = GENERATORS[4, 1, 1] = 1
GENERATORS[5, 0, 1] = GENERATORS[5, 1, 0] = 1


def invariance(p, x, level):
    ranges, (images, labels) = p["lambda.ranges"], batch(x, part_of(level))
    n, _, height, width = images.shape
    [draws] = [draw for draw in drawn(x, "uniform") if draw.ndim == 3]
    sum_of = jnp.einsum("k,knv,kij->nvij", ranges, 2 * draws - 1, GENERATORS)
    maps = jax.vmap(jax.vmap(jax.scipy.linalg.expm))(sum_of)
    grids = jnp.einsum("nvij,hwj->nvhwi", maps, pixel_centres(height, width, images.dtype))[..., :2]
    seen = jax.vmap(jax.vmap(grid_sample, (None, 0)))(images, grids)
    train = x["data.train x"]
    seen = (seen - train.mean()) / train.std()
    logits = perceptron_net(theta_of(p), seen.reshape(n, -1, height * width), jnp.tanh).mean(1)
    loss = cross_entropy(logits, labels)
    if level == "inner":
        return loss
    norm = jnp.sqrt((ranges**2).sum() + 1e-12)
    return loss - 0.01 * jnp.minimum(norm, 10)


def invariance_mnist(p, x, level):
    return invariance(p, x, level)


def penalised(p, loss, level):
    """With λ times |θ|, each λ for all weights it can be stretched to."""
    if level == "outer":
        return loss
    return loss + sum((strength * jnp.abs(p[f"theta.{name}"])).sum() for name, strength in lambda_of(p).items())


def l1_mlp(p, x, level):
    images, labels = batch(x, part_of(level))
    return penalised(p, cross_entropy(perceptron_net(theta_of(p), images.reshape(len(images), -1)), labels), level)


def l1_by_weight(p, x, level):
    return l1_mlp(p, x, level)


def l1_by_filter(p, x, level):
    return l1_mlp(p, x, level)


def l1_efficientnet(p, x, level):
    images, labels = batch(x, part_of(level))
    net = {**theta_of(p), **below(x, "frozen.")}
    return penalised(p, cross_entropy(efficientnet_net(net, images), labels), level)


def taylor(coefficients, probabilities, y):
    """TaylorGLO's polynomial of third order."""
    c, q = coefficients, probabilities - coefficients[1]
    o = jax.nn.one_hot(y, probabilities.shape[1], dtype=probabilities.dtype) - coefficients[0]
    terms = [c[2] * q, c[3] * q**2 / 2, c[4] * q**3 / 6, c[5] * q * o, c[6] * q**2 * o / 2, c[7] * q * o**2 / 2]
    return -sum(terms).sum(1).mean() / probabilities.shape[1]


def learned(p, logits, labels, level):
    if level == "outer":
        return cross_entropy(logits, labels)
    return taylor(p["lambda.coefficients"], jax.nn.softmax(logits), labels)


def learned_loss(p, x, level):
    images, labels = batch(x, part_of(level))
    return learned(p, perceptron_net(theta_of(p), images.reshape(len(images), -1)), labels, level)


def photographs(x, level):
    """In training moved by up to four pixels and mirrored at random."""
    images, labels = batch(x, part_of(level))
    if level == "outer":
        return images, labels
    n, c, side, _ = images.shape
    down, right, mirror = drawn(x, "uniform", (n,))[-3:]
    padded = jnp.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    cut = lambda image, i, j: jax.lax.dynamic_slice(image, (0, i, j), (c, side, side))
    moved = jax.vmap(cut)(padded, jnp.floor(down * 9).astype(int), jnp.floor(right * 9).astype(int))
    return jnp.where((mirror < 0.5)[:, None, None, None], moved[..., ::-1], moved), labels


def learned_loss_alexnet(p, x, level):
    images, labels = photographs(x, level)
    return learned(p, alexnet_net(theta_of(p), images), labels, level)


def learned_loss_wrn(p, x, level):
    images, labels = photographs(x, level)
    # Statistics are no parameters: nothing is derived by them.
    net = {name: jax.lax.stop_gradient(leaf) if "running" in name else leaf for name, leaf in theta_of(p).items()}
    return learned(p, wide_resnet_net(net, images, running=level == "outer"), labels, level)


WAYS, SHOTS, QUERIES, TASKS_AT_ONCE, PARTICLES = 5, 2, 2, 2, 3


def episode(x, level):
    """Images [tasks, n, c, h, w] of the support or of the queries, and their labels, class by class."""
    each = SHOTS if level == "inner" else QUERIES
    labels = jnp.tile(jnp.repeat(jnp.arange(WAYS), each), (TASKS_AT_ONCE, 1))
    return taken(x, "learn"), labels


def few_shot(p, x, level):
    images, labels = episode(x, level)
    each = jax.vmap(lambda net, images, labels: cross_entropy(conv4_net(net, images), labels))
    losses = each(below(p, "theta.network."), images, labels)
    return losses.sum() if level == "inner" else losses.mean()


def few_shot_abml(p, x, level):
    images, labels = episode(x, level)
    mean, spread = below(p, "theta.network."), below(p, "theta.log_spread.")
    net = {name: mean[name] + jnp.exp(spread[name]) * draw for name, draw in zip(mean, drawn(x, "normal"), strict=True)}
    each = jax.vmap(lambda net, images, labels: cross_entropy(conv4_net(net, images), labels))
    losses = each(net, images, labels)
    if level == "outer":
        return losses.mean()
    prior_mean, prior_spread = below(p, "lambda.network."), below(p, "lambda.log_spread.")
    divergence = 0
    for name in mean:
        a, b = jnp.exp(spread[name]), jnp.exp(prior_spread[name])
        divergence += (jnp.log(b / a) + (a**2 + (mean[name] - prior_mean[name]) ** 2) / (2 * b**2) - 0.5).sum()
    return losses.sum() + 1e-4 * divergence


def few_shot_bmaml(p, x, level):
    """Stein's direction as the slope of a loss that is linear in θ, of the value of the particles' own loss."""
    images, labels = episode(x, level)
    nets = {name: leaf.reshape(TASKS_AT_ONCE, PARTICLES, *leaf.shape[1:]) for name, leaf in below(p, "theta.network.").items()}
    logits = jax.vmap(jax.vmap(conv4_net, (0, None)))(nets, images)
    if level == "outer":
        probabilities = jax.nn.softmax(logits).mean(1)
        return -jnp.log(jnp.take_along_axis(probabilities, labels[..., None], -1)).mean()

    stop = jax.lax.stop_gradient

    def of_task(particles, images, labels):
        own = lambda net: cross_entropy(conv4_net(net, images), labels)
        values, slopes = jax.vmap(jax.value_and_grad(own))(stop(particles))
        flat = lambda tree: jnp.concatenate([leaf.reshape(PARTICLES, -1) for leaf in tree.values()], 1)
        theta, slope = stop(flat(particles)), stop(flat(slopes))
        apart = theta[:, None] - theta[None]
        squares = (apart**2).sum(-1)
        width = squares.sum() / (PARTICLES * (PARTICLES - 1) * np.log(PARTICLES)) + 1e-12
        kernel = jnp.exp(-squares / width)
        direction = (-kernel @ slope + (2 / width) * (kernel[..., None] * apart).sum(1)) / PARTICLES
        linear = -(flat(particles) * direction).sum()
        return stop(values.sum()) + linear - stop(linear)

    return jax.vmap(of_task)(nets, images, labels).sum()


def few_shot_protonet(p, x, level):
    _, labels = episode(x, "outer")
    embedded = jax.vmap(lambda images: conv4_net(below(p, "lambda.network."), images))(taken(x, "learn"))
    support, queries = jnp.split(embedded, [WAYS * SHOTS], 1)
    prototypes = p["theta.prototypes"]
    if level == "inner":
        support = support.reshape(TASKS_AT_ONCE, WAYS, SHOTS, -1)
        return 0.5 * ((prototypes[:, :, None] - support) ** 2).sum(-1).mean(-1).sum()
    return cross_entropy(-((queries[:, :, None] - prototypes[:, None]) ** 2).sum(-1), labels)


def together(p, errors, level):
    """The sum of the signals' errors; of the outer loss the mean, with ‖λ − θ‖² where θ does not move, weighted by one half."""
    if level == "inner":
        return errors.sum()
    nets, away = theta_of(p), 0
    for name, start in lambda_of(p).items():
        away += ((start - jax.lax.stop_gradient(nets[name])) ** 2).sum()
    return errors.mean() + 0.5 * away / len(errors)


def images_siren(p, x, level):
    seen = jax.vmap(lambda net: siren_net(net, x["data.coordinates"], 60.0) + 0.5)(below(p, "theta.0."))
    return together(p, ((seen - taken(x, "colours")) ** 2).mean((1, 2)), level)


def images_fourier(p, x, level):
    frequencies = x["data.frequencies"]
    seen = jax.vmap(lambda net: fourier_net(net, x["data.coordinates"], frequencies) + 0.5)(below(p, "theta.0."))
    return together(p, ((seen - taken(x, "colours")) ** 2).mean((1, 2)), level)


def views_nerf(p, x, level):
    """Cameras look along -z of their own axes: 9 numbers of the rotation, 3 of the place, and the slope at the border."""
    camera, place, colours = (taken(x, name) for name in ("cameras", "coordinates", "colours"))
    right, down = (camera[:, 12] * place[:, i] for i in (0, 1))
    own = jnp.stack([right, -down, -jnp.ones_like(right)], -1)
    directions = jnp.einsum("rij,rj->ri", camera[:, :9].reshape(-1, 3, 3), own)
    [jitter] = drawn(x, "uniform", (len(camera), 64))
    depths = 2.5 + (5.5 - 2.5) * (jnp.arange(64) + jitter) / 64
    nets = below(p, "theta.0.mlp.")
    tasks = nets["layers.0.weight"].shape[0]
    each = lambda array: array.reshape(tasks, -1, *array.shape[1:])
    render = jax.vmap(lambda net, *rays: nerf_colours(net, *rays, 8.0))
    seen = render(nets, each(camera[:, 9:12]), each(directions), each(depths))
    return together(p, ((seen - each(colours)) ** 2).mean((1, 2)), level)


TASKS = [invariance, l1_by_weight, l1_by_filter, learned_loss, few_shot, few_shot_abml, few_shot_bmaml, few_shot_protonet,
         images_siren, images_fourier, views_nerf, invariance_mnist, l1_efficientnet, learned_loss_alexnet, learned_loss_wrn]


