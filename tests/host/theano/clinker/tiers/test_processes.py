"""Processes whose functions wait for C code leave nothing behind when they end, are killed, or fork."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.interrupts import ctrl_c_interrupts  # noqa: F401 (a fixture)
from tests.processes import python_path, with_extensions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("g++") is None or not Path("/proc").is_dir(), reason="there is no g++, or no /proc"
    ),
]

#: The time limit of a process, in seconds: long enough for a busy computer, but shorter than the compiler's sleep.
SECONDS_FOR_PROCESS = 200
#: Maximum seconds until killed processes have disappeared.
SECONDS_FOR_END = 60

BEGIN = textwrap.dedent("""
    import os, sys, time
    import numpy as np
    import optdb
    import theano, theano.tensor as tt
    optdb.enable(tiered=True)
    x = tt.dvector("x")
    f = theano.function([x], (tt.tanh(x) * 2).sum())
    expected = float(np.tanh(np.ones(3)).sum() * 2)
    assert abs(f(np.ones(3)) - expected) < 1e-12
""")
BEGUN = textwrap.dedent("""
    while not os.path.exists(os.environ["BEGUN"]):
        time.sleep(0.01)
    print("begun", flush=True)
""")


@pytest.fixture
def start(tmp_path, monkeypatch):
    """A function that starts Python in its own compiledir, with a g++ that sleeps before compiling modules."""
    script = tmp_path / "bin" / "g++"
    script.parent.mkdir()
    begun = tmp_path / "begun"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *unit.cpp*) [ -n "$SLEEP" ] && {{ touch {begun}; sleep 600; }} ;; esac\n'
        f'exec {shutil.which("g++")} "$@"\n'
    )
    script.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
        "THEANO_FLAGS": f"base_compiledir={with_extensions(tmp_path / 'theano')},optdb.clinker=auto,gcc.cxxflags=-O0",
        "XDG_CACHE_HOME": str(tmp_path / "xdg"),
        "PYTHONPATH": python_path(),
        "THEANORC": os.devnull,
        "BEGUN": str(begun),
        "OF_THIS_TEST": str(tmp_path),
    }
    processes = []

    def start(code, **more):
        command = [sys.executable, "-c", BEGIN + textwrap.dedent(code)]
        # The process reads from a pipe that the test closes, because the test's own input may already be at its end.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, env={**env, **more}, text=True, **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def survivors(folder):
    """Return the command lines of the processes that a test has started and that are still alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"OF_THIS_TEST={folder}\0".encode() in (path / "environ").read_bytes()
            if is_ours and (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append((path / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def assert_nothing_is_left(folder):
    deadline = time.monotonic() + SECONDS_FOR_END
    while survivors(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert survivors(folder) == []


def modules(folder):
    return [path.parent for path in folder.glob("theano/*/tmp*/*.so")]


@pytest.mark.thorough_cases("SIGTERM")
@pytest.mark.usefixtures("ctrl_c_interrupts")
@pytest.mark.parametrize("kind", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_killed_process_leaves_no_compiler_and_no_lock(start, tmp_path, kind):
    process = start(BEGUN + "time.sleep(600)", SLEEP="1")
    assert process.stdout.readline() == "begun\n", process.stderr.read()
    assert len(survivors(tmp_path)) > 1
    process.send_signal(getattr(signal, kind))
    process.communicate(timeout=SECONDS_FOR_PROCESS)
    assert_nothing_is_left(tmp_path)
    assert modules(tmp_path) == []
    # Locks of the dead process do not block the next process, which removes the files that are left.
    done = start("status = optdb.wait(f, 120); f(np.ones(3)); assert status.in_python == 0, status")
    assert done.communicate(timeout=SECONDS_FOR_PROCESS)[1] == ""
    assert done.returncode == 0
    assert modules(tmp_path) != []
    assert list(tmp_path.glob("theano/*/optdb/staging/*")) == []
    assert list(tmp_path.glob("theano/*/optdb/locks/*")) == []


def test_a_process_that_ends_does_not_wait_for_compilers(start, tmp_path):
    process = start(BEGUN, SLEEP="1")
    # If the process waited for its compiler, this would exceed the time limit.
    _, errors = process.communicate(timeout=SECONDS_FOR_PROCESS)
    assert (process.returncode, errors) == (0, "")
    assert_nothing_is_left(tmp_path)
    assert list(tmp_path.glob("theano/*/optdb/staging/*")) == []
    assert list(tmp_path.glob("theano/*/optdb/locks/*")) == []


def test_a_dropped_function_leaves_no_compiler_beside_the_program(start, tmp_path):
    process = start(BEGUN + "import gc; del f; gc.collect(); print('dropped', flush=True); sys.stdin.read()", SLEEP="1")
    assert process.stdout.readline() == "begun\n", process.stderr.read()
    assert process.stdout.readline() == "dropped\n"
    deadline = time.monotonic() + SECONDS_FOR_END
    while len(survivors(tmp_path)) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(survivors(tmp_path)) == 1
    assert process.poll() is None


def test_a_forked_child_changes_over_by_itself(start, tmp_path):
    code = """
        if child := os.fork():
            assert abs(f(np.ones(3)) - expected) < 1e-12
            pid, status = os.waitpid(child, 0)
            assert status == 0, status
        else:
            status = optdb.wait(f, 120)
            assert abs(f(np.ones(3)) - expected) < 1e-12
            os._exit(status.in_python)
        assert optdb.wait(f, 120).in_python == 0
        assert abs(f(np.ones(3)) - expected) < 1e-12
    """
    process = start(code)
    _, errors = process.communicate(timeout=SECONDS_FOR_PROCESS)
    assert (process.returncode, errors) == (0, "")
    assert_nothing_is_left(tmp_path)


def test_a_child_that_begins_in_another_threads_call_has_its_turn(start):
    code = """
        import signal, threading
        threading.Thread(target=lambda: [f(np.ones(3)) for _ in iter(int, 1)], daemon=True).start()
        for _ in range(20):
            if not (child := os.fork()):
                signal.alarm(60)
                os._exit(int(abs(f(np.ones(3)) - expected) > 1e-12))
            assert os.waitpid(child, 0)[1] == 0
        os._exit(0)
    """
    process = start(code, SLEEP="1")
    _, errors = process.communicate(timeout=SECONDS_FOR_PROCESS)
    assert (process.returncode, errors) == (0, "")


def test_a_child_of_a_killed_parent_gets_its_locks(start, tmp_path):
    code = BEGUN + textwrap.dedent("""
        if os.fork():
            os.kill(os.getpid(), 9)
        del os.environ["SLEEP"]
        status = optdb.wait(f, 120)
        print(status.in_python, flush=True)
    """)
    process = start(code, SLEEP="1")
    output, errors = process.communicate(timeout=SECONDS_FOR_PROCESS)
    assert output == "begun\n0\n", errors
    assert_nothing_is_left(tmp_path)
