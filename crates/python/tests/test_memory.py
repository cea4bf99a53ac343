"""Arrays go in and come out without a copy if it has no visible effect, and device memory is refused."""

import importlib.util

import bilevel as bl
import numpy as np
import pytest
from bilevel._build import engine_array
from bilevel._memory import ALIGNMENT

Y = np.array([0.2, 1.3, 1.7])


def problem(x, **options):
    """The outer loss is the mean of x."""
    return bl.problem(
        {"l": np.zeros(())}, {"w": np.zeros(3)}, data={"x": x}, inner=lambda s, l, t: ((t["w"] - bl.exp(l["l"]) * Y) ** 2).sum(),
        outer=lambda s, l, t: s.x.mean() + (t["w"] ** 2).sum(), **options)


def outer(made):
    return made.losses()["outer"]


def read_only(base):
    view = base.view()
    view.flags.writeable = False
    return view


def address(array):
    return array.__array_interface__["data"][0]


def test_read_only_floats_are_used_where_they_are():
    block = np.empty(64 * 8 + ALIGNMENT, np.uint8)
    first = -address(block) % ALIGNMENT
    own = block[first : first + 512].view(np.float64)
    own[:] = 1.0
    assert address(engine_array(read_only(own))) == address(own)
    made = problem(read_only(own))
    assert outer(made) == 1.0
    own[:] = 3.0
    assert outer(made) == 3.0


def test_arrays_that_can_be_written_are_copied_unless_told_otherwise():
    x = np.ones(64)
    copied, used = problem(x), problem(x, copy=False)
    x[:] = 2.0
    assert (outer(copied), outer(used)) == (1.0, 2.0)
    assert x.flags.writeable


def test_other_types_layouts_and_integers_are_copied_once():
    x = read_only(np.arange(12).reshape(3, 4))
    for given in (x, read_only(np.arange(12.0).reshape(3, 4).T), read_only(np.arange(12, dtype=np.float16)), read_only(np.arange(4) > 1)):
        found = engine_array(given)
        assert address(found) != address(given) and address(found) % ALIGNMENT == 0 and not found.flags.writeable
        assert np.array_equal(found, given)
    for shape in ((), (0,), (2, 0, 3)):
        assert engine_array(np.ones(shape)).shape == shape


def test_results_are_aligned_and_ones_own():
    made = problem(np.ones(64))
    found = made.hypergradient("rmd", step=0.1, steps=5)
    run = made.run("rmd", step=0.1, steps=5, iterations=2)
    trained = made.train(step=0.1, steps=5)
    for array in (found.value["l"], found.params["w"], run.lam["l"], run.params["w"], trained.params["w"]):
        assert address(array) % ALIGNMENT == 0 and array.flags.writeable and array.flags.c_contiguous
    again = made.hypergradient("rmd", step=0.1, steps=5)
    found.params["w"][:] = 9.0
    assert not np.array_equal(found.params["w"], again.params["w"])
    assert np.array_equal(made.hypergradient("rmd", step=0.1, steps=5).params["w"], again.params["w"])
    kept = again.params["w"]
    del again, made
    assert np.isfinite(kept).all()


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_results_go_to_frameworks_by_dlpack_without_a_copy(framework):
    pytest.importorskip(framework)
    w = problem(np.ones(64)).train(step=0.1, steps=5).params["w"]
    if framework == "jax":
        import jax.numpy as jnp

        theirs = jnp.from_dlpack(w)
        assert theirs.unsafe_buffer_pointer() == address(w)
    else:
        import torch

        theirs = torch.from_dlpack(w)
        assert theirs.data_ptr() == address(w)
    assert np.array_equal(np.asarray(theirs), w)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_arrays_of_jax_are_used_where_they_are():
    import jax.numpy as jnp

    x = jnp.arange(64.0)
    assert address(engine_array(x)) == x.unsafe_buffer_pointer()
    made = bl.jax.problem(
        lambda lam, params, b: ((params - lam * b) ** 2).sum(), lambda lam, params, b: (params * b).sum(), jnp.ones(64), jnp.zeros(64),
        train=x, valid=x)
    assert {address(a) for a in made._parts.data.values()} == {x.unsafe_buffer_pointer()}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tensors_are_used_where_they_are_if_told_so():
    import torch

    x = torch.ones(64, 3, dtype=torch.float64)
    made = lambda **options: bl.torch.problem(  # noqa: E731
        torch.nn.Linear(3, 1).double(), torch.nn.Linear(1, 1).double(), train=(x,), valid=(x,), inner=lambda out, batch, hyper: hyper(out).square().mean(),
        outer=lambda out, batch: out.mean() * 0 + batch[0].mean(), check=False, **options)
    copied, used = made(), made(copy=False)
    x.mul_(2.0)
    assert (outer(copied), outer(used)) == (1.0, 2.0)


class Foreign:
    """An array that knows nothing but DLPack."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_anything_that_knows_dlpack_is_data():
    x = np.full(64, 5.0)
    assert outer(problem(Foreign(x))) == 5.0
    assert outer(problem(Foreign(x, (3, 0)))) == 5.0


def test_memory_of_devices_is_refused_with_a_way_out():
    for device, name in (((2, 1), "CUDA, number 1"), ((10, 0), "ROCm, number 0"), ((77, 0), "kind 77 of DLPack")):
        with pytest.raises(bl.errors.DeviceError, match=name + r".*\.cpu\(\)"):
            problem(Foreign(np.ones(3), device))
