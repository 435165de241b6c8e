"""With every virtual machine, a call that raises leaves the shared variables of a device function unchanged."""

from __future__ import annotations

import functools
import itertools
import pickle
import random

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

import optdb  # noqa: F401  comes before theano
from optdb.opencl import get_context
from optdb.opencl.linking.overwriting import overwrites_state, state_of
from optdb.opencl.type import OpenCLArrayType
from tests.effort import examples
from tests.interrupts import ctrl_c_interrupts, interrupt_at, is_free  # noqa: F401 (a fixture)
from tests.opencl.simulator.execution.test_half_changed import ClaimsOneRow

pytestmark = [pytest.mark.optimized, pytest.mark.usefixtures("default", "engine_where_quick", "without_compiler")]

LENGTH = 4


class Refuses(theano.Op):
    """An op that returns a host number, or raises if the number is large."""

    __props__ = ()

    def make_node(self, i):
        return theano.Apply(self, [tt.as_tensor_variable(i)], [tt.fscalar()])

    def perform(self, node, inputs, outputs, params=None):
        if inputs[0] > LENGTH:
            raise ValueError("a large number")
        outputs[0][0] = np.asarray(inputs[0], "float32")

    def infer_shape(self, node, shapes):
        return shapes


#: Functions that return an expression; computing it raises if `i` is large, or if `e` has another length than `v`.
RAISING = {
    "index": lambda v, e, i: tt.set_subtensor(v[i], np.float32(7)),
    "indexes": lambda v, e, i: tt.inc_subtensor(v[tt.stack([0, i])], np.float32(7)),
    "shape": lambda v, e, i: v + e,
    "host op": lambda v, e, i: v + Refuses()(i),
    "assert": lambda v, e, i: v * tt.opt.Assert("a large number")(tt.cast(i, "float32"), tt.lt(i, LENGTH)),
}


def first_sums(v):
    """Return a multiple of a vector, computed by a loop whose condition is read from the device in each step."""
    step = lambda total: (total + v, theano.scan_module.until((total + v).sum() > 1e6))  # noqa: E731
    totals, _ = theano.scan(step, outputs_info=[tt.zeros_like(v)], n_steps=3)
    return totals.sum(axis=0)


#: Functions that return the updates of two variables; `raising` returns a vector whose computation may raise.
UPDATES = {
    "one": lambda v, w, e, i, raising: [(v, raising(tt.set_subtensor(v[:2], e[0]), e, i))],
    "two": lambda v, w, e, i, raising: [(v, v + e[0]), (w, raising(w, e, i))],
    "replaced": lambda v, w, e, i, raising: [(v, e[:LENGTH] * 2), (w, raising(w, e, i))],
    "part": lambda v, w, e, i, raising: [(w, raising(w, e, i)), (v, tt.inc_subtensor(v[1:], e[0]))],
    "loop": lambda v, w, e, i, raising: [(v, v + e[0]), (w, raising(first_sums(v + e[0]), e, i))],
    "branch": lambda v, w, e, i, raising: [(v, v + e[0]), (w, ifelse(tt.gt(i, 0), raising(w, e, i), w))],
}
OUTPUTS = {
    "none": lambda v, w, e: [],
    "present": lambda v, w, e: [v + 1],
    "next": lambda v, w, e: [(v + e[0]).sum(), v + e[0]],
    "both": lambda v, w, e: [v + w],
}
LINKERS = ["cvm", "vm", "py"]
WAYS = ["target", "lifted", "without plans"]
HOST = "host", "py"


@pytest.fixture(scope="module", autouse=True)
def without_compiler():
    """Do not compile C for nodes that stay on the host: it takes longer than the rest."""
    with theano.configparser.change_flags(cxx=""):
        yield


def made(way, linker, update, output, raising):
    """Return shared variables, and a function that updates them; its arguments are a vector and a number."""
    # Without a target, arrays are in the default context, which is that of the flag optdb.device.
    targets = {"lifted": {"target": "cpu"}, "host": {"target": "cpu"}, "flag": {}}
    options = targets.get(way, {"target": "dev0"})
    v, w = (theano.shared(np.arange(LENGTH, dtype="float32") + k, f"v{k}", **options) for k in range(2))
    e, i = tt.fvector("e"), tt.lscalar("i")
    products = [tt.dot(tt.outer(e, e), tt.outer(e, e))] if way in ("lifted", "host") else []  # worth a transfer
    results = [out.transfer("cpu") for out in (*OUTPUTS[output](v, w, e), *products)]
    with theano.configparser.change_flags(**{"optdb.plans": way != "without plans"}):
        f = theano.function(
            *([e, i], results),
            updates=UPDATES[update](v, w, e, i, RAISING[raising]),
            mode=theano.Mode(linker, "fast_run").including(*["opencl"] if way != "host" else []),
            on_unused_input="ignore",
        )
    is_on_device = any(isinstance(var.type, OpenCLArrayType) for var in f.maker.fgraph.variables)
    assert is_on_device == (way != "host")
    return [v, w], f


@functools.cache
def made_on_host(update, output, raising):
    """Return variables, their initial values, and the host's function, with which all other functions are compared."""
    variables, f = made(*HOST, update, output, raising)
    return variables, [var.get_value() for var in variables], f


def check(way, linker, update, output, raising):
    variables, f = made(way, linker, update, output, raising)
    wanted, first, on_host = made_on_host(update, output, raising)
    for var, value in zip(wanted, first, strict=True):
        var.set_value(value)
    good = np.full(LENGTH, 2, "float32"), 1
    wrong = (np.full(LENGTH + 1, 3, "float32"), 1) if raising == "shape" else (good[0], 100)
    for call in (wrong, good, wrong, good, good, wrong, wrong, good):
        before = [np.array(var.get_value()) for var in variables]
        if call is good:
            for result, value in zip(f(*call), on_host(*call)):  # the function on the device may have one more result
                np.testing.assert_allclose(result, value, rtol=1e-6)
            before = [var.get_value() for var in wanted]
        else:
            with pytest.raises((IndexError, ValueError, AssertionError)):
                f(*call)
        for var, value in zip(variables, before, strict=True):
            np.testing.assert_array_equal(np.array(var.get_value()), value)


COMBINATIONS = [
    combination
    for combination in itertools.product(WAYS, LINKERS, UPDATES, OUTPUTS, RAISING)
    if not (combination[2] == "replaced" and combination[4] == "shape")
]


@pytest.mark.thorough_cases("target-vm", "target-py", "lifted-py", "lifted-vm", "without plans-cvm", "without plans-vm")
@pytest.mark.slow
@pytest.mark.parametrize("way, linker", list(itertools.product(WAYS, LINKERS)))
def test_a_call_that_raises_changes_nothing_in_any_combination(way, linker):
    combinations = [combination for combination in COMBINATIONS if combination[:2] == (way, linker)]
    for combination in random.Random(f"{way} {linker}").sample(combinations, examples(len(combinations), share=8)):
        check(*combination)


@pytest.mark.parametrize(
    "combination",
    [
        ("target", "cvm", "replaced", "present", "index"),
        ("target", "cvm", "two", "next", "assert"),
        ("target", "vm", "two", "none", "host op"),
        ("lifted", "cvm", "two", "present", "shape"),
        ("target", "cvm", "loop", "none", "indexes"),
        ("flag", "cvm", "branch", "next", "host op"),
        ("target", "py", "one", "none", "indexes"),
        ("without plans", "cvm", "part", "both", "index"),
    ],
)
def test_a_call_that_raises_changes_nothing(combination):
    check(*combination)


def test_a_node_that_runs_last_and_alone_may_overwrite_state():
    v, w = (theano.shared(np.ones(LENGTH, "float32"), target="dev0") for _ in range(2))
    e = tt.fvector("e")
    for linker, updates, overwrites in [
        ("py", [(v, v * 2)], True),
        ("py", [(v, v * 2), (w, w * 2)], False),
        ("cvm", [(v, v * 2), (w, w * 2)], True),
        ("py", [(v, tt.set_subtensor(v[:2], e.sum()))], True),
    ]:
        mode = theano.Mode(linker, "fast_run").including("opencl")
        f = theano.function([e], updates=updates, mode=mode, on_unused_input="ignore")
        assert overwrites_state(f.maker.fgraph, state_of(f.maker.fgraph)) == overwrites, (linker, updates)


def test_another_order_of_nodes_overwrites_nothing():
    """If the order of nodes is not optdb's, no node overwrites state, because a later node could raise."""
    v, w = (theano.shared(np.ones(LENGTH, "float32"), target="dev0") for _ in range(2))
    linker = theano.gof.vm.VM_Linker(use_cloop=True, schedule=lambda fgraph: fgraph.toposort())
    mode = theano.Mode(linker, "fast_run").including("opencl")
    f = theano.function([], (w + 1).transfer("cpu"), updates=[(v, v * 2), (w, v + w)], mode=mode)
    assert not overwrites_state(f.maker.fgraph, state_of(f.maker.fgraph))
    np.testing.assert_array_equal(f(), [2] * LENGTH)
    np.testing.assert_array_equal(w.get_value(), [2] * LENGTH)


@pytest.mark.parametrize("plans", [True, False])
def test_copies_and_pickled_functions_keep_state(plans):
    with theano.configparser.change_flags(**{"optdb.plans": plans}):
        variables, f = made("target", "cvm", "replaced", "present", "index")
        new = [theano.shared(np.full(LENGTH, 5, "float32"), target="dev0") for _ in variables]
        swapped = f.copy(swap=dict(zip(variables, new, strict=True)))
        loaded = pickle.loads(pickle.dumps(f))
    inside = loaded.get_shared()
    for function, shared in [(f, variables), (swapped, new), (loaded, inside)]:
        before = [np.array(var.get_value()) for var in shared]
        for _ in range(3):
            with pytest.raises(IndexError):
                function(np.ones(LENGTH, "float32"), 100)
        for var, value in zip(shared, before, strict=True):
            np.testing.assert_array_equal(np.array(var.get_value()), value)


class ChoosesLazily(theano.Op):
    """A lazy op that returns the first vector, unless the second vector is requested."""

    __props__ = ()

    def make_node(self, x):
        return theano.Apply(self, [tt.as_tensor_variable(x)], [x.type()])

    def make_thunk(self, node, storage_map, compute_map, no_recycling, impl=None):
        x, out = storage_map[node.inputs[0]], storage_map[node.outputs[0]]

        def thunk():
            if not compute_map[node.inputs[0]][0]:
                return [0]
            out[0] = x[0].copy()
            compute_map[node.outputs[0]][0] = 1
            return []

        thunk.lazy = True
        thunk.inputs, thunk.outputs = [x], [out]
        return thunk


def test_a_function_with_lazy_ops_of_the_user_keeps_state():
    """Theano's virtual machine computes lazy ops; it holds no commands back, so no node overwrites state."""
    v, w = (theano.shared(np.ones(LENGTH, "float32"), target="dev0") for _ in range(2))
    e, i = tt.fvector("e"), tt.lscalar("i")
    updates = [(v, v * 2), (w, tt.set_subtensor(w[i], np.float32(7)))]
    f = theano.function([e, i], ChoosesLazily()(e), updates=updates, mode=theano.Mode("cvm").including("opencl"))
    assert not overwrites_state(f.maker.fgraph, state_of(f.maker.fgraph))
    with pytest.raises(IndexError):
        f(np.ones(3, "float32"), 100)
    np.testing.assert_array_equal(v.get_value(), [1] * LENGTH)
    np.testing.assert_array_equal(f(np.ones(3, "float32"), 1), [1] * 3)
    np.testing.assert_array_equal(v.get_value(), [2] * LENGTH)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("target", ["cpu", "dev0"])
@pytest.mark.parametrize("plans, linker", [(True, "cvm"), (False, "cvm"), (True, "vm"), (True, "py")])
def test_a_next_value_that_breaks_its_type_changes_nothing(plans, linker, target, is_last):
    v = theano.shared(np.arange(LENGTH, dtype="float32"), target="dev0")
    row = theano.shared(np.zeros((1, 3), "float32"), broadcastable=(True, False), target=target)
    m = tt.fmatrix("m")
    updates = [(v, tt.inc_subtensor(v[:2], np.float32(1))), (row, ClaimsOneRow()(m))][:: 1 if is_last else -1]
    with theano.configparser.change_flags(**{"optdb.plans": plans}):
        f = theano.function([m], updates=updates, mode=theano.Mode(linker, "fast_run").including("opencl"))
    for number in range(3):
        with pytest.raises(ValueError, match=r"length 1|supposed to be 1"):
            f(np.ones((2, 3), "float32"))
        np.testing.assert_array_equal(v.get_value(), [number, 1 + number, 2, 3])
        assert row.get_value().shape == (1, 3)
        f(np.full((1, 3), number, "float32"))
        np.testing.assert_array_equal(row.get_value(), np.full((1, 3), number))


def test_state_of_random_generators_is_kept():
    """In a function with arrays on a device, a generator on the host also advances only in complete calls."""
    generator = tt.shared_randomstreams.RandomStreams(1)
    v = theano.shared(np.ones(LENGTH, "float32"), target="dev0")
    i = tt.lscalar("i")
    drawn = tt.cast(generator.uniform((LENGTH,)), "float32")
    f = theano.function([i], drawn, updates=[(v, tt.set_subtensor(v[i], drawn[0]))])
    numbers = f(1)
    with pytest.raises(IndexError):
        f(100)
    state = generator.state_updates[0][0].get_value(borrow=True)
    other = np.random.RandomState()
    other.set_state(state.get_state())
    assert (f(1) == other.uniform(size=LENGTH).astype("float32")).all()
    assert (numbers != f(1)).all()


def test_a_number_on_the_host_is_kept():
    count = theano.shared(np.arange(LENGTH), "count")
    v = theano.shared(np.ones(LENGTH, "float32"), target="dev0")
    i = tt.lscalar("i")
    updates = [(count, tt.inc_subtensor(count[:2], 1)), (v, tt.set_subtensor(v[i], np.float32(7)))]
    f = theano.function([i], updates=updates)
    for _ in range(2):
        with pytest.raises(IndexError):
            f(100)
    np.testing.assert_array_equal(count.get_value(), np.arange(LENGTH))
    f(1)
    np.testing.assert_array_equal(count.get_value(), [1, 2, 2, 3])


@pytest.mark.pairwise
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("ctrl_c_interrupts")
@pytest.mark.parametrize("stride", [pytest.param(11, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("plans", [True, False], ids=["plans", "no plans"])
@pytest.mark.parametrize("linker", ["cvm", "vm"])
def test_an_interrupt_stores_all_next_values_or_none(linker, plans, stride, record_property):
    x = tt.fvector("x")
    v = theano.shared(np.zeros(LENGTH, "float32"), "v", target="dev0")
    calls, halves = theano.shared(np.int64(0), "calls"), theano.shared(np.float64(0), "halves")
    updates = [(v, v + x), (calls, calls + 1), (halves, halves + 0.5)]
    with theano.configparser.change_flags(**{"optdb.plans": plans}):
        f = theano.function([x], [v * 2, calls], updates=updates, mode=theano.Mode(linker).including("opencl"))
    ones = np.ones(LENGTH, "float32")
    for number in range(4):
        results, called = f(ones)
        np.testing.assert_array_equal(np.asarray(results), 2.0 * number * ones)
        assert called == number
    number, is_over = 0, False
    while not is_over:
        is_over, error = interrupt_at(number, f, ones)
        # No error: Python drops an interrupt that arrives while a generator is closed.
        assert error is None or isinstance(error, KeyboardInterrupt)
        made = int(calls.get_value())
        np.testing.assert_array_equal(np.asarray(v.get_value()), made * ones)
        assert halves.get_value() == 0.5 * made
        assert is_free(get_context("dev0").turn())
        number += stride
    record_property("places", number)
