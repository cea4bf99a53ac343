"""The notebooks run, and what they show is what is stored in them, up to numbers."""

import importlib.util
import json
import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "notebooks"
NEEDS = {"augmentation": "jax", "label_cleaning": "torch", "penalties": "jax"}


def runner():
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(outputs):
    """Texts without their numbers, and the kinds of pictures."""
    found = []
    for output in outputs:
        text = "".join(output.get("text") or output["data"]["text/plain"])
        found.append((re.sub(r"[-–+]?\d[\d.e+-]*", "#", re.sub(r"  +", " ", text)), sorted(output.get("data", {}))))
    return found


def test_there_is_a_notebook_for_each_framework():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NEEDS)


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_notebook_shows_what_is_stored_in_it(name):
    framework = pytest.importorskip(NEEDS[name])
    if framework.__name__ == "jax":
        # The other tests compute in 64 bits.
        framework.config.update("jax_enable_x64", False)
    try:
        cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        found = runner().executed(cells)
    finally:
        if framework.__name__ == "jax":
            framework.config.update("jax_enable_x64", True)
    stored = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert [len(outputs) for outputs in stored] == [len(outputs) for outputs in found]
    for expected, outputs in zip(stored, found):
        assert [kinds for _, kinds in shown(outputs)] == [kinds for _, kinds in shown(expected)]
        # Which sentence a baseline or a guard says may depend on the processor.
        printed = [text for text, _ in shown(expected) if text.startswith("<")]
        assert [text for text, _ in shown(outputs) if text.startswith("<")] == printed
    pictures = [o["data"]["image/svg+xml"] for outputs in found for o in outputs if "image/svg+xml" in o.get("data", {})]
    assert len(pictures) >= 2 and all("".join(p).startswith("<svg") for p in pictures)
