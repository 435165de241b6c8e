"""The runner of suite files handles files that pass, fail, crash or hang."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.records import CRASHED, FAILED, PASSED, SKIPPED, TIMEOUT, Result
from conformance.runner import Settings, run_file
from tests.processes import output, with_extensions


def outcomes(results: dict[str, Result]) -> dict[str, str]:
    """Return the outcome of each test, by the part of its id after the file name."""
    return {name.partition("::")[2] or name: result.outcome for name, result in results.items()}


@pytest.mark.slow
def test_each_test_has_a_result(settings, write):
    path = write(
        "test_plain.py",
        """
        import unittest
        import pytest

        def test_pass(): pass
        def test_fail(): assert 1 == 2, "not so"
        def test_skip(): raise unittest.SkipTest("not here")

        class Lower(unittest.TestCase):
            def test_method(self): pass

        class test_lower_case:
            def setUp(self): self.value = 1
            def test_method(self): assert self.value == 1

        @pytest.fixture
        def broken(): raise OSError("no set-up")
        def test_setup(broken): pass
        """,
    )
    results = run_file(settings, path, "stock")
    assert outcomes(results) == {
        "test_pass": PASSED,
        "test_fail": FAILED,
        "test_skip": SKIPPED,
        "Lower::test_method": PASSED,
        "test_lower_case::test_method": PASSED,
        "test_setup": FAILED,
    }
    assert "not so" in results["test_plain.py::test_fail"].error
    assert "no set-up" in results["test_plain.py::test_setup"].error


@pytest.mark.slow
def test_crash_costs_one_test(settings, write):
    path = write(
        "test_crash.py",
        """
        import os, signal

        def test_before(): pass
        def test_crash(): os.kill(os.getpid(), signal.SIGSEGV)
        def test_between(): pass
        def test_exit(): os._exit(3)
        def test_after(): pass
        """,
    )
    results = run_file(settings, path, "stock")
    assert outcomes(results) == {
        "test_before": PASSED,
        "test_crash": CRASHED,
        "test_between": PASSED,
        "test_exit": CRASHED,
        "test_after": PASSED,
    }
    assert "SIGSEGV" in results["test_crash.py::test_crash"].error
    assert "exit status 3" in results["test_crash.py::test_exit"].error


@pytest.mark.thorough
@pytest.mark.slow
def test_time_limit(settings, write):
    path = write(
        "test_slow.py",
        """
        import time

        def test_busy():
            while True: pass
        def test_swallows():
            try:
                while True: pass
            except BaseException: pass
            while True: pass
        def work():
            end = time.process_time() + 0.3
            while time.process_time() < end: pass
        def test_cases():
            for _ in range(3): yield work
        def test_asleep(): time.sleep(60)
        def test_after(): pass
        """,
    )
    results = run_file(replace(settings, timeout=0.5), path, "stock")
    assert outcomes(results) == {
        "test_busy": TIMEOUT,
        "test_swallows": TIMEOUT,
        "test_cases#0": PASSED,
        "test_cases#1": PASSED,
        "test_cases#2": PASSED,
        "test_asleep": TIMEOUT,
        "test_after": PASSED,
    }


@pytest.mark.slow
def test_memory_is_limited(settings, write):
    path = write("test_big.py", "def test_big(): bytearray(8 << 30)\ndef test_small(): bytearray(8)\n")
    assert outcomes(run_file(settings, path, "stock")) == {"test_big": FAILED, "test_small": PASSED}


@pytest.mark.slow
def test_interrupt(settings, write):
    path = write("test_interrupt.py", "def test_one(): pass\ndef test_two(): raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        run_file(settings, path, "stock")


@pytest.mark.slow_cases("1 / 0-failed")
@pytest.mark.parametrize("source, outcome", [("1 / 0", FAILED), ("import os; os._exit(1)", CRASHED)])
def test_file_that_cannot_be_imported(settings, write, source, outcome):
    path = write("test_broken.py", source)
    assert outcomes(run_file(settings, path, "stock")) == {"test_broken.py": outcome}


@pytest.mark.slow
def test_cases_have_results_of_their_own(settings, write):
    path = write(
        "test_cases.py",
        """
        import unittest

        def check(value): assert value != 2
        def test_function():
            for value in range(4): yield check, value

        def test_late_binding():
            def check_now(): assert value == expected
            for expected in range(2):
                value = expected
                yield check_now

        class TestMethods:
            @classmethod
            def setup_class(cls): cls.values = [1, 2]
            def check(self, value): check(value)
            def test_method(self):
                for value in self.values: yield self.check, value
            def test_abstract(self):
                raise unittest.SkipTest("base class")
                yield
        """,
    )
    assert outcomes(run_file(settings, path, "stock")) == {
        "test_function#0": PASSED,
        "test_function#1": PASSED,
        "test_function#2": FAILED,
        "test_function#3": PASSED,
        "test_late_binding#0": PASSED,
        "test_late_binding#1": PASSED,
        "TestMethods::test_method#0": PASSED,
        "TestMethods::test_method#1": FAILED,
        "TestMethods::test_abstract": SKIPPED,
    }


@pytest.mark.slow
def test_one_test_can_be_run_alone(settings, write):
    path = write("test_two.py", "def test_one(): pass\ndef test_two(): pass\n")
    assert outcomes(run_file(settings, path, "stock", [f"{path}::test_two"])) == {"test_two": PASSED}


@pytest.mark.slow
def test_random_numbers_do_not_depend_on_earlier_tests(settings, write):
    path = write(
        "test_seed.py",
        """
        import numpy as np

        drawn = []
        def test_one(): drawn.append(np.random.rand())
        def test_two(): assert drawn == [np.random.rand()]
        """,
    )
    assert set(outcomes(run_file(settings, path, "stock")).values()) == {PASSED}


@pytest.mark.thorough
@pytest.mark.slow
def test_the_way_is_on_before_the_suite_is_imported(settings: Settings, write):
    source = """
        import sys

        topo = sys.modules.get("optdb.topo")
        enabled_at_import = topo is not None and topo.is_enabled()

        def test_engine(): assert enabled_at_import
        """
    path = write("test_way.py", source)
    assert outcomes(run_file(settings, path, "stock")) == {"test_engine": FAILED}
    assert outcomes(run_file(settings, path, "topo")) == {"test_engine": PASSED}


@pytest.mark.thorough
@pytest.mark.slow
def test_everything_is_on_in_the_way_of_that_name():
    code = """
        from conformance.ways import WAYS
        WAYS["everything"].switch_on()

        import optdb, theano, theano.tensor as tt
        assert optdb.cache.is_installed() and theano.config.linker == "opencl"
        x = tt.fvector("x")
        f = theano.function([x], tt.cumprod(tt.exp(x)))
        print(theano.config.optimizer, round(float(f([0.0, 1.0])[1]), 3), type(f.maker.linker).__name__)
    """
    assert output(code).split()[1:] == ["2.718", "DeviceLinker"]


@pytest.mark.thorough
@pytest.mark.slow
def test_functions_change_over_before_their_first_or_second_call(tmp_path: Path):
    code = """
        from conformance.ways import WAYS
        WAYS["changing"].switch_on()

        import numpy as np, optdb, theano, theano.tensor as tt
        x = tt.dvector("x")

        def tiers(y):
            f = theano.function([x], y)
            seen = [bool(optdb.tier(f).in_python)]
            for _ in range(2):
                f(np.ones(2))
                seen.append(bool(optdb.tier(f).in_python))
            return seen

        print(tiers(tt.tanh(x) * 2), tiers(tt.exp(x) - 3))
        """
    seen = output(code, flags=f"base_compiledir={with_extensions(tmp_path)}")
    assert seen.splitlines()[-1] == "[True, True, False] [True, False, False]"
