"""An exported PyTorch program as a traced function.

A value is a tensor of the graph, or one of PyTorch's if it depends on no input: such operators are computed by PyTorch itself, once. That
covers masks, positions and buffers that do not change.
"""

import operator

import bilevel
import torch
from torch.utils._pytree import tree_leaves, tree_map

from .._build import Builder
from .._bilevel import Tensor
from .._lines import folder_of, named, user_line
from ..errors import Error, UnsupportedError
from ._recognised import TAKES_KNOWN, decompositions
from ._rules import DTYPES, RULES, Lowering, array_of

#: Folders whose lines are not the user's.
_LIBRARY = (folder_of(torch), folder_of(bilevel))
#: A known tensor that is larger is computed by the graph.
MAX_FOLDED_ELEMENTS = 1 << 24


def export(module, arguments):
    """The program of a module, in PyTorch's own decomposition but for what is recognised whole."""
    try:
        return torch.export.export(module, tuple(arguments), strict=False).run_decompositions(decompositions())
    except Error:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UnsupportedError(
            f"{user_line(error, _LIBRARY)}torch.export cannot trace the model: {first}; remove what depends on the values of tensors, such as if and .item()"
        ) from error


def location(node):
    """The line of user code of a node."""
    lines = (node.meta.get("stack_trace") or node.stack_trace or "").strip().splitlines()
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    own = [f for f in frames if not any(part in f for part in _LIBRARY)] or frames
    if not own:
        return ""
    file, line, function = (own[-1].split('"')[1], own[-1].split("line ")[1].split(",")[0], own[-1].rsplit("in ", 1)[-1])
    return f"{named(file, line, function)}: "


class Lowered:
    """A traced function: its named outputs, and the constants that it needs."""

    def __init__(self, builder, outputs, updates, streams):
        self.builder, self.outputs, self.updates, self.streams = builder, outputs, updates, streams


def lower(program, names, inputs, constants):
    """Walks an exported program.

    `names` maps parameters and buffers to the names of inputs, with None for what is constant; `inputs` are names for the arguments. Returns
    the results, and the new values of buffers by their names.
    """
    builder = Builder(constants)
    s, env, given = Lowering(builder), {}, iter(inputs)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    known = {**program.state_dict, **program.constants}
    made = {}
    for node in program.graph_module.graph.nodes:
        if node.op == "placeholder":
            env[node] = _placeholder(builder, node, specs[node.name], names, given, known, made)
        elif node.op == "call_function":
            env[node] = _called(s, node, env)
        elif node.op == "output":
            results = [env.get(m) if isinstance(m, torch.fx.Node) else m for m in node.args[0]]
    results = [s.tensor(r) if isinstance(r, torch.Tensor) else r for r in results]
    outputs, updates = [], {}
    for spec, result in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.kind.name == "USER_OUTPUT":
            outputs.append(result)
        elif spec.kind.name == "BUFFER_MUTATION":
            updates[spec.target] = result
        else:
            raise UnsupportedError(f"the model changes {spec.target or 'its input'} while it computes a loss")
    return Lowered(builder, outputs, updates, s.streams)


def _placeholder(builder, node, spec, names, given, known, made):
    value, kind = node.meta["val"], spec.kind.name
    if not hasattr(value, "shape"):
        return value
    if kind in ("PARAMETER", "BUFFER") and names.get(spec.target) is not None:
        name = names[spec.target]
    elif kind == "USER_INPUT":
        name = next(given)
    else:
        return known[spec.target].detach().cpu()
    if name not in made:
        # Tied weights are one input.
        made[name] = builder.graph.input(name, [int(n) for n in value.shape], DTYPES[value.dtype])
    return made[name]


def _called(s, node, env):
    fill = lambda m: env[m]  # noqa: E731
    arguments, options = torch.fx.node.map_arg(node.args, fill), torch.fx.node.map_arg(node.kwargs, fill)
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    name, value = str(node.target), node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    if _is_known(node, (arguments, options), first):
        with torch.no_grad():
            return node.target(*arguments, **{**options, **({"device": "cpu"} if "device" in options else {})})
    s.builder.graph.set_line(location(node).removesuffix(": "))
    try:
        if name not in RULES:
            raise UnsupportedError(f"'{name}' is not supported")
        dtype = DTYPES.get(first.dtype) if hasattr(first, "dtype") else None
        if hasattr(first, "dtype") and dtype is None:
            raise UnsupportedError(f"tensors of type {first.dtype}")
        if name not in TAKES_KNOWN:
            as_graph = lambda x: s.tensor(x) if isinstance(x, torch.Tensor) else x  # noqa: E731
            arguments, options = tree_map(as_graph, (arguments, options))
        result = RULES[name](s, dtype, *arguments, **options)
    except (Error, NotImplementedError) as error:
        raise UnsupportedError(f"{location(node)}{name}: {error}") from error
    checked = result[0] if isinstance(result, (list, tuple)) else result
    if isinstance(checked, Tensor) and hasattr(first, "shape") and list(checked.shape) != [int(n) for n in first.shape]:
        raise AssertionError(f"{name}: {checked.shape} instead of {list(first.shape)}")
    return result


def _is_known(node, given, value):
    """Whether PyTorch can compute it now: it depends on no input and draws nothing."""
    if any(isinstance(x, Tensor) for x in tree_leaves(given)) or not isinstance(value, torch.Tensor):
        return False
    return torch.Tag.nondeterministic_seeded not in node.target.tags and value.numel() <= MAX_FOLDED_ELEMENTS
