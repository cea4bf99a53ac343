"""The Python programs of README and of the guide run, and the stubs name what the module has."""

import ast
import doctest
import importlib.util
import inspect
import pathlib
import re

import bilevel
import numpy as np
import pytest
from bilevel import _bilevel, _results
from bilevel._check import CheckReport, Row, difference
from bilevel._ranks import Ranks

ROOT = pathlib.Path(__file__).resolve().parents[3]


def programs():
    for path in ("README.md", "crates/python/README.md", "docs/guide/src/python.md"):
        for i, (needs, text) in enumerate(re.findall(r"```python(,torch)?\n(.*?)```", (ROOT / path).read_text(), re.S)):
            yield pytest.param(needs or text, text, id=f"{path}-{i}")


@pytest.mark.parametrize("needs, text", list(programs()))
def test_a_program_of_the_documentation_runs(needs, text):
    for framework in ("jax", "torch"):
        if framework in needs and importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
    exec(compile(text, "documentation", "exec"), {"__name__": "documentation"})


def test_there_are_programs():
    assert len(list(programs())) >= 4


def switches():
    """The programs of the page for users of other libraries: blocks with the libraries that each needs."""
    text = (ROOT / "docs/guide/src/python-coming-from.md").read_text()
    found = []
    for needs, block in re.findall(r"```python((?:,\w+)*)\n(.*?)```", text, re.S):
        if block.startswith("import bilevel"):
            found.append([])
        found[-1].append(([*needs.split(",")[1:], *(["jax"] if "import jax" in block else [])], block))
    return [pytest.param(blocks, id=name) for name, blocks in zip(("JAXopt", "higher-TorchOpt", "Betty"), found, strict=True)]


def leaves(found):
    if isinstance(found, dict):
        found = list(found.values())
    return [np.asarray(getattr(leaf, "detach", lambda leaf=leaf: leaf)()) for leaf in found]


@pytest.mark.parametrize("blocks", switches())
def test_what_other_libraries_compute_is_what_is_computed_here(blocks):
    scope, there, compared = {"__name__": "documentation"}, None, 0
    missing = lambda needs: [name for name in needs if importlib.util.find_spec(name) is None]  # noqa: E731
    if lacks := [name for name in missing(blocks[0][0]) if name in ("jax", "torch")]:
        pytest.skip(f"{lacks[0]} is not installed")
    for needs, block in blocks:
        if missing(needs):
            there = None
            continue
        exec(compile(block, "documentation", "exec"), scope)
        if "there = " in block:
            there = leaves(scope["there"])
        elif "here = " in block:
            here = leaves(scope["here"])
            assert all(np.isfinite(leaf).all() for leaf in here)
            if there is not None:
                # Implicit derivatives are solved for iteratively on both sides.
                assert difference(here, there) <= 1e-7, block
                compared += 1
    assert compared or any(missing(needs) for needs, _ in blocks)


def test_the_stubs_name_what_the_module_has():
    stub = pathlib.Path(bilevel.__file__).with_name("_bilevel.pyi")
    tree = ast.parse(stub.read_text())
    named = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    public = {n for n in dir(_bilevel) if not n.startswith("_")}
    assert public == set(named)
    for name, node in named.items():
        if isinstance(node, ast.ClassDef):
            methods = {f.name for f in node.body if isinstance(f, ast.FunctionDef)} - {"__init__", "__len__"}
            assert {n for n in vars(getattr(_bilevel, name)) if not n.startswith("_")} == methods, name


def test_the_package_is_typed():
    assert pathlib.Path(bilevel.__file__).with_name("py.typed").exists()


def test_the_functions_of_methods_are_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "crates/python/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert pathlib.Path(bilevel.__file__).with_name("_methods.py").read_text(encoding="utf-8") == module.written(), (
        "run crates/python/generate.py")


def public():
    """Every public name: those that modules export, and the members of the classes among them and of results."""
    modules = [bilevel, bilevel.nn, bilevel.errors]
    modules += [getattr(bilevel, name) for name in ("jax", "torch") if importlib.util.find_spec(name)]
    found = {}
    for module in modules:
        exported = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
        found |= {f"{module.__name__}.{name}": getattr(module, name) for name in exported if name not in ("__version__", "jax", "torch")}
    found |= {f"{module.__name__}": module for module in modules}
    results = [_results.Hypergradient, _results.Trained, _results.Baselines, _results.Comparison, _results.Advice, CheckReport, Row, Ranks]
    found |= {f"{one.__module__}.{one.__name__}": one for one in [*results, type(bilevel.methods)]}
    for name, one in list(found.items()):
        if inspect.isclass(one):
            for owner in one.__mro__:
                if owner.__module__.startswith("bilevel"):
                    members = {m: v for m, v in vars(owner).items() if not m.startswith("_")}
                    kinds = (property, staticmethod, classmethod)
                    found |= {f"{name}.{m}": v for m, v in members.items() if callable(v) or isinstance(v, kinds)}
    return found


def test_every_public_name_has_a_docstring():
    found = public()
    assert len(found) > 150
    assert "bilevel._run.Run.metrics" in found or "bilevel.Run.metrics" in found
    lacks = [name for name, one in found.items() if len((getattr(one, "__doc__", None) or "").strip()) < 10]
    assert not lacks, lacks


def ridge(**more):
    """A small problem for the examples of docstrings."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    rows = {"x": x, "y": x @ np.array([1.0, -1.0, 0.0]) + 0.1 * rng.normal(size=40)}
    loss = lambda s, params: ((s.x @ params["w"] - s.y) ** 2).mean()  # noqa: E731
    return bilevel.problem(
        {"decay": np.full(3, -2.0)}, {"w": np.zeros(3)}, **(more or {"data": rows}), **({"table": rows} if more else {}),
        inner=lambda s, lam, params: loss(s, params) + (bilevel.exp(lam["decay"]) * params["w"] ** 2).sum(),
        outer=lambda s, lam, params: loss(s, params))


@pytest.mark.parametrize("name", [
    "_check", "_display", "_judged", "_own", "_problem", "_ranks", "_results", "_rows", "_run", "_settings", "_tensor", "nn"])
def test_the_examples_of_docstrings_run(name):
    module = importlib.import_module(f"bilevel.{name}")
    given = {"bl": bilevel, "np": np, "problem": ridge(), "divided": ridge(split=bilevel.Split(0.5, 0.3, 0.1, 0.1))}
    failed, _ = doctest.testmod(module, extraglobs=given, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_there_are_examples_in_docstrings():
    examples = [one for one in public().values() if ">>> " in (getattr(one, "__doc__", None) or "")]
    assert len(examples) >= 20
