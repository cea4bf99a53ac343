"""What the tests share: 64-bit JAX, and the prices of missing frameworks."""

import os
import signal

import pytest

try:
    import jax
except ImportError:
    jax = None
else:
    jax.config.update("jax_enable_x64", True)


def pytest_configure(config):
    # A shell lets the programs that it runs in the background ignore Ctrl-C, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if jax is None and os.environ.get("CI") == "true":
        pytest.exit("JAX is missing, and CI=true says that it must be there; install it with: pip install jax", 1)


def pytest_ignore_collect(collection_path, config):
    name = collection_path.name
    if name.startswith("test_jax") and jax is None:
        return True
    if name.startswith("test_torch"):
        try:
            import torch  # noqa: F401
        except ImportError:
            return True
    return None
