"""PyMC starts the right processes to sample, in mode OPENCL and in other modes."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys

import pytest

import optdb.pytensor
from optdb.pytensor import processes

parallel = pytest.importorskip("pymc.sampling.parallel", reason="PyMC is not installed: pip install 'optdb[pymc]'")

#: A script that samples in two processes; a test fills in its imports, and the way in which it starts to sample.
SCRIPT = """
{imports}
import numpy as np

{guard}
    with pm.Model():
        center = pm.Normal("center", shape=2)
        pm.Normal("y", center, observed=np.ones((9, 2)))
        trace = pm.sample(
            300, tune=300, chains=2, cores=2, random_seed=1, progressbar=False, compute_convergence_checks=False,
            quiet=True, compile_kwargs={{"mode": "OPENCL"}},
        )
    print(trace.posterior["center"].shape)
"""
PYMC_FIRST = "import pymc as pm\nimport optdb.pytensor"
PYMC_LAST = "import optdb.pytensor\nimport pymc as pm"


def run(folder, **parts):
    script = folder / "script.py"
    script.write_text(SCRIPT.format(**parts))
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=250)


@pytest.mark.slow
@pytest.mark.parametrize("imports", [PYMC_FIRST, PYMC_LAST], ids=["first", "last"])
def test_chains_are_sampled_in_processes_and_warn_once(tmp_path, imports):
    done = run(tmp_path, imports=imports, guard='if __name__ == "__main__":')
    assert done.stdout.strip() == "(2, 300, 2)", done.stderr
    assert done.stderr.count("TooSmallWarning") <= 1


@pytest.mark.slow
def test_a_script_without_a_guard_gets_one_error(tmp_path):
    done = run(tmp_path, imports=PYMC_FIRST, guard="if True:")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.count("Traceback") == 1
    error, cure = done.stderr.strip().splitlines()[-2:]
    assert error.startswith(f"RuntimeError: {tmp_path / 'script.py'}, line ")
    assert cure.startswith('The cure: put this line under `if __name__ == "__main__":`')


@pytest.mark.slow
def test_populations_step_in_one_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        PYMC_LAST
        + """
with pm.Model():
    pm.Normal("x")
    step = pm.DEMetropolis(compile_kwargs={"mode": "OPENCL"})
    trace = pm.sample(5, tune=5, chains=3, cores=3, step=step, progressbar=False, compute_convergence_checks=False)
print(trace.posterior["x"].shape)
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=250)
    assert done.stdout.strip() == "(3, 5)", done.stderr


def test_the_import_leaves_the_start_method_alone():
    code = "import multiprocessing, optdb.pytensor; print(multiprocessing.get_start_method(allow_none=True))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "None"


def method_of(mp_ctx, mode):
    return parallel._initialize_multiprocessing_context(mp_ctx, mode=mode).get_start_method()


@pytest.fixture
def forking(monkeypatch):
    """Make "fork" the default start method of processes, as it is up to Python 3.13."""
    monkeypatch.setattr(multiprocessing, "get_context", _forking(multiprocessing.get_context))


def _forking(original):
    return lambda method=None: original(method or "fork")


def test_only_mode_opencl_starts_afresh(forking):
    assert method_of(None, "FAST_COMPILE") == "fork"
    assert method_of(None, None) == "fork"
    assert method_of(None, "OPENCL") == "forkserver"
    assert method_of(None, optdb.pytensor.opencl_mode("opencl")) == "forkserver"
    assert method_of("spawn", "OPENCL") == "spawn"


def test_a_context_of_the_caller_is_left_alone():
    context = multiprocessing.get_context("fork")
    assert parallel._initialize_multiprocessing_context(context, mode="OPENCL") is context


def test_forks_are_refused():
    context = parallel._initialize_multiprocessing_context("fork", mode="OPENCL")
    with pytest.raises(ValueError, match=r"do not work in forked processes\. The cure: omit mp_ctx"):
        context.Process()


def test_a_module_is_replaced_when_it_is_imported_later(tmp_path, monkeypatch):
    (tmp_path / "imported_later.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    finder = processes._Finder({"imported_later": lambda module: found.append(module.value)})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    import imported_later  # noqa: F401

    assert found == [1]
