"""A function's kernels are usually built as one program; errors show the code of kernels that do not build."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof.graph import io_toposort

from memcheck.case import Given, Number
from memcheck.cases import CASES
from optdb.codegen.kernels import programs
from optdb.codegen.kernels.isolation import outlined
from optdb.opencl import OpenCLArrayType, as_opencl_variable, get_context
from optdb.opencl.kernel_ops import (
    ARRAY,
    BUFFER,
    PRELUDE,
    SIZE,
    BuildError,
    Kernel,
    KernelArgumentError,
    OpenCLKernelBase,
    compile_kernels,
    one_program,
    output_array,
)
from optdb.runtime.arrays import from_host
from optdb.runtime.build import make
from optdb.runtime.context import Context
from tests.opencl_device import runtime_context
from tests.processes import run_code


@pytest.fixture
def built(monkeypatch):
    """Return a list to which the source of each built program is added."""
    sources = []

    def listing(context, source, *args, **kwargs):
        sources.append(source)
        return make(context, source, *args, **kwargs)

    monkeypatch.setattr(programs, "make", listing)
    return sources


def adding(n, name="k", before="", params=(BUFFER,)):
    """Return a kernel that adds a number; other kernels have the same name."""
    return Kernel(f"{before}KERNEL void k(GLOBAL_MEM int *a) {{ a[0] += {n}; }}", name, params)


def zero(context=None):
    return from_host(context or runtime_context(), np.zeros(1, "int32"))


class Adding(OpenCLKernelBase):
    """Add a number to the elements of a vector."""

    __props__ = ("n", "code")

    def __init__(self, n, code="y[i] = x[i] + N;", params=(ARRAY, ARRAY, SIZE)):
        self.n = n
        self.code = code
        self.params = params

    def make_node(self, x):
        x = as_opencl_variable(x, "dev0")
        return theano.Apply(self, [x], [x.type()])

    def gpu_kernels(self, node, name):
        code = f"""
        #define N {self.n}
        KERNEL void add(GLOBAL_MEM float *x, ga_size x_off, GLOBAL_MEM float *y, ga_size y_off, ga_size n) {{
            ga_size i = GID_0 * LDIM_0 + LID_0;
            if (i < n) {{ {self.code} }}
        }}"""
        return [Kernel(code, "add", self.params)]

    def run(self, node, inputs, outputs, kernels, context):
        (x,) = inputs
        y = output_array(outputs[0], context, x.shape, x.dtype)
        kernels["add"].scall(x.size, x, y, x.size)


def chain(*ops):
    """Return a function that applies some ops one after the other."""
    x = tt.fvector("x")
    y = x
    for op in ops:
        y = op(y)
    return theano.function([x], y, mode=theano.Mode(linker="py", optimizer=None))


VALUE = np.arange(5, dtype="float32")


# How many


def test_a_function_is_one_program(built):
    f = chain(Adding(1001), Adding(1002), Adding(1001), Adding(1003))
    assert len(built) == 1
    assert built[0].count("KERNEL void add") == 3
    np.testing.assert_array_equal(np.asarray(f(VALUE)), VALUE + 4007)
    assert len(built) == 1


def test_what_another_function_has_is_not_built_again(built):
    chain(Adding(1101), Adding(1102))
    f = chain(Adding(1102), Adding(1101))
    assert len(built) == 1
    g = chain(Adding(1103), Adding(1101))
    assert len(built) == 2
    assert "1101" not in built[1]
    np.testing.assert_array_equal(np.asarray(f(VALUE)), VALUE + 2203)
    np.testing.assert_array_equal(np.asarray(g(VALUE)), VALUE + 2204)


def test_some_programs_are_built_side_by_side(built, monkeypatch):
    context = get_context("dev0")
    quirks = replace(context.profile.quirks, builds_side_by_side=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks))
    monkeypatch.setattr(programs, "_LEAST_TEXT", 400)
    f = chain(*map(Adding, range(1201, 1208)))
    assert 1 < len(built) < 7
    assert sum(source.count("KERNEL void add") for source in built) == 7
    np.testing.assert_array_equal(np.asarray(f(VALUE)), VALUE + sum(range(1201, 1208)))


def test_parts_do_not_depend_on_the_order_of_units(monkeypatch):
    monkeypatch.setattr(programs, "_LEAST_TEXT", 10)
    context = runtime_context()
    units = [
        programs.TranslationUnit(context, (f"KERNEL void k(GLOBAL_MEM int *a) {{ a[0] += {10**n}; }}",), "")
        for n in range(9)
    ]
    pairs = [(unit, unit.isolated()) for unit in units]
    one, other = (
        {frozenset(unit.codes for unit, _ in part) for part in programs._parts(given, True)}
        for given in (pairs, pairs[::-1])
    )
    assert one == other and len(one) == 8
    assert len(programs._parts(pairs, False)) == 1


def test_a_program_of_some_that_does_not_compile_leaves_the_others(built, monkeypatch):
    context = get_context("dev0")
    quirks = replace(context.profile.quirks, builds_side_by_side=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks))
    monkeypatch.setattr(programs, "_LEAST_TEXT", 400)
    wrong = Adding(1301, code="y[i] = x[i] + wrong;")
    with pytest.raises(BuildError, match="wrong"):
        chain(*map(Adding, range(1302, 1308)), wrong)
    f = chain(*map(Adding, range(1302, 1308)))
    np.testing.assert_array_equal(np.asarray(f(VALUE)), VALUE + sum(range(1302, 1308)))


LOOP = """
import optdb
import numpy as np
import theano
import theano.tensor as tt
from optdb.opencl import contexts
from optdb.codegen.kernels import programs
from tests.opencl.lifted import both

contexts.register("dev0", "opencl")
contexts.default = "dev0"
make, built = programs.make, []
programs.make = lambda context, source, *args, **kwargs: built.append(source) or make(context, source, *args, **kwargs)

def step(x, w):
    return tt.tanh(x * np.float32(0.4321) + w)

w = tt.vector("w", dtype="float32")
mode = theano.Mode(linker="py", optimizer=None)
steps, _ = theano.scan(step, outputs_info=[tt.zeros_like(w)], non_sequences=[w], n_steps=3, mode=mode)
value = np.linspace(-1, 1, 5).astype("float32")
got, want, ops = both([w], [steps.sum(axis=0) * np.float32(1.2345)], [value])
np.testing.assert_allclose(got[0], want[0], rtol=1e-5)
assert theano.scan_module.scan_op.Scan in ops
assert len(built) == 1, len(built)
"""


@pytest.mark.slow
def test_a_loop_belongs_to_the_function_around_it():
    # Use a separate process, in which no other function has had such kernels.
    done = run_code(LOOP)
    assert done.returncode == 0, done.stderr


def test_each_context_has_a_program_of_its_own(built):
    other = Context("opencl")
    with one_program():
        kernels = [compile_kernels([adding(n)], c)["k"] for n in (1201, 1202) for c in (runtime_context(), other)]
        assert built == []
    assert len(built) == 2
    for kernel, context in zip(kernels, (runtime_context(), other) * 2):
        a = zero(context)
        kernel.call(1, 1, a)
        assert a.get()[0] in (1201, 1202)


def test_the_source_does_not_depend_on_the_order(built):
    for names in ((1301, 1302, 1303), (1303, 1301, 1302)):
        context = Context("opencl")
        with one_program():
            for n in names:
                compile_kernels([adding(n)], context)
    assert built[0] == built[1]


def test_what_cannot_stand_among_others_is_a_program_of_its_own(built):
    with one_program():
        kernels = {
            n: compile_kernels([adding(n, before=before)], runtime_context())["k"]
            for n, before in ((1401, ""), (1402, "#ifndef M_PI\n#define M_PI 3\n#endif\n"), (1403, ""))
        }
    assert len(built) == 2
    assert [built[0].count(f"+= {n}") for n in kernels] == [1, 0, 1]
    for n, kernel in kernels.items():
        a = zero()
        kernel.call(1, 1, a)
        assert a.get()[0] == n


def test_what_is_refused_together_is_built_one_by_one(monkeypatch):
    built = []

    def one_at_a_time(context, source, *args, **kwargs):
        if source.count("KERNEL void k") > 1:
            raise BuildError("too much for this driver")
        built.append(source)
        return make(context, source, *args, **kwargs)

    monkeypatch.setattr(programs, "make", one_at_a_time)
    with one_program():
        kernels = {n: compile_kernels([adding(n)], runtime_context())["k"] for n in (1501, 1502)}
    assert len(built) == 2
    for n, kernel in kernels.items():
        a = zero()
        kernel.call(1, 1, a)
        assert a.get()[0] == n


# When


def test_outside_of_functions_kernels_are_built_at_once(built):
    compile_kernels([adding(1601)], runtime_context())
    assert len(built) == 1
    compile_kernels([adding(1601)], runtime_context())
    assert len(built) == 1


def test_who_launches_before_the_end_does_not_wait(built):
    with one_program():
        first = compile_kernels([adding(1701)], runtime_context())["k"]
        compile_kernels([adding(1702)], runtime_context())
        a = zero()
        first.call(1, 1, a)
        assert a.get()[0] == 1701
        assert len(built) == 1
    assert len(built) == 2
    assert "1701" not in built[1]


def test_what_a_failed_compilation_left_is_built_when_it_is_needed(built):
    with pytest.raises(ZeroDivisionError), one_program():
        first = compile_kernels([adding(1801)], runtime_context())["k"]
        raise ZeroDivisionError
    assert built == []
    second = compile_kernels([adding(1801)], runtime_context())["k"]
    assert len(built) == 1
    a = zero()
    first.call(1, 1, a)
    second.call(1, 1, a)
    assert a.get()[0] == 3602


def test_inner_functions_do_not_build():
    with one_program():
        with one_program():
            kernel = compile_kernels([adding(1901)], runtime_context())["k"]
        assert not kernel._is_attached
    assert kernel._is_attached


# Errors


@pytest.mark.slow
def test_an_error_comes_with_the_function_and_shows_the_code_that_is_wrong():
    with pytest.raises(BuildError) as caught:
        chain(Adding(2001), Adding(2002, "y[i] = never_declared;"), Adding(2003))
    message, source = str(caught.value), caught.value.source
    assert message.startswith("Adding (kernels: add) does not build on ")
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "never_declared" in text)
    assert f"{line}              if (i < n) {{ y[i] = never_declared; }}" in message
    assert f":{line}:" in caught.value.log
    assert "2002" in message
    assert "2001" not in message
    assert PRELUDE not in message
    f = chain(Adding(2001), Adding(2003))
    np.testing.assert_array_equal(np.asarray(f(VALUE)), VALUE + 4004)


@pytest.mark.slow
def test_an_error_comes_each_time():
    for _ in range(2):
        with pytest.raises(BuildError, match="never_declared"):
            chain(Adding(2101), Adding(2102, "y[i] = never_declared;"))


@pytest.mark.parametrize(
    ("kernel", "error", "says"),
    [
        (adding(2202, params=(BUFFER, SIZE)), KernelArgumentError, "takes 1 parameters in its code, but .* describe 2"),
        (adding(2202, name="other"), ValueError, r"kernel 'other' is not declared in its code, which declares \['k'\]"),
    ],
)
def test_kernels_that_are_not_what_was_said_of_them(kernel, error, says):
    for _ in range(2):
        with pytest.raises(error, match=says), one_program():
            compile_kernels([adding(2201)], runtime_context())
            compile_kernels([kernel], runtime_context())
    a = zero()
    compile_kernels([adding(2202)], runtime_context())["k"].call(1, 1, a)
    assert a.get()[0] == 2202


# Sharing


def test_kernels_that_are_the_same_are_launched_by_one():
    one, two = (compile_kernels([adding(2301)], runtime_context())["k"] for _ in range(2))
    assert one is two
    other = Kernel(adding(2301).code, "k", ["*"])
    with pytest.raises(KernelArgumentError, match="takes 1 parameters"):
        compile_kernels([other], runtime_context())


def test_threads_launch_the_same_kernel():
    code = "KERNEL void k(GLOBAL_MEM int *a, ga_int n) { a[0] += n; }"
    kernel = compile_kernels([Kernel(code, "k", [BUFFER, "int32"])], runtime_context())["k"]
    arrays = [zero() for _ in range(4)]

    def work(number):
        for _ in range(300):
            kernel.call(1, 1, arrays[number], number + 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a.get()[0] for a in arrays] == [300, 600, 900, 1200]


@pytest.mark.slow
def test_threads_compile_at_the_same_time(built):
    results = {}

    def work(number):
        f = chain(Adding(2401), Adding(2402 + number))
        results[number] = np.asarray(f(VALUE))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        np.testing.assert_array_equal(results[number], VALUE + 4803 + number)
    assert sum(source.count("N 2401\n") for source in built) == 1


def test_a_thread_adds_a_kernel_to_a_unit_that_another_one_builds(monkeypatch):
    context, attach, others, results = Context("opencl"), programs.TranslationUnit._attach, [], []
    code = "KERNEL void k(GLOBAL_MEM int *a) { a[0] += 2451; }\nKERNEL void l(GLOBAL_MEM int *a) { a[0] += 2452; }"

    def add():
        kernel = compile_kernels([Kernel(code, "l", [BUFFER])], context)["l"]
        value = zero(context)
        kernel.call(1, 1, value)
        results.append(int(value.get()[0]))

    def slow_attach(unit, launcher, program):
        attach(unit, launcher, program)
        if not others:
            others.append(threading.Thread(target=add))
            others[0].start()
            others[0].join(0.2)

    monkeypatch.setattr(programs.TranslationUnit, "_attach", slow_attach)
    compile_kernels([Kernel(code, "k", [BUFFER])], context)["k"].call(1, 1, zero(context))
    others[0].join(60)
    assert results == [2452]


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_a_context_takes_its_programs_along():
    context = Context("opencl")
    compile_kernels([adding(2501)], context)["k"].call(1, 1, zero(context))
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None


# All ops


def nodes_of(run):
    """Yield the nodes with kernels that one run of the memory checker computes."""
    variables, arrays = [], []
    for given in run.case.inputs:
        if isinstance(given, Given):
            variable = OpenCLArrayType(given.dtype(run.turn), [length == 1 for length in given.shape], "dev0")()
            arrays.append(variable)
        else:
            fixed = isinstance(given, Number)
            variable = tt.constant(np.asarray(given.value, run.dtype)) if fixed else given
        variables.append(variable)
    results = run.case.op(*variables)
    for node in io_toposort(arrays, results if isinstance(results, list | tuple) else [results]):
        if isinstance(node.op, OpenCLKernelBase):
            yield node


@pytest.mark.thorough_cases("gpu")
@pytest.mark.slow
@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
@pytest.mark.filterwarnings("ignore:Tile op is deprecated")
def test_the_kernels_of_all_ops_can_stand_in_one_program(built, monkeypatch, default, device_kind):
    context = get_context(default)
    profile = context.profile.as_kind(device_kind)
    # If a driver can compile several programs concurrently, the kernels would be divided into several programs.
    profile = replace(profile, quirks=replace(profile.quirks, builds_side_by_side=False))
    monkeypatch.setattr(context, "profile", profile)
    monkeypatch.setattr(context, "kept", {})
    with one_program():
        for case in CASES:
            for run in {run.turn: run for run in case.runs()}.values():
                if all(context.unsupported_reason(given.dtype(run.turn)) is None for given in case.arrays):
                    for node in nodes_of(run):
                        node.op.compiled_kernels(node)
    assert len(built) == 1
    units = context.kept[programs.__name__]
    assert len(units) > 100
    assert [unit.title for unit in units.values() if not unit.built] == []
    if device_kind == "cpu":  # on a processor, no kernel has items that synchronize
        assert [title for unit in units.values() for title in left_together(unit)] == []


def left_together(unit):
    """Yield the names of a program's chunk kernels whose bodies were not moved to functions."""
    _, names = outlined(unit.code)
    for name in re.findall(r"OUTLINED_KERNEL void (\w+)", unit.code):
        if name not in names:
            yield f"{unit.title}: {name}"
