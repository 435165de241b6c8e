"""Rehearsals: the first call runs in a child process, so that a compiler or a kernel can only damage the child."""

from __future__ import annotations

import signal
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from optdb.runtime import binaries
from optdb.runtime.context import Context
from optdb.runtime.exported import FileError, LimitError, load, rehearsal, rehearsal_child
from tests.processes import python
from tests.runtime.planned import LAUNCH, SOURCE, STATE, TRACE, plan, trace_with, workspace

X = np.array([1, 2, 3], np.float32)


@pytest.fixture
def context(tmp_path, monkeypatch):
    """Return a context for which no kernel has been tried; it stores programs in a test folder."""
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path / "binaries"))
    return Context("opencl")


@pytest.fixture
def started(monkeypatch):
    """Return a list that receives each child process that is started from now on."""
    found = []

    def start(*args, **kwargs):
        found.append(popen(*args, **kwargs))
        return found[-1]

    popen = rehearsal.subprocess.Popen
    monkeypatch.setattr(rehearsal.subprocess, "Popen", start)
    return found


@pytest.mark.slow
def test_a_first_call_is_done_in_a_child_once(tmp_path, context, started):
    path = plan(tmp_path / "f.optdb")
    there = load(path, context, build_in_child=True)
    for _ in range(3):
        np.testing.assert_array_equal(there(X), 2 * X)
    # The additions to the shared value in the child process have no effect in this process.
    np.testing.assert_array_equal(there.get("total"), 3 * X)
    np.testing.assert_array_equal(load(path, context, build_in_child=True)(X), 2 * X)
    assert len(started) == 1
    # The result of the rehearsal is on disk, where another process would also find it.
    np.testing.assert_array_equal(load(path, Context("opencl"), build_in_child=True)(X), 2 * X)
    assert len(started) == 1
    other = plan(path, **trace_with(commands=[TRACE["commands"][0], {**LAUNCH, "local_size": [1]}]))
    load(other, context, build_in_child=True)(X)
    assert len(started) == 2


def test_who_says_so_and_processors_alone(context, monkeypatch):
    on_processor = context.profile.is_processor
    monkeypatch.delenv(rehearsal.ENVIRONMENT_VARIABLE, raising=False)
    assert rehearsal.is_wanted(None, context) == on_processor
    for said in (True, False):
        monkeypatch.setenv(rehearsal.ENVIRONMENT_VARIABLE, str(int(said)))
        assert rehearsal.is_wanted(None, context) is said
        assert rehearsal.is_wanted(not said, context) is not said


@pytest.mark.thorough
@pytest.mark.slow
def test_a_kernel_that_has_no_end(tmp_path, context, started):
    endless = SOURCE.replace("z[i] = 2 * x[i];", "while (x[i] > 0) z[i] = 2 * x[i];")
    there = load(plan(tmp_path / "f.optdb", source=endless), context, build_in_child=True, build_timeout_s=8)
    start = time.monotonic()
    with pytest.raises(FileError, match=r"(?s)f of .*did not finish in 8 s.*build_timeout_s=16\)"):
        there(X)
    assert time.monotonic() - start < 60
    assert started[0].poll() is not None
    np.testing.assert_array_equal(there.get("total"), [0, 0, 0])


@pytest.mark.slow
def test_a_kernel_that_ends_the_process(tmp_path, context):
    """On a processor, a kernel that writes to arbitrary addresses ends the process."""
    if "PoCL" not in context.device.version or not context.profile.is_processor:
        pytest.skip("a driver that sees to it")
    wild = SOURCE.replace("z[i] = 2 * x[i];", "z[i + 0x7000000000000000] = 2 * x[i];")
    there = load(plan(tmp_path / "f.optdb", source=wild), context, build_in_child=True)
    with pytest.raises(FileError, match=r"(?s)f of .*ended the child process that tried them \(SIG(SEGV|BUS|ABRT)\)"):
        there(X)
    np.testing.assert_array_equal(there.get("total"), [0, 0, 0])


LIMITED = """
    from optdb.runtime.exported import rehearsal_child
    from optdb.runtime.exported.archive import Limits
    # Some seconds, since imports and the pages of the half count, too.
    rehearsal_child.limit(Limits(max_host_bytes=0, max_device_bytes=1 << 20), 2)
    half = bytearray(rehearsal_child.COMPILER_BYTES // 2)
    try:
        bytearray(rehearsal_child.COMPILER_BYTES)
    except MemoryError:
        print("limited", flush=True)
    while True:
        pass
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory a process has")
def test_a_child_is_limited_in_memory_and_time():
    done = python("-c", textwrap.dedent(LIMITED))
    assert done.stdout.strip() == "limited", (done.returncode, done.stderr)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_errors_of_the_child_are_those_of_the_call(tmp_path, context, started):
    broken = plan(tmp_path / "f.optdb", source=SOURCE.replace("2 * x", "nothing * x"))
    with pytest.raises(FileError, match=r"(?s)program 0 of .*does not build.*nothing"):
        load(broken, context, build_in_child=True)(X)
    large = plan(tmp_path / "f.optdb", **trace_with(memories=[workspace(1 << 33)] * 2 + [STATE]))
    with pytest.raises(LimitError, match="max_device_bytes"):
        load(large, context, build_in_child=True)(X)
    there = load(plan(tmp_path / "f.optdb"), context, build_in_child=True)
    plan(tmp_path / "f.optdb", about="another")
    with pytest.raises(FileError, match="was changed after it was loaded"):
        there(X)
    assert all(child.poll() is not None for child in started)


@pytest.mark.parametrize(
    "value", [np.float64(1.5), np.arange(6.0).reshape(2, 3).T, np.zeros((0, 3), "int8"), np.bool_(1)]
)
def test_arguments_arrive_as_they_are(value):
    array = np.asarray(value)
    request, (got,) = rehearsal_child.received(rehearsal.message({"method": "f"}, [array]))
    assert request == {"method": "f"}
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("last", ["5", "[]", '["FileError"]', '["a", 1]', "{}", "[1, 2]", "some words", '"FileError"'])
def test_a_last_line_of_somebody_else(last):
    with pytest.raises(FileError, match=r"ended the child process that tried them \(status 3\)"):
        rehearsal._raise_what(3, f"more\n{last}\n".encode(), b"")
