"""Functions run in Python until their C code is built."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import pickle
import signal
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import vm
from theano.ifelse import ifelse
from theano.scan_module.scan_op import Scan

import optdb
from optdb.host.theano.clinker import plug
from optdb.host.theano.clinker.tiers import turns
from optdb.host.theano.clinker.tiers.background import background
from optdb.host.theano.clinker.tiers.machines import TieredMachine, exchange_of
from optdb.host.theano.clinker.tiers.thunks import CompilerWarning
from tests.interrupts import ctrl_c_interrupts, interrupted_everywhere  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")

VECTOR = np.arange(3.0)


def compiled(inputs, outputs, linker="cvm", **options):
    return theano.function(inputs, outputs, mode=theano.Mode(linker, None), **options)


@pytest.mark.slow
@pytest.mark.parametrize("linker", ["cvm", "vm", "cvm_nogc", "vm_nogc"])
def test_a_function_changes_over_between_two_calls(gate, times, linker):
    x = tt.dvector()
    w = theano.shared(np.ones(3))
    f = compiled([x], [times(2)(x), times(3)(x + w)], linker, updates=[(w, times(4)(w))])
    begun = optdb.tier(f)
    assert (begun.modules_left >= 3, begun.in_python >= 3, begun.done) == (True, True, False)
    in_python = f(VECTOR)
    kind, before = type(f.fn), w.get_value()
    gate.is_open.set()
    status = optdb.wait(f)
    assert status == optdb.tier(f)
    assert (status.in_python, status.modules_left, status.done) == (0, 0, True)
    # Only functions with a linker `cvm...` have a virtual machine in C.
    assert (type(f.fn) is vm.CVM) if linker.startswith("cvm") else (type(f.fn) is kind)
    w.set_value(np.ones(3))
    for one, other in zip(f(VECTOR), in_python, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(w.get_value(), before)


@pytest.mark.slow
def test_the_next_call_changes_over_without_wait(gate, times):
    x = tt.dvector()
    f = compiled([x], times(2)(x))
    f(VECTOR)
    pending = [thunk.job for thunk in exchange_of(f.fn).changing]
    gate.is_open.set()
    assert background.wait(pending)
    assert optdb.tier(f).in_c == 0
    np.testing.assert_array_equal(f(VECTOR), 2 * VECTOR)
    assert type(f.fn) is vm.CVM
    assert optdb.tier(f).in_python == 0


def test_values_returned_in_the_first_tier_stay(gate, times):
    x = tt.dvector()
    f = compiled([x], times(2)(x))
    first = f(VECTOR)
    f(VECTOR + 1)
    np.testing.assert_array_equal(first, 2 * VECTOR)


@pytest.mark.slow
@pytest.mark.parametrize("linker", ["cvm", "cvm_nogc"])
def test_memory_that_python_code_shared_is_not_overwritten_by_c(gate, times, linker):
    class Alias(times):
        def perform(self, node, inputs, outputs):
            outputs[0][0] = inputs[0]  # wrong, but C code must not make it worse

    x = tt.dvector()
    w = theano.shared(np.ones(3))
    f = compiled([x], theano.Out(Alias(1)(w) + x, borrow=True), linker)
    f(VECTOR)
    gate.is_open.set()
    optdb.wait(f)
    w.set_value(np.ones(3) * 5)
    f(VECTOR)
    np.testing.assert_array_equal(w.get_value(), 5)


@pytest.mark.slow
def test_only_the_chosen_branch_is_computed(gate, times):
    ran = []

    class Noted(times):
        def perform(self, node, inputs, outputs):
            ran.append(self.factor)
            super().perform(node, inputs, outputs)

    x, condition = tt.dvector(), tt.bscalar()
    f = compiled([condition, x], ifelse(condition, Noted(2)(x), Noted(3)(x)))
    np.testing.assert_array_equal(f(1, VECTOR), 2 * VECTOR)
    assert ran == [2]
    gate.is_open.set()
    optdb.wait(f)
    np.testing.assert_array_equal(f(0, VECTOR), 3 * VECTOR)
    np.testing.assert_array_equal(f(1, VECTOR), 2 * VECTOR)
    assert ran == [2]


@pytest.mark.slow
def test_a_profile_counts_each_node_before_and_after(gate, times):
    x = tt.dvector()
    f = compiled([x], times(3)(times(2)(x)), profile=True)
    f.profile.ignore_first_call = False
    for _ in range(3):
        f(VECTOR)
    gate.is_open.set()
    optdb.wait(f)
    for _ in range(2):
        f(VECTOR)
    nodes = [node for node in f.maker.fgraph.toposort() if isinstance(node.op, times)]
    assert [f.profile.apply_callcount[node] for node in nodes] == [5, 5]
    assert all(f.profile.apply_cimpl[node] for node in nodes)
    f.profile.print_summary_ = False


@pytest.mark.slow
def test_repeated_calls_of_the_machine_update_each_time(gate, times):
    w = theano.shared(np.ones(3))
    f = compiled([], [], updates=[(w, times(2)(w))])
    f.fn(n_calls=3)
    np.testing.assert_array_equal(w.get_value(), 8)
    gate.is_open.set()
    optdb.wait(f)
    f.fn(n_calls=3)
    np.testing.assert_array_equal(w.get_value(), 64)


def test_copies_and_pickles_begin_in_the_first_tier(gate, times):
    x = tt.dvector()
    w = theano.shared(np.ones(3))
    f = compiled([x], times(2)(x) + w, updates=[(w, w + 1)])
    f(VECTOR)
    for other in (f.copy(), f.copy(share_memory=True), copy.copy(f)):
        np.testing.assert_array_equal(other(VECTOR)[0], 2 * VECTOR + w.get_value() - 1)
        assert not optdb.tier(other).done


def test_a_function_of_theanos_ops_is_pickled_in_the_first_tier(gate):
    x = tt.dvector()
    f = compiled([x], x * 2.5 + next_number())
    expected = f(VECTOR)
    loaded = pickle.loads(pickle.dumps(f))
    np.testing.assert_array_equal(loaded(VECTOR), expected)


def next_number():
    return 0.123456789 + np.random.default_rng().random()


def in_threads(*calls):
    """Make each call in a separate thread, and switch often between threads; raise the errors of the calls."""
    errors = []

    def run(call):
        try:
            call()
        except Exception as error:
            errors.append(error)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert not errors


def without_modules(gate, *functions):
    """Make the compilation of the functions' modules fail."""
    gate.fails = True
    gate.is_open.set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilerWarning)
        assert all(optdb.wait(function).modules_failed for function in functions)


@pytest.mark.slow_cases("failed")
@pytest.mark.parametrize("state", ["pending", "failed"])
def test_threads_that_call_a_function_take_turns(gate, times, state):
    x = tt.dvector()
    f = compiled([x], times(3)(times(2)(x) + x))
    if state == "failed":
        without_modules(gate, f)

    def call(number):
        for n in range(100):
            argument = np.full(1 + n % 4, float(number * 1000 + n))
            np.testing.assert_array_equal(f(argument), 9 * argument)

    in_threads(*(functools.partial(call, number) for number in range(4)))


@pytest.mark.parametrize("other", ["copy", "shared copy", "other function"])
def test_functions_of_one_variable_take_turns(gate, times, other):
    w = theano.shared(np.zeros(3))
    f = compiled([], w * 1, updates=[(w, times(1)(w) + 1)])
    others = {
        "copy": f.copy,
        "shared copy": functools.partial(f.copy, share_memory=True),
        "other function": lambda: compiled([], [], updates=[(w, times(1)(w) + 1)]),
    }
    g = others[other]()
    in_threads(*(lambda call=call: [call() for _ in range(100)] for call in (f, g)))
    np.testing.assert_array_equal(w.get_value(), 200)


@pytest.mark.slow
def test_an_op_without_python_code_waits_for_its_module_alone(gate, times, times_in_c):
    x = tt.dvector()
    f = compiled([x], times_in_c(2)(x))
    gate.is_open.set()
    np.testing.assert_array_equal(f(VECTOR), 2 * VECTOR)
    np.testing.assert_array_equal(f(VECTOR), 2 * VECTOR)
    assert type(f.fn) is vm.CVM


def test_a_compiler_that_fails_warns_once_and_python_goes_on(gate, times):
    x = tt.dvector()
    f = compiled([x], times(2)(x))
    gate.fails = True
    gate.is_open.set()
    with pytest.warns(CompilerWarning, match=r"(?s)Times.*The cure: .*optdb\.tiered=False"):
        status = optdb.wait(f)
    assert (status.in_c, status.modules_failed, status.done) == (0, 1, True)
    assert "1 not built" in str(status)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(f(VECTOR), 2 * VECTOR)


@pytest.mark.usefixtures("alone")
def test_compilers_of_a_dropped_function_are_killed(gate, times):
    x = tt.dvector()
    f = compiled([x], times(2)(x))
    assert gate.started.wait(10)
    dropped = weakref.ref(f)
    del f
    gc.collect()
    assert dropped() is None
    assert gate.cancelled.wait(10)


def test_waiting_ends_with_the_time(gate, times):
    x = tt.dvector()
    f = compiled([x], times(2)(x))
    with pytest.raises(TimeoutError, match=r"(?s)1 of 1 modules.*The cure"):
        optdb.wait(f, timeout=0.05)
    np.testing.assert_array_equal(f(VECTOR), 2 * VECTOR)


def test_waiting_for_a_machine_whose_turn_is_none_ends_at_once(gate):
    gate.is_open.set()  # if the cache is empty, the module that copies the input has to be built
    x = tt.dvector()
    f = compiled([x], x, "cvm")
    optdb.wait(f)
    f.fn.turn = None  # the value after `import optdb.opencl`
    assert optdb.wait(f).done


def test_tier_refuses_what_is_no_function():
    for ask in (optdb.tier, optdb.wait):
        with pytest.raises(TypeError, match=r"expected a function compiled by theano\.function, not int"):
            ask(3)


def test_other_linkers_wait_for_their_code(gate, times):
    gate.is_open.set()
    x = tt.dvector()
    f = compiled([x], x + 1, "c|py")
    np.testing.assert_array_equal(f(VECTOR), VECTOR + 1)
    with pytest.raises(ValueError, match=r"(?s)c\|py.*The cure"):
        optdb.mode(theano.Mode("c|py"), tiered=True)
    with pytest.raises(ValueError, match="tiered=True"):
        optdb.mode(device="opencl", tiered=True)


def by_enable_and_disable(*args, **options):
    optdb.enable(tiered=True)
    try:
        return theano.function(*args, **options)
    finally:
        optdb.disable()


def by_context(*args, **options):
    with optdb.enable(tiered=True):
        return theano.function(*args, **options)


def by_mode(*args, mode, **options):
    return theano.function(*args, mode=optdb.mode(mode, tiered=True), **options)


@pytest.mark.slow
@pytest.mark.parametrize("way", [by_mode, by_context, by_enable_and_disable])
def test_a_function_changes_over_where_theanos_linker_is_back(gate, times, way):
    x = tt.dvector()
    with theano.change_flags(**{"optdb.tiered": False}):
        plug.uninstall()
        try:
            f = way([x], times(2)(x), mode=theano.Mode("cvm", None))
            plug.uninstall()  # with the flags of tests, the engine does not do this
            gate.is_open.set()
            assert optdb.wait(f).in_python == 0
            np.testing.assert_array_equal(f(VECTOR), 2 * VECTOR)
        finally:
            plug.install()


@pytest.mark.parametrize("linker", ["cvm", "vm", "vm_nogc"])
def test_a_function_without_a_compiler_is_protected(times, linker):
    plug.install()
    w = theano.shared(np.zeros(3))
    with theano.configparser.change_flags(cxx="", **{"optdb.tiered": True}):
        f = compiled([], [], linker, updates=[(w, times(1, in_place=True)(w) + 1)], accept_inplace=True)
    assert isinstance(f.fn, TieredMachine)
    assert f.fn.turn is turns.uninterrupted
    status = optdb.wait(f)
    assert (status.in_c, status.modules_failed, status.done) == (0, 0, True)


def test_the_inner_function_of_a_function_without_tiers_has_none(gate, times):
    gate.is_open.set()
    x = tt.dvector()
    f = compiled([x], theano.scan(lambda last: last + 1, outputs_info=x, n_steps=2)[0], "c|py")
    (scan,) = (node for node in f.maker.fgraph.apply_nodes if isinstance(node.op, Scan))
    assert exchange_of(scan.op.fn.fn) is None


def test_a_mode_and_enable_turn_tiers_on(gate, times):
    x = tt.dvector()
    with theano.change_flags(**{"optdb.tiered": False}):
        f = theano.function([x], times(2)(x), mode=optdb.mode(tiered=True))
        with optdb.enable(tiered=True):
            g = theano.function([x], times(2)(x))
        assert not theano.config.optdb.tiered
    assert not optdb.tier(f).done
    assert not optdb.tier(g).done


@pytest.mark.slow
@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_a_scan_changes_over(gate, times, linker):
    x = tt.dmatrix()
    factor = times(2)
    steps, _ = theano.scan(lambda row, last: factor(row) + last, sequences=[x], outputs_info=[tt.zeros(3)])
    f = compiled([x], [steps, steps[-1] * next_number()], linker)
    rows = np.arange(12.0).reshape(4, 3)
    in_python = f(rows)
    gate.is_open.set()
    status = optdb.wait(f)
    assert (status.in_python, status.done) == (0, True)
    for one, other in zip(f(rows), in_python, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.slow
def test_an_error_names_its_node_in_both_tiers(gate, times):
    class Raises(times):
        def perform(self, node, inputs, outputs):
            raise ValueError("wrong")

        def c_code(self, node, name, inputs, outputs, sub):
            return f'/* {self.number} */ PyErr_SetString(PyExc_ValueError, "wrong"); {sub["fail"]}'

    x = tt.dvector()
    f = compiled([x], Raises(2)(times(3)(x)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"(?s)wrong.*Apply node that caused the error: Raises"):
            f(VECTOR)
        gate.is_open.set()
        optdb.wait(f)


def test_cells_of_a_notebook_are_not_held_up(gate, times):
    """Notebook kernels run cells in the event loop of the main thread, which also answers messages between cells."""
    namespace = {"theano": theano, "optdb": optdb, "times": times, "x": tt.dvector(), "VECTOR": VECTOR}
    answered = []

    async def answer():
        while True:
            answered.append(len(answered))
            await asyncio.sleep(0)

    def run(cell):
        exec(compile(cell, "<cell>", "exec"), namespace)

    async def notebook():
        messages = asyncio.create_task(answer())
        run("f = theano.function([x], times(2)(x), mode=theano.Mode('cvm', None))\nfirst = f(VECTOR)")
        await asyncio.sleep(0.05)
        assert answered  # while compilers wait
        assert not optdb.tier(namespace["f"]).done
        gate.is_open.set()
        before = len(answered)
        run("second = f(VECTOR)")
        await asyncio.to_thread(run, "status = optdb.wait(f)")
        assert len(answered) > before
        run("third = f(VECTOR)")
        messages.cancel()

    asyncio.run(notebook())
    assert namespace["status"].done
    for name in ("first", "second", "third"):
        np.testing.assert_array_equal(namespace[name], 2 * VECTOR)


@pytest.mark.slow
def test_an_interrupt_in_a_cell_stops_it(gate, times):
    """IPython interrupts its main thread with SIGINT; the next cell calls the same function."""

    class Interrupted(times):
        def perform(self, node, inputs, outputs):
            super().perform(node, inputs, outputs)
            signal.raise_signal(signal.SIGINT)

    x = tt.dvector()
    f = compiled([x], Interrupted(2)(x))

    async def cell():
        return f(VECTOR)

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
        gate.is_open.set()
        optdb.wait(f)
        np.testing.assert_array_equal(loop.run_until_complete(cell()), 2 * VECTOR)
    finally:
        loop.close()


@pytest.mark.parametrize("state", ["pending", "failed"])
@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_an_interrupt_leaves_all_next_values_or_none(gate, times, linker, state):
    class Interrupted(times):
        def perform(self, node, inputs, outputs):
            (x,) = inputs
            x *= self.factor
            outputs[0][0] = x
            signal.raise_signal(signal.SIGINT)

    v, w = theano.shared(np.ones(3)), theano.shared(np.ones(3))
    updates = [(v, Interrupted(2, in_place=True)(v)), (w, Interrupted(3, in_place=True)(w))]
    f = compiled([], [], linker, updates=updates, accept_inplace=True)
    if state == "failed":
        without_modules(gate, f)
    with pytest.raises(KeyboardInterrupt):
        f()
    np.testing.assert_array_equal([v.get_value(), w.get_value()], [[2] * 3, [3] * 3])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_an_interrupt_at_any_event_leaves_all_next_values_or_none(gate, times, linker):
    v, w = theano.shared(np.zeros(3)), theano.shared(np.zeros(3))
    f = compiled([], [], linker, updates=[(v, times(1)(v) + 1), (w, times(1)(w) + 1)])
    without_modules(gate, f)
    for _ in interrupted_everywhere(f):
        np.testing.assert_array_equal(v.get_value(), w.get_value())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_threads(f)  # this would wait forever if a thread still held the lock


def test_an_interrupt_while_code_is_put_in_place_leaves_the_function_pending(gate, times, monkeypatch):
    x = tt.dvector()
    f = compiled([x], times(2)(x))
    (thunk,) = (thunk for thunk in exchange_of(f.fn).changing if isinstance(thunk.node.op, times))

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(thunk, "_make_in_c", interrupted)
    monkeypatch.setattr(type(thunk.job), "is_over", True)
    with pytest.raises(KeyboardInterrupt):
        thunk.change_over()
    assert thunk.is_pending
