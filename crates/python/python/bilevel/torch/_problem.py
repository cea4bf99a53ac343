"""`bilevel.torch.problem`: a model, hyperparameters and two losses become a problem."""

import contextlib
import inspect

import numpy as np
import torch
from torch import nn

from .._build import engine_array
from .._check import Reference
from .._judged import trace_for
from .._problem import Leaves, Parts, Problem, bounds_of, without_rows_to_judge_by
from .._rows import divided
from .._stream import Stream, is_stream
from ..errors import DataError, ProblemError, ShapeError
from ._lower import array_of, export, lower

#: What the engine's types are in NumPy.
_WIDTHS = {"f32": np.float32, "f64": np.float64, "i32": np.int32}


class TorchLeaves(Leaves):
    """Parameters and buffers by their names in the model's `state_dict`."""

    def tree(self, arrays):
        return {name: torch.from_numpy(np.array(a)) for name, a in zip(self.names, arrays, strict=True)}

    def flatten(self, tree):
        return [leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf for leaf in super().flatten(tree)]


class TorchProblem(Problem):
    """A problem whose parameters are those of a PyTorch model."""

    _tied = {}

    def __getstate__(self):
        return {**super().__getstate__(), "tied": self._tied}

    def __setstate__(self, state):
        super().__setstate__(state)
        self._tied = state["tied"]

    def state_dict(self, run_or_params):
        """The parameters and buffers of a run, to be loaded into the model by `load_state_dict(…, strict=False)`; tied weights included."""
        params = getattr(run_or_params, "params", run_or_params)
        return {name: params[own] for name, own in self._tied.items() if own in params}


class _Loss(nn.Module):
    """A loss as a module, to be exported."""

    def __init__(self, model, hyper, loss, forward):
        super().__init__()
        self.model, self.hyper = model, hyper
        self.loss, self.apply_model = [loss], [forward]

    def forward(self, *batch):
        out = self.apply_model[0](self.model, batch)
        params = dict(self.model.named_parameters())
        return call(self.loss[0], out, batch, self.hyper, params)


def call(loss, out, batch, hyper, params):
    """A loss takes (out, batch), and if it wants more, the hyperparameters' module and the parameters by name."""
    count = len([p for p in inspect.signature(loss).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    return loss(*(out, batch, hyper, params)[: max(2, min(count, 4))])


def first_of_batch(model, batch):
    return model(batch[0])


def tensors(data, what):
    """A tuple of tensors: from tensors, arrays, or a dataset of examples."""
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (tuple, list, dict)):
        if isinstance(data, torch.Tensor):
            data = (data,)
        elif isinstance(data, np.ndarray):
            data = (torch.from_numpy(data),)
        else:  # A dataset.
            columns = zip(*(row if isinstance(row, (tuple, list)) else (row,) for row in (data[i] for i in range(len(data)))))
            data = tuple(torch.stack([torch.as_tensor(v) for v in column]) for column in columns)
    out = tuple(torch.as_tensor(v) for v in data)
    for i, tensor in enumerate(out):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DataError(f"{what}[{i}] has numbers that are not finite; remove such rows or replace them")
    return out


def storage(parameter, name):
    """What two names of one parameter have in common."""
    return (parameter.data_ptr(), tuple(parameter.shape), str(parameter.device)) if parameter.numel() else name


def first_names(module):
    """By every name of a parameter, the first one: tied weights have several."""
    first, names = {}, {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(storage(parameter, name), name)
    return names


class _Modules:
    """The model and the module of hyperparameters: what is learned, trained, frozen or carried, and its names."""

    def __init__(self, model, hyper, forward):
        self.model, self.hyper, self.forward = model, hyper, forward
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.tied, own = first_names(model), first_names(hyper)
        theta, lam = dict(model.named_parameters(remove_duplicate=False)), dict(hyper.named_parameters(remove_duplicate=False))
        #: λ: parameters of `hyper` that are not learned are constants.
        self.lam = {n: p for n, p in lam.items() if own[n] == n and p.requires_grad}
        self.theta = {n: p for n, p in theta.items() if self.tied[n] == n}
        if not self.lam:
            raise ProblemError("the module of hyperparameters has no parameter that requires a gradient, and these are what is learned")
        places = {storage(p, n): n for n, p in self.theta.items()}
        for n, p in self.lam.items():
            if storage(p, ("hyper", n)) in places:
                raise ProblemError(f"'{n}' of the hyperparameters is also the parameter '{places[storage(p, n)]}' of the model; copy it")
        self.names = {f"model.{n}": f"theta/{self.tied[n]}" for n in theta}
        self.names |= {f"hyper.{n}": f"lambda/{own[n]}" for n in lam if own[n] in self.lam}
        f64 = any(p.dtype == torch.float64 for p in [*self.lam.values(), *self.theta.values()])
        self.dtype = "f64" if f64 else "f32"
        self.statistics = {}

    def carry(self, program):
        """Notes the buffers that the training loss changes: running statistics."""
        changed = [spec.target for spec in program.graph_signature.output_specs if spec.kind.name == "BUFFER_MUTATION"]
        buffers = dict(self.model.named_buffers())
        for target in sorted(t for t in changed if program.state_dict[t].is_floating_point()):
            name = target.removeprefix("model.")
            self.statistics[name] = buffers[name]
            self.names[target] = f"theta/{name}"

    def role(self, name):
        if name in self.statistics:
            return "statistic"
        return "trained" if self.theta[name].requires_grad else "frozen"

    def arrays(self, tensors_):
        return {n: np.require(array_of(p).astype(_WIDTHS[self.dtype]), requirements="C") for n, p in tensors_.items()}

    @contextlib.contextmanager
    def mode(self, training):
        """In training or evaluation mode, and afterwards with the mode and buffers of before."""
        was, buffers = self.model.training, {n: b.clone() for n, b in self.model.named_buffers()}
        self.model.train(training)
        try:
            yield
        finally:
            self.model.train(was)
            with torch.no_grad():
                for n, b in self.model.named_buffers():
                    b.copy_(buffers[n])


class _Level:
    """One of the two losses: its data, its exported program and what that is lowered to."""

    def __init__(self, name, modules, loss, data, size, training, table=None, copy=True):
        self.name, self.modules, self.loss, self.training, self.size, self.table = name, modules, loss, training, size, table
        self.level = "inner" if name == "train" else "outer"
        self.stream, self.copy = None, copy
        if is_stream(data):
            if size is not None:
                raise ProblemError(f"the batches of {name} come from a loader, so their size is its own; leave out batch_size")
            self.stream = Stream(data, lambda batch: numbered(batch, name), name)
            data = tensors(as_tuple(self.stream.first), name)
        self.tensors = data
        if size is not None and any(t.shape[:1] < (size,) for t in data):
            raise DataError(f"{name} has fewer rows than a minibatch of {size}")
        self.prefix = f"{'data' if size is None else 'batch'}/{name if table is None else 'rows'}"
        self.show(data if size is None else [t[:size] for t in data])

    def show(self, batch):
        """Takes these rows to be traced with."""
        self.batch = tuple(t.to(self.modules.device) for t in batch)
        counts = {t.shape[0] if t.dim() else 0 for t in batch}
        #: How many rows the loss sees, if all tensors have as many.
        self.count = counts.pop() if len(counts) == 1 else 0
        with self.modules.mode(self.training):
            module = _Loss(self.modules.model, self.modules.hyper, self.loss, self.modules.forward)
            module.training = self.training
            self.program = export(module, self.batch)
        return self

    @property
    def data(self):
        own = {} if self.table is not None or self.stream else {f"{self.name}/{i}": array_of(t, self.copy) for i, t in enumerate(self.tensors)}
        return own | self.constants

    def is_row_by_row(self, value):
        """Whether a result has one number for each row."""
        return self.level == "outer" and self.size is None and self.count > 0 and list(getattr(value, "shape", [])) == [self.count]

    def lower(self, prefix=None):
        """The traced function of the loss, and its constants."""
        inputs = [f"{self.prefix}/{i}" for i in range(len(self.batch))]
        found = lower(self.program, self.modules.names, inputs, f"{prefix or self.name} const")
        by_row = len(found.outputs) == 1 and self.is_row_by_row(found.outputs[0])
        if len(found.outputs) != 1 or not by_row and list(found.outputs[0].shape) not in ([], [1]):
            shapes = [list(getattr(o, "shape", [])) for o in found.outputs]
            raise ProblemError(f"the {self.level} loss must return one number, but returns {shapes}")
        outputs = [("rows" if by_row else "loss", found.outputs[0])]
        if self.level == "inner":
            changed = {t.removeprefix("model."): v for t, v in found.updates.items()}
            outputs += [(f"update/{n}", v) for n, v in changed.items() if n in self.modules.statistics]
        self.function, self.constants = found.builder.graph.function(outputs), found.builder.constants
        return self.function

    def reference(self, theta, lam):
        """The loss as PyTorch computes it, for the check: by λ and by what is trained."""
        modules = self.modules
        inputs = {f"theta/{n}": v for n, v in theta.items()} | {f"lambda/{n}": v for n, v in lam.items()}
        inputs |= {f"{self.prefix}/{i}": array_of(t) for i, t in enumerate(self.batch)} | {f"data/{n}": v for n, v in self.constants.items()}
        expected = {n: t for n, _, t in self.function.inputs}
        inputs = {n: v.astype(_WIDTHS[expected[n]]) if n in expected else v for n, v in inputs.items()}
        trained = {n: p for n, p in modules.theta.items() if p.requires_grad}
        variables = [f"lambda/{n}" for n in modules.lam] + [f"theta/{n}" for n in trained]
        leaves = [*modules.lam.values(), *trained.values()]

        def original(vectors):
            # Only the plain form of attention has second derivatives in PyTorch.
            from torch.nn.attention import SDPBackend, sdpa_kernel

            with modules.mode(self.training), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
                params = dict(modules.model.named_parameters())
                out = modules.forward(modules.model, self.batch)
                value = call(self.loss, out, self.batch, modules.hyper, params)
                slope = [None] * len(leaves)
                if value.requires_grad:
                    slope = torch.autograd.grad(value.mean(), leaves, create_graph=True, allow_unused=True)
                second = _product(slope, [torch.from_numpy(vectors[v]) for v in variables], leaves)
            value = value if self.is_row_by_row(value) else value.reshape(())
            return [[array_of(value)], [_full(g, p) for g, p in zip(slope, leaves)], second]

        return Reference(self.function, inputs, variables, original)


def as_tuple(batch):
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def numbered(batch, what):
    """The tensors of a batch of a loader, as arrays by number."""
    arrays = [array_of(tensor) for tensor in tensors(as_tuple(batch), what)]
    return [str(i) for i in range(len(arrays))], arrays


def table_of(train, valid, held_out, test, split):
    """The rows of all parts as one table."""
    def arrays(given, what):
        return given if given is None or isinstance(given, (int, float)) else [t.numpy() for t in tensors(given, what)]

    parts = [arrays(given, what) for given, what in ((valid, "valid"), (held_out, "held_out"), (test, "test"))]
    own = arrays(train, "train")
    if any(isinstance(part, list) and len(part) != len(own) for part in parts):
        raise ShapeError(f"train has {len(own)} tensors for each example, and so must valid, held_out and test")
    return divided([str(i) for i in range(len(own))], own, *parts, split)


def problem(
    model, hyper, inner, outer, *, train, valid=None, batch_size=None, forward=None, bounds=None, precision="full", check=True,
    train_mode=True, split=None, held_out=None, test=None, copy=True,
):
    """A bilevel problem from a PyTorch model.

    `hyper` is a module whose parameters are λ. `inner(out, batch, hyper, params)` is the training loss of the model's output on a batch, and
    `outer(out, batch)` the loss that λ is judged by; `params` are the model's parameters by name. Data are tuples of tensors, datasets, or
    loaders, of which one batch is read for each step; the model is called with the first tensor of a batch, or as `forward(model, batch)`
    says. With `outer=None`, λ is judged by the evidence, the marginal likelihood of the training rows, and the method is `evidence`: the inner
    loss has a normalised prior, and its temperature is 1 for a sum over rows, 1/n for a mean over n rows.

    The inner loss sees the model in training mode, with dropout and batch statistics; the outer one in evaluation mode. Running
    statistics are carried. Parameters of the model that do not require a gradient stay as they are; those of `hyper` that do not are constants.

    With `split=bilevel.Split(…)`, the rows of `train` are divided, and `outer` sees the validation rows; or `held_out`, as a fraction of the
    rows of `valid` or as data, and `test` are given beside `valid`. Held-out rows guard runs, and test rows are for `baselines`. If `outer`
    returns one number for each row, its mean is the loss, and standard errors are over rows.

    `check=False` leaves out the comparison with PyTorch. With `copy=False`, tensors of floats are used in place: do not change them while the
    problem lives.

    One weight decay for a whole model::

        class Decay(nn.Module):
            def __init__(self):
                super().__init__()
                self.log = nn.Parameter(torch.tensor(-6.0))

        problem = bilevel.torch.problem(
            model, Decay(),
            lambda out, batch, hyper, params: F.cross_entropy(out, batch[1]) + hyper.log.exp() * sum((p**2).sum() for p in params.values()),
            lambda out, batch: F.cross_entropy(out, batch[1]), train=(x, y), valid=(x_new, y_new), batch_size=64)
    """
    if outer is None:
        without_rows_to_judge_by(valid=valid, split=split, held_out=held_out, test=test)
    modules = _Modules(model, hyper, forward or first_of_batch)
    table = table_of(train, valid, held_out, test, split) if (split, held_out, test) != (None, None, None) else None
    if outer is not None and table is None and valid is None:
        raise ProblemError("the data that λ is judged by are missing: give valid=…, or split=…")

    def given(data, name, part):
        if table is not None:
            return [torch.from_numpy(a) for a in table.of(part)]
        return data if is_stream(data) else tensors(data, name)

    levels = {"inner": _Level("train", modules, inner, given(train, "train", "train"), batch_size, train_mode, table, copy)}
    if outer is not None:
        levels["outer"] = _Level("valid", modules, outer, given(valid, "valid", "validation"), None, False, table, copy)
    modules.carry(levels["inner"].program)
    data, functions = {}, {"inner": [], "outer": []}
    for name, level in levels.items():
        functions[name].append(level.lower())
        data.update(level.data)
    arrays, starts = modules.arrays({**modules.theta, **modules.statistics}), modules.arrays(modules.lam)
    pairs = bounds_of(bounds, list(starts))
    parts = Parts(
        [(n, v, *pairs[n]) for n, v in starts.items()], [(n, v, modules.role(n)) for n, v in arrays.items()],
        data, *functions.values(), modules.dtype, precision=precision,
        streams=[level.stream.declared(level.name) for level in levels.values() if level.stream], **({} if table is None else {
            "tables": {f"rows/{n}": engine_array(a, copy=copy) for n, a in table.arrays.items()}, "rows": table.rows,
            "traced": {name: {level.count} for name, level in levels.items()},
        }),
    )

    def retrace(name, count):
        level = levels[name]
        rows = [torch.from_numpy(a) for a in table.first(count)]
        shown = _Level(level.name, modules, level.loss, rows, level.size, level.training, table)
        return shown.lower(f"{level.name} {count}"), shown.constants

    references = {name: level.reference(arrays, starts) for name, level in levels.items()} if check else {}
    leaves = [TorchLeaves(list(part), part.values()) for part in (starts, arrays)]
    if table is not None:
        trace_for(parts, retrace, set(), {len(rows) for rows in table.rows[1:]})
    made = TorchProblem(parts, *leaves, references, retrace if table is not None else None)
    made._tied = {**modules.tied, **{n: n for n in modules.statistics}}
    if check:
        made.check()
    return made


def _product(slope, vectors, leaves):
    along = sum((g * v.to(g)).sum() for g, v in zip(slope, vectors) if g is not None)
    if not torch.is_tensor(along) or not along.requires_grad:
        return [_full(None, p) for p in leaves]
    try:
        found = torch.autograd.grad(along, leaves, allow_unused=True)
    except RuntimeError:  # PyTorch has no second derivative of something.
        return None
    return [_full(h, p) for h, p in zip(found, leaves)]


def _full(derivative, like):
    return np.zeros(tuple(like.shape)) if derivative is None else array_of(derivative)
