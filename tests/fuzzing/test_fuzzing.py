"""Random functions with random switches give the same results as Theano without any optimization."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import theano
from click.testing import CliRunner

from fuzzing import __main__ as command
from fuzzing import comparing
from fuzzing.comparing import Differs, compare
from fuzzing.pairs import Pairs, shown
from fuzzing.programs import Body, Call, Leaf, Program, Step
from fuzzing.strategies import LOOPS
from fuzzing.switches import EXCLUDED, FLAGS, NOT_DRAWN, Compilation, Process, Surroundings, Switches, values_of
from fuzzing.ways import Functions
from fuzzing.worker import Found, Progress, Task, run
from optdb.flags import FLAGS as DECLARED
from tests.effort import examples

#: The number of examples of each kind; ``python -m fuzzing`` runs any number.
EXAMPLES = {"function": 40, "simulator": 25, "pickled simulator": 15, "loop": 20, "file": 12}

#: Two functions of a vector (on the device) and a shared vector of integers (on the host), called alternately.
PROGRAM = Program(
    inputs=(Leaf("float32", (3,)),),
    shared=(Leaf("int64", (3,)),),
    steps=(Step("plus", (1,), 1), Step("plus", (0,), 1)),
    functions=(Body(((3, True), (2, False)), ((0, 2),)), Body(((3, False), (2, False)), ())),
    calls=tuple(Call((("n", 3), ("m", 2)), (0,), function=number % 2) for number in range(4)),
)


@pytest.mark.slow_cases("simulator", "loop", "file")
@pytest.mark.parametrize("way", values_of(Compilation)["way"])
def test_functions_are_what_they_are_without_optimization(way):
    # Theano's linkers with C code are left out, because they need processes with a compiler.
    only = {"way": [way], "linker": ["py", "vm", "opencl"]}
    count = examples(EXAMPLES[way])
    # With a compiler, Theano's graphs contain ops without Python code, such as CorrMM, even for Python linkers.
    with theano.configparser.change_flags(cxx=""):
        found = run(Task(0, count, only=only, without=tuple(LOOPS), differences=1))
    assert not found.differences
    assert found.pairs.examples > count // 4  # the others raise a named error, or have arrays without elements


def test_each_flag_of_optdb_is_a_switch_or_has_a_reason():
    assert {flag.name for flag in DECLARED} == {*FLAGS, *NOT_DRAWN}
    switches = {**values_of(Process), **values_of(Surroundings), **values_of(Compilation)}
    assert set(FLAGS.values()) <= set(switches)
    for rule in EXCLUDED:
        for name, values in (rule.first, rule.second):
            assert set(values) <= set(switches[name])


@pytest.mark.parametrize("origin", values_of(Compilation)["origin"])
@pytest.mark.parametrize("way", ["function", "simulator"])
def test_a_function_finds_what_the_other_one_has_left(way, origin):
    assert compare(PROGRAM, Switches(first=Compilation(way=way, origin=origin), second=Compilation(engine="on")))


class _Spoiled(Functions):
    """Compiled functions whose results or arguments a test changes."""

    def call(self, number, arguments, times):
        results = super().call(number, arguments, times)
        _Spoiled.spoil(self, results, arguments)
        return results


def _of_a_result(functions, results, arguments):
    results[1] = results[1] + 1


def _of_a_dtype(functions, results, arguments):
    results[1] = results[1].astype("int32")


def _of_an_argument(functions, results, arguments):
    arguments[0][...] = 5


def _of_a_shared_variable(functions, results, arguments):
    functions.graph.shared[0].set_value(np.zeros(3, "int64"))


def _of_a_held_result(functions, results, arguments):
    held = functions.__dict__.setdefault("held", results)
    if held is not results:
        held[1][...] = 9


def _of_a_borrowed_result(functions, results, arguments):
    held = functions.__dict__.setdefault("held", results)
    if held is not results and not functions.__dict__.setdefault("spoiled", False):
        functions.spoiled = True
        held[0][...] = 9


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (_of_a_result, "call 0, output 1"),
        (_of_a_dtype, "call 0, output 1: expected int64"),
        (_of_an_argument, "call 0, argument 0"),
        (_of_a_shared_variable, "call 0, shared 0"),
        (_of_a_held_result, "call 0, output 1, compared again after call 1"),
        (_of_a_borrowed_result, "call 0, output 0, compared again after call 1"),
    ],
)
def test_a_fault_is_found(monkeypatch, spoil, what):
    monkeypatch.setattr(_Spoiled, "spoil", spoil, raising=False)
    monkeypatch.setattr(comparing, "Functions", _Spoiled)
    with pytest.raises(Differs, match=what):
        compare(PROGRAM, Switches())


class _Wrong(Functions):
    """Compiled functions whose last result is wrong."""

    def call(self, number, arguments, times):
        results = super().call(number, arguments, times)
        results[-1] = results[-1] + 1
        return results


def test_a_task_goes_on_after_a_difference(monkeypatch, tmp_path):
    monkeypatch.setattr(comparing, "Functions", _Wrong)
    only = {"way": ["function"], "mode": ["fast_compile"], "linker": ["py"]}
    task = Task(1, 4, only=only, without=tuple(LOOPS), shrinks=False, differences=2, folder=str(tmp_path))
    found = run(task)
    assert len(found.differences) == 2
    assert 2 <= found.drawn <= 4
    assert all("Program(" in difference and "Switches(" in difference for difference in found.differences)
    assert Progress(str(tmp_path)).found().differences == found.differences
    assert "Program(" in Progress(str(tmp_path)).example()


def test_no_example_begins_when_time_is_up():
    found = run(Task(1, 5, until=0.0))
    assert (found.drawn, found.differences) == (0, [])


def test_the_rest_of_a_process_that_died_is_run(monkeypatch):
    seeds = []

    def died(task, timeout):
        seeds.append((task.seed, task.examples))
        return Found(drawn=3), ["status -11"] if len(seeds) == 1 else []

    monkeypatch.setattr(command, "_run_process", died)
    found, troubles = command._run(Task(7, 10), 1.0)
    assert seeds == [(7, 10), (7 + command._NEXT_SEED, 6)]
    assert (found.drawn, troubles) == (7, ["status -11"])


def test_pairs_are_counted_for_one_function_and_across_both():
    pairs = Pairs()
    pairs.add(Switches(first=Compilation(engine="on", plans="off"), second=Compilation(op_cache="on")))
    assert pairs.count(("engine", "on"), ("plans", "off")) == 1
    assert pairs.count(("engine", "on"), ("op_cache", "on")) == 0
    assert pairs.count(("engine", "on"), ("other op_cache", "on")) == 1
    assert pairs.count(("engine", "on"), ("other engine", "on")) == 0
    assert pairs.count(("compiler", "none"), ("engine", "off")) == 1
    lines = shown(pairs.never())
    assert "engine=on never with op_cache=on" in lines
    assert "engine=on never with plans=off" not in lines


def test_pairs_of_several_runs_are_added(tmp_path):
    path = tmp_path / "pairs.json"
    for _ in range(2):
        pairs = Pairs()
        pairs.add(Switches())
        pairs.write(path)
    assert Pairs.read(path).examples == 2
    assert "2 examples" in Pairs.read(path).tables()


def test_excluded_values_are_not_asked_for():
    missing = {frozenset((a, b)) for a, b in Pairs().never()}
    for rule in EXCLUDED:
        (name, values), (other, others) = rule.first, rule.second
        for value, excluded in itertools.product(values, others):
            assert frozenset({(name, value), (other, excluded)}) not in missing


def test_processes_leave_confined_switches_a_value():
    only = {"persistent_launches": ["always", "split"], "way": ["file"]}
    processes = command._processes("none", 0, only)
    assert {process.kernels for process in processes} == {"own"}
    assert {
        process.kernels for process in command._processes("none", 0, {**only, "persistent_launches": ["auto"]})
    } == {
        "own",
        "gpu",
        "copying gpu",
        "warpgroup gpu",
    }


def test_a_restriction_that_excludes_another_one_is_told():
    only = [f"--only={text}" for text in ("kernels=gpu", "persistent_launches=split", "compiler=none")]
    done = CliRunner().invoke(command.main, ["--examples", "1", *only])
    assert done.exit_code == 2
    assert "persistent_launches=split: PoCL 3.1 hangs" in " ".join(done.output.replace("│", " ").split())
