"""PyOpenCL's own files: PyOpenCL works if its files are not writable, and stores no database of launch functions."""

from __future__ import annotations

import time
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pyopencl import invoker

from tests.disks import full_disk
from tests.processes import output, run_code

LAUNCH = """
    import numpy as np
    {first}
    from optdb.runtime import arrays
    from optdb.runtime.context import Context

    context = Context({device!r})
    array = arrays.from_host(context, np.arange(3))
    print((array + array).get())
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "import pyopencl.invoker"], ids=["optdb first", "PyOpenCL first"])
def test_the_caches_of_opencl_may_be_on_a_full_disk(tmp_path, first):
    with full_disk(tmp_path / "disk") as folder:
        if first:  # without optdb, PyOpenCL opens its own database at once
            env = {"XDG_CACHE_HOME": str(tmp_path), "POCL_CACHE_DIR": str(folder)}
        else:
            env = {"XDG_CACHE_HOME": str(folder), "POCL_CACHE_DIR": ""}
        done = run_code(LAUNCH.format(first=first, device="pocl"), env=env)
    assert done.stdout == "[0 2 4]\n", done.stderr
    assert done.stderr.count("The cure:") == 1
    assert "(No space left on device): each process builds them again" in done.stderr


@pytest.mark.slow
def test_no_database_of_launches_is_opened(tmp_path):
    assert output(LAUNCH.format(first="", device="pocl"), env={"XDG_CACHE_HOME": str(tmp_path)}) == "[0 2 4]"
    assert not (tmp_path / "pytools").exists()


@pytest.mark.slow
def test_programs_that_pyopencl_cannot_keep_are_built(tmp_path):
    # PyOpenCL stores programs if the driver has no cache.
    with full_disk(tmp_path / "disk") as folder:
        env = {"XDG_CACHE_HOME": str(folder), "POCL_CACHE_DIR": str(tmp_path)}
        done = run_code(LAUNCH.format(first="", device="oclgrind"), env=env)
    assert done.stdout == "[0 2 4]\n", done.stderr
    assert "PyOpenCL compiler caching failed" in done.stderr


def test_what_launches_a_kernel_is_generated_once():
    def launchers(*types):
        return invoker.generate_enqueue_and_set_args("of_this_test", 2, 2, types, False, False, [])

    numbers = launchers(None, np.int32)
    assert launchers(None, np.int32) == numbers
    assert launchers(None, np.uint32) != numbers


def test_threads_generate_what_launches_a_kernel_once(monkeypatch):
    """After PyOpenCL has found nothing in its cache, another thread can start to generate the same function."""
    generated = []

    def generate(*args):
        time.sleep(0.01)
        generated.append(args)
        return types.SimpleNamespace(mod_globals={"enqueue": len(generated), "set_args": None}), "enqueue"

    monkeypatch.setattr(invoker, "_generate_enqueue_and_set_args_module", generate)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(
            lambda _: invoker.generate_enqueue_and_set_args("of_threads", 1, 1, (np.int32,), False, False, []), range(4)
        )
        assert [enqueue for enqueue, _ in found] == [1] * 4
    assert len(generated) == 1
