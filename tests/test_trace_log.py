"""The flag ``optdb.trace`` prints the requested topics, and costs nothing if it is off."""

from __future__ import annotations

import re

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op

from optdb import flags, trace_log
from optdb.opencl.registry import context_of, get_context
from optdb.opencl.simulator import SimulatorOCL
from optdb.runtime import commands
from optdb.runtime.build import make
from optdb.runtime.library import cl
from optdb.topo import enable
from tests.processes import python, with_extensions


def traced(value):
    return theano.configparser.change_flags(**{"optdb.trace": value})


# Values


@pytest.mark.parametrize(
    ("value", "topics"),
    [
        (False, {}),
        (True, {"rewrites": (), "phases": (), "shared": ()}),
        ("lifts", {"lifts": ()}),
        (
            "rewrites:local_add_canonizer,lifts,launches",
            {"rewrites": ("local_add_canonizer",), "lifts": (), "launches": ()},
        ),
        (" rewrites: a | b* + rewrites:c ", {"rewrites": ("a", "b*", "c")}),
        ("rewrites:a+rewrites", {"rewrites": ()}),
        ("rewrites+rewrites:a", {"rewrites": ()}),
    ],
)
def test_topics(value, topics):
    assert flags.traced_topics(value) == topics


@pytest.mark.parametrize("text", ["True", "true", "1", "False", "0"])
def test_booleans_stay_booleans(text):
    assert flags.trace_value(text) is (text in ("True", "true", "1"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "lift",
            "there is no topic 'lift'; did you mean lifts? The flag takes True, False, or topics joined by +: rewrites",
        ),
        ("rewrites,", "there is no topic ''"),
        ("compilers:gcc", "compilers takes no names; write compilers alone"),
        ("rewrites:", "names of rules or ops follow rewrites:"),
        ("rewrites True", "no topic"),
    ],
)
def test_bad_values_are_refused(value, message):
    with pytest.raises(flags.FlagError, match=re.escape(message)), traced(value):
        pass
    assert theano.config.optdb.trace is False
    assert not any(map(trace_log.wants, flags.TOPICS))


def test_names_select():
    with traced("rewrites:local_*|Dot"):
        assert theano.config.optdb.trace == "rewrites:local_*|Dot"
        assert trace_log.wants("rewrites")
        assert trace_log.wants("rewrites", "other", "Dot")
        assert trace_log.wants("rewrites", "local_x")
        assert not trace_log.wants("rewrites", "Dot22")
        assert not trace_log.wants("lifts")
    assert not trace_log.wants("rewrites")


@pytest.mark.slow
def test_the_variable_of_the_environment():
    done = python("-c", "import optdb, theano; print(theano.config.optdb.trace)", flags="optdb.trace=lifts+compilers")
    assert done.stdout == "lifts+compilers\n", done.stderr
    done = python("-c", "import optdb, theano", flags="optdb.trace=liftz")
    assert "optdb.trace=liftz: there is no topic 'liftz'; did you mean lifts?" in done.stderr


# Topics


@as_op(itypes=[tt.fvector], otypes=[tt.fvector])
def doubled(x):
    return x * 2


def function(**options):
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 2), "float32"), "w")
    return theano.function([x], tt.exp(tt.neg(tt.neg(x.dot(w)))).sum(), updates=[(w, w * np.float32(0.5))], **options)


def lines(capsys):
    return capsys.readouterr().err.splitlines()


def test_off_prints_nothing(capsys):
    with enable():
        sim = SimulatorOCL(function())
    sim(np.ones((4, 3), "float32"))
    assert lines(capsys) == []


@pytest.mark.parametrize(("name", "others"), [("local_func_inv", False), ("Elemwise", True), ("neg", False)])
def test_rewrites_of_a_rule_or_an_op(name, others, capsys):
    with enable(), traced("rewrites"):
        function(mode="FAST_RUN")
    everything = lines(capsys)
    with enable(), traced(f"rewrites:{name}"):
        function(mode="FAST_RUN")
    some = lines(capsys)
    assert any("local_func_inv Elemwise{neg" in line for line in some)
    assert set(some) < set(everything) or (others and some == everything)
    assert others == any(" local_func_inv " not in line for line in some)
    assert not any(": converged" in line for line in everything)


def test_phases(capsys):
    with enable(), traced("phases"):
        function(mode="FAST_RUN")
    printed = lines(capsys)
    assert printed and all(": converged after" in line for line in printed)


def test_lifts(capsys):
    f = function()
    with traced("lifts"):
        SimulatorOCL(f)
    moved = lines(capsys)
    assert any(line.startswith("lift: ") and " moves to " in line and " by lift_" in line for line in moved)
    with traced("lifts:lift_reduction"):
        SimulatorOCL(f)
    assert all(line.endswith("by lift_reduction") for line in lines(capsys))
    x = tt.fvector("x")
    with_host_op = theano.function([x], tt.exp(doubled(tt.exp(x))))
    with traced("lifts"):
        SimulatorOCL(with_host_op)
    assert any(" stays on the host: " in line for line in lines(capsys))


def test_launches_are_those_of_each_call(capsys):
    sim = SimulatorOCL(function())
    data = np.ones((4, 3), "float32")
    counts = []
    with traced("launches"):
        for _ in range(4):
            sim(data)
            counts.append(len(lines(capsys)))
        sim.call_n_times(20, data)
        printed = lines(capsys)
    assert counts[0] and len(set(counts)) == 1
    # Some calls may have more launches, because commands that commit an update are copies or launches.
    assert len(printed) >= 20 * counts[0]
    assert all(line.startswith("launch: ") and ", work items (" in line and ", work group " in line for line in printed)
    rows = [row for row in sim.profile(data, n=1).rows if row.kind == "launch"]
    assert counts[0] == len(rows)
    with traced(f"launches:{rows[0].kernel}"):
        sim(data)
    assert {line.split()[1] for line in lines(capsys)} == {f"{rows[0].kernel},"}


def test_an_untraced_launch_is_the_drivers_own():
    assert commands._launch is cl.enqueue_nd_range_kernel
    with traced("launches"):
        assert commands._launch is not cl.enqueue_nd_range_kernel
    assert commands._launch is cl.enqueue_nd_range_kernel


@pytest.mark.slow
def test_opencl_compilers(capsys):
    source = "__kernel void traced_{0}(__global int *x) {{ x[0] = {0}; }}"
    context = get_context(context_of("auto"))
    number = np.random.default_rng().integers(1 << 30)
    with traced("compilers"), trace_log.compiler_runs() as runs:
        make(context, source.format(number), name="a kernel of a test")
    [line] = lines(capsys)
    assert line.startswith("OpenCL compiler: a kernel of a test, for ") and line.endswith(" s")
    [run] = runs
    assert run.compiler == "OpenCL compiler" and run.seconds > 0
    make(context, source.format(number + 1))
    assert len(runs) == 1 and lines(capsys) == []


@pytest.mark.slow
@pytest.mark.parametrize("clinker", ["True", "False"])
def test_c_compilers(clinker, tmp_path):
    if not theano.config.cxx:
        pytest.skip("no C compiler")
    code = "import optdb, theano; x = theano.tensor.dvector(); theano.function([x], theano.tensor.exp(x) * 3)"
    flags = (
        f"base_compiledir={with_extensions(tmp_path)},optdb.trace=compilers,optdb.clinker={clinker},gcc.cxxflags=-O0"
    )
    done = python("-c", code, flags=flags)
    assert done.returncode == 0, done.stderr
    modules = [line for line in done.stderr.splitlines() if line.startswith("C compiler: 1 module: ")]
    assert modules and all(line.endswith(" s") for line in modules)
    if clinker == "True":
        assert any("Elemwise{" in line for line in modules)


def test_a_compiler_that_fails_is_timed(capsys):
    with traced("compilers"), pytest.raises(ValueError), trace_log.compiler_run("C compiler", lambda: "purpose"):
        raise ValueError
    [line] = lines(capsys)
    assert line.startswith("C compiler: purpose, 0.")


def test_nobody_asks_what_an_untraced_compiler_is_for():
    with trace_log.compiler_run("C compiler", lambda: 1 / 0):
        pass
