"""The example programs do what they say."""

import importlib.util
import pathlib

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def loaded(name, framework):
    pytest.importorskip(framework)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_penalties_fall_on_the_features_that_say_nothing(tmp_path):
    picture = tmp_path / "losses.svg"
    before, after, useful, useless = loaded("penalties", "jax").main(picture)
    assert after < before and useful < useless
    assert picture.read_text().startswith("<svg")


def test_wrong_labels_get_small_weights(tmp_path):
    clean, dirty, found = loaded("label_cleaning", "torch").main(tmp_path / "losses.svg")
    assert clean > dirty + 0.2 and found > 0.8
