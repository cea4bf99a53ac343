"""Python under launchers: the run of one process, on ranks that `mpirun` and `torchrun` have started."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import bilevel
import numpy as np
import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "examples" / "several_ranks.py"
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


def started(command, **more):
    """What a command prints on its way to success."""
    package = pathlib.Path(bilevel.__file__).resolve().parents[1]
    environment = {**os.environ, **MPI, "PYTHONPATH": str(package), **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def numbers(text):
    """The outer loss and λ of the one line that rank 0 prints."""
    lines = [line for line in text.splitlines() if "ranks: outer loss" in line]
    assert len(lines) == 1, text
    return np.array([float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", lines[0])])


def launcher(name, ranks):
    if name == "mpirun":
        found = shutil.which("mpirun")
        if found is None:
            assert os.environ.get("CI") != "true", "CI has no mpirun; install openmpi-bin"
            pytest.skip("there is no mpirun")
        return [found, "-n", str(ranks), sys.executable]
    pytest.importorskip("torch")
    port = 20000 + os.getpid() % 9000
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(port)]


def alone():
    code, out, error = started([sys.executable, str(EXAMPLE)])
    assert code == 0, error
    return numbers(out)


@pytest.mark.parametrize("name", ["mpirun", "torchrun"])
def test_a_run_on_two_ranks_is_that_of_one_process(name, tmp_path):
    command = [*launcher(name, 2), str(EXAMPLE)]
    expected = alone()
    folder = tmp_path / "run"
    code, out, error = started([*command, str(folder)])
    assert code == 0, error
    found = numbers(out)
    assert out.count("2 ranks:") == 1 and len(found) == 21
    # Sums of 600 terms in another order, through 20 iterations that contract.
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert not np.array_equal(found, expected), "the rows were not shared out"
    # One rank wrote, and a process alone can go on from it.
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 20
    assert (folder / "report.html").exists()
    code, out, error = started([sys.executable, str(EXAMPLE), str(folder)])
    assert code == 0, error
    np.testing.assert_array_equal(numbers(out)[-20:], found[-20:])


def test_an_exception_on_one_rank_ends_the_others(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r})\n"
        "import bilevel, several_ranks\n"
        "with bilevel.ranks() as ranks:\n"
        "    if ranks.rank == 1:\n"
        "        raise RuntimeError('the disk is full')\n"
        "    several_ranks.problem().run('rmd', iterations=100000, progress=False)\n")
    code, _, error = started([*launcher("mpirun", 2), str(program)])
    assert code != 0 and "the disk is full" in error


def test_ranks_with_other_settings_are_refused(tmp_path):
    program = tmp_path / "differs.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r})\n"
        "import bilevel, several_ranks\n"
        "with bilevel.ranks() as ranks:\n"
        "    several_ranks.problem().run('rmd', iterations=3, seed=ranks.rank, progress=False)\n")
    code, _, error = started([*launcher("mpirun", 2), str(program)])
    assert code != 0 and "rank 1 has another configuration than rank 0" in error


def test_ranks_that_were_left_are_not_joined_again(tmp_path):
    program = tmp_path / "twice.py"
    program.write_text(
        "import bilevel\n"
        "with bilevel.ranks() as ranks:\n"
        "    print('rank', ranks.rank, 'of', ranks.size)\n"
        "try:\n"
        "    with bilevel.ranks() as ranks:\n"
        "        print('again')\n"
        "except bilevel.Error as error:\n"
        "    print(error)\n")
    code, out, error = started([*launcher("mpirun", 2), str(program)])
    assert code == 0 and out.count("joined before") == 2 and "rank 1 of 2" in out, error
    code, out, error = started([sys.executable, str(program)])
    assert code == 0 and "rank 0 of 1" in out and "again" in out, error


SHARDED = """
import numpy as np, bilevel as bl
x = np.random.default_rng(0).normal(size=(60, 20))
y = x @ np.arange(20.0)
loss = lambda s, params: ((s.x @ params["w"] - s.y) ** 2).mean()
with bl.ranks() as ranks:
    problem = bl.problem(
        {"decay": np.full(20, -2.0)}, {"w": np.zeros(20)}, data={"x": x, "y": y},
        inner=lambda s, lam, params: loss(s, params) + (bl.exp(lam["decay"]) * params["w"] ** 2).sum(), outer=lambda s, lam, params: loss(s, params))
    run = problem.run("rmd", step=0.01, steps=20, rate=0.1, iterations=10, shard_from=10, progress=False)
    if ranks.rank == ranks.size - 1:
        print("ranks: outer loss", repr(float(run.outer_loss)), *(repr(float(v)) for v in run.lam["decay"]))
"""


def test_sharded_state_gives_the_run_of_one_process():
    code, out, error = started([sys.executable, "-c", SHARDED])
    assert code == 0, error
    expected = numbers(out)
    code, out, error = started([*launcher("mpirun", 2), "-c", SHARDED])
    assert code == 0, error
    found = numbers(out)
    assert len(found) == 21
    np.testing.assert_allclose(found, expected, rtol=1e-9)
