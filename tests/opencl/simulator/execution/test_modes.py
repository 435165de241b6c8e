"""Functions that are compiled for a device in one step keep Theano's shared variables."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import textwrap

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.compile.ops import as_op
from theano.ifelse import ifelse
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.raw_random import RandomFunction, random_state_type
from theano.tensor.shared_randomstreams import RandomStreams

import optdb
from optdb.opencl.simulator.execution.executable import Executable
from optdb.opencl.simulator.execution.opencl_linker import host_state_of
from optdb.opencl.simulator.execution.state import Mirror, Shared
from optdb.runtime.errors import DeviceError
from tests.processes import output, run_code

PURE = theano.Mode(linker="py", optimizer="fast_run")
X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


@pytest.fixture
def there():
    return optdb.mode(device="dev0")


def shared(value=1, name="w"):
    return theano.shared(np.full((3, 2), value, "float32"), name=name, target="cpu")


def test_a_training_step_and_a_prediction(there):
    x = tt.fmatrix("x")
    ours, theirs = shared(), shared()
    functions = []
    for w, mode in ((ours, there), (theirs, PURE)):
        loss = tt.tanh(x.dot(w)).sum()
        functions.append(theano.function([x], loss, updates=[(w, w - tt.grad(loss, w))], mode=mode))
        functions.append(theano.function([x], tt.tanh(x.dot(w)), mode=mode))
    step, predict, host_step, host_predict = functions
    assert isinstance(step.fn, Executable)
    for size in (4, 4, 4, 2, 4):
        np.testing.assert_allclose(step(X[:size]), host_step(X[:size]), rtol=1e-5)
        np.testing.assert_allclose(predict(X), host_predict(X), rtol=1e-5)
        np.testing.assert_allclose(ours.get_value(), theirs.get_value(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["OPENCL", theano.Mode(linker="opencl", optimizer="fast_run"), theano.Mode("opencl")])
def test_by_names(mode, default):
    x, w = tt.fmatrix("x"), shared()
    f = theano.function([x], x.dot(w).sum(), updates=[(w, w + 1)], mode=mode)
    assert isinstance(f.fn, Executable)
    for total in (1, 2, 3):
        np.testing.assert_allclose(f(X + 1), 24 * total)
        np.testing.assert_array_equal(w.get_value(), np.full((3, 2), total + 1))


def test_the_device_computes(there):
    x, w = tt.fmatrix("x"), shared()
    f = theano.function([x], tt.exp(x.dot(w)), mode=there)
    names = [type(node.op).__name__ for node in f.fn.graph.fgraph.toposort()]
    assert names and all(name.startswith("OpenCL") for name in names)


def test_what_nobody_changed_is_not_uploaded_again(there, monkeypatch):
    x, w = tt.fmatrix("x"), shared()
    train = theano.function([x], x.dot(w), updates=[(w, w + 1)], mode=there)
    test = theano.function([x], x.dot(w), mode=there)
    (mirror,) = train.fn._shared
    assert test.fn._shared == [mirror]
    taken = []
    from_theano = type(mirror).from_theano
    monkeypatch.setattr(type(mirror), "from_theano", lambda self: (taken.append(self), from_theano(self)))
    for _ in range(3):
        train(X)
        test(X)
    assert taken == []
    w.set_value(w.get_value())
    test(X)
    assert taken == [mirror]


CHANGES = {
    "another array": lambda w: w.set_value(np.zeros((3, 2), "float32")),
    "another shape": lambda w: w.set_value(np.zeros((3, 5), "float32")),
    "the same array": lambda w: w.set_value(
        np.multiply(w.get_value(borrow=True), 3, out=w.get_value(True)), borrow=True
    ),
    "zero": lambda w: w.zero(),
    "zero in place": lambda w: w.zero(borrow=True),
    "in the container": lambda w: setattr(w.container, "value", np.full((3, 2), 4, "float32")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_is_seen(change, there):
    x, w = tt.fmatrix("x"), shared()
    f = theano.function([x], x.dot(w), updates=[(w, w * 2)], mode=there)
    g = theano.function([x], x.dot(w), mode=there)
    f(X), f(X), g(X)
    change(w)
    expected = w.get_value()
    np.testing.assert_allclose(g(X), X.dot(expected), rtol=1e-6)
    np.testing.assert_allclose(f(X), X.dot(expected), rtol=1e-6)
    np.testing.assert_allclose(w.get_value(), expected * 2, rtol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_what_a_function_of_the_host_computes_in_place_is_seen(first, there):
    x, w = tt.fmatrix("x"), shared()

    def make():
        return theano.function([], [], updates=[(w, w + 1)], mode=PURE)

    bump = make() if first else None
    f = theano.function([x], x.dot(w), mode=there)
    bump = bump or make()
    f(X)
    for _ in range(3):
        before = w.get_value(borrow=True)
        bump()
        # The value must have been overwritten in place: otherwise this test would prove nothing.
        assert w.get_value(borrow=True) is before
        np.testing.assert_allclose(f(X), X.dot(w.get_value()), rtol=1e-6)


@pytest.mark.slow
def test_observed_compilation_leaves_watched_shared_variables_watched():
    """Compile a process's first function for a device while compilations are observed, as in `optdb explain`."""
    output("""
        import numpy as np
        import optdb, theano, theano.tensor as tt
        from optdb.host.theano.functions.compiled import watching
        from optdb.host.theano.functions.observing import observe

        pure = theano.Mode(linker="py", optimizer="fast_run")
        x, w = tt.fmatrix("x"), theano.shared(np.ones((3, 2), "float32"), target="cpu")
        X = np.ones((4, 3), "float32")
        with watching(lambda function: None), observe(lambda function: None):
            f = theano.function([x], x.dot(w), mode=optdb.mode(device="opencl"))
        f(X)
        bump = theano.function([], [], updates=[(w, w + 1)], mode=pure)
        f(X)
        before = w.get_value(borrow=True)
        bump()
        assert w.get_value(borrow=True) is before
        np.testing.assert_allclose(f(X), X.dot(w.get_value()), rtol=1e-6)
    """)


def test_a_simulator_goes_its_own_way(there):
    x, w = tt.fmatrix("x"), shared()
    f = theano.function([x], x.dot(w), updates=[(w, w + 1)], mode=there)
    sim = optdb.SimulatorOCL(f, "dev0")
    sim(X), sim(X)
    np.testing.assert_array_equal(w.get_value(), np.ones((3, 2)))
    sim.sync_to_theano()
    np.testing.assert_allclose(f(X), X.dot(np.full((3, 2), 3)), rtol=1e-6)


def test_an_error_leaves_values_as_they_were(there):
    x, y, w = tt.fmatrix("x"), tt.ivector("y"), shared()
    f = theano.function([x, y], x[y].dot(w), updates=[(w, w + x[y].sum())], mode=there)
    for _ in range(3):
        f(X, [0, 1])
    before = w.get_value()
    with pytest.raises(IndexError):
        f(X, [0, 9])
    np.testing.assert_array_equal(w.get_value(), before)
    np.testing.assert_allclose(f(X, [0, 1]), X[:2].dot(before), rtol=1e-6)


def test_an_error_on_the_way_home_leaves_values_as_they_were(there, monkeypatch):
    x, w, v = tt.fmatrix("x"), shared(), shared(2, "v")
    f = theano.function([x], x.dot(w), updates=[(w, w + 1), (v, v + w)], mode=there)
    for _ in range(3):
        f(X)
    before = w.get_value(), v.get_value()
    calls = iter([lambda self: Shared.value(self), lambda self: 1 / 0])
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(Mirror, "value", lambda self: next(calls)(self))
        f(X)
    np.testing.assert_array_equal([w.get_value(), v.get_value()], before)
    np.testing.assert_allclose(f(X), X.dot(before[0]), rtol=1e-6)
    np.testing.assert_array_equal([w.get_value(), v.get_value()], [before[0] + 1, before[1] + before[0]])


def test_names_defaults_and_kept_inputs(there):
    x, y, total = tt.fmatrix("x"), tt.fscalar("y"), tt.dvector("total")
    inputs = [x, theano.In(y, value=2.0), theano.In(total, value=np.zeros(3), update=total + 1)]
    f, g = (theano.function(inputs, {"a": x * y, "b": total * 2}, mode=mode) for mode in (there, PURE))
    for kwargs in ({}, {"y": 3}, {}):
        np.testing.assert_equal(f(X, **kwargs), g(X, **kwargs))
    np.testing.assert_equal(f(X, output_subset=["b"]), {"b": g(X)["b"]})
    np.testing.assert_array_equal(f[total], g[total])


def test_outputs_are_the_callers_unless_borrowed(there):
    x, w = tt.fvector("x"), theano.shared(np.ones(3, "float32"))
    f = theano.function([x], [w, x, x + 1, theano.Out(x * 2, borrow=True)], updates=[(w, w + 1)], mode=there)
    first = f(X[0])
    for value in first[:3]:
        value += 10
    again = f(X[0])
    np.testing.assert_array_equal(again[0], [2, 2, 2])
    np.testing.assert_array_equal(again[1], X[0])
    np.testing.assert_array_equal(first[2], X[0] + 11)
    assert again[3] is first[3]


def test_it_is_called_as_theanos_machines_are(there):
    x = tt.fmatrix("x")
    f = theano.function([x], [x * 2, x.sum()], mode=there)
    f.input_storage[0].storage[0] = X
    f.fn()
    np.testing.assert_array_equal(f.output_storage[0].storage[0], X * 2)
    np.testing.assert_allclose(f.output_storage[1].storage[0], X.sum(), atol=1e-6)


@pytest.mark.slow
def test_streams_of_a_default_mode_on_a_device():
    code = """
        import optdb, theano
        from theano.sandbox.rng_mrg import MRG_RandomStreams
        print(round(float(theano.function([], MRG_RandomStreams(3).uniform((4, 3)).sum())()), 4))
    """
    assert output(code, flags="mode=OPENCL") == output(code, flags="optimizer=fast_compile")


@pytest.mark.slow
def test_random_numbers_loops_branches_and_strangers(there):
    x = tt.fmatrix("x")

    @as_op(itypes=[tt.fmatrix], otypes=[tt.fmatrix])
    def upside_down(a):
        return a[::-1].copy()

    results = []
    for mode in (there, PURE):
        w = shared()
        noise = MRG_RandomStreams(3).normal((4, 3)) + RandomStreams(3).uniform((4, 3))
        states, _ = theano.scan(lambda row, state: tt.tanh(row + state), [x], [tt.zeros(3, "float32")], mode=mode)
        branch = ifelse(x.sum() > 0, x.dot(w), -x.dot(w))
        outputs = [noise, states[-1], branch, upside_down(x * 2)]
        f = theano.function([x], outputs, updates=[(w, w + branch.sum() / 100)], mode=mode)
        results.append([f(sign * X + 1) for sign in (1, -2, 1, 1)])
    for ours, theirs in zip(*results, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["mode", "simulator"])
@pytest.mark.parametrize("mutable", [False, True])
def test_a_generator_of_the_callers_changes_only_if_it_may(there, how, mutable):
    generator = random_state_type()
    following, numbers = RandomFunction("uniform", tt.dvector)(generator, (3,), 0.0, 1.0)
    own, theirs = np.random.RandomState(5), np.random.RandomState(5)
    kept = theano.In(generator, value=own, update=following, mutable=mutable)
    f = theano.function([kept], tt.exp(numbers), mode=there if how == "mode" else PURE)
    f = optdb.SimulatorOCL(f, device="dev0") if how == "simulator" else f
    for _ in range(3):
        np.testing.assert_allclose(f(), np.exp(theirs.uniform(size=3)), rtol=1e-12)
    assert mutable or random_state_type.values_eq(own, np.random.RandomState(5))


def test_arrays_of_the_device_stay_there(there):
    x, w = tt.fvector("x"), theano.shared(np.arange(3, dtype="float32"), target="dev0")
    f = theano.function([x], x + w.transfer("cpu"), updates=[(w, w + 1)], mode=there)
    for number in range(4):
        np.testing.assert_array_equal(f(np.zeros(3, "float32")), np.arange(3) + number)
    np.testing.assert_array_equal(w.get_value(), np.arange(3) + 4)


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_functions_travel(travel, there):
    x, w = tt.fmatrix("x"), shared()
    f = theano.function([x], x.dot(w), updates=[(w, w + 1)], mode=there)
    f(X)
    again = travel(f)
    assert isinstance(again.fn, Executable)
    for factor in (2, 3):
        # A copied function returns a list, even if the original does not.
        np.testing.assert_allclose(np.reshape(again(X), (4, 2)), X.dot(np.full((3, 2), factor)), rtol=1e-6)
    # A copy has the same shared variables; a pickle and a deep copy have their own.
    now = np.full((3, 2), 4 if travel is copy.copy else 2)
    np.testing.assert_array_equal(w.get_value(), now)
    f.free()
    np.testing.assert_allclose(f(X), X.dot(now), rtol=1e-6)


def loop_with_gradient(mode):
    """Compile a training step with a Scan, whose gradient has much arithmetic on lengths."""
    x, w, start = tt.fmatrix("x"), theano.shared(np.eye(3, dtype="float32")), theano.shared(np.ones(3, "float32"))
    states, _ = theano.scan(lambda row, h: tt.tanh(row + h.dot(w)), sequences=x, outputs_info=start)
    loss = tt.log(1 + states[:, 0][tt.arange(x.shape[0])] ** 2).mean()
    return theano.function([x], loss, updates=[(p, p - tt.grad(loss, p)) for p in (w, start)], mode=mode)


@pytest.mark.slow
def test_the_graph_of_a_loop_is_as_small_as_stock_s(there):
    stock, ours = (loop_with_gradient(mode) for mode in (PURE, there))
    assert len(ours.maker.fgraph.apply_nodes) <= len(stock.maker.fgraph.apply_nodes)


@pytest.mark.slow
@pytest.mark.parametrize("travel", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_a_loop_travels_where_little_recursion_is_left(travel, there):
    """Stock Theano needs a recursion limit of 750 for a pickle, and of 1000 for a deep copy."""
    f = loop_with_gradient(there)
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 500)
    try:
        again = travel(f)
    finally:
        sys.setrecursionlimit(usual)
    np.testing.assert_allclose([again(X), again(X)], [f(X), f(X)], rtol=1e-6)


def test_modes_are_derived_and_travel(there):
    w = shared()
    for mode in (there.including("fast_run"), there.excluding("canonicalize"), pickle.loads(pickle.dumps(there))):
        f = theano.function([], tt.exp(w), mode=mode)
        assert isinstance(f.fn, Executable)
        np.testing.assert_allclose(f(), np.exp(w.get_value()), rtol=1e-6)


@pytest.mark.usefixtures("alone")
@pytest.mark.slow
def test_copies_on_the_device_go_with_their_functions(there):
    w = shared()
    gc.collect()
    before = len(host_state_of("dev0"))
    f = theano.function([], tt.exp(w), mode=there)
    f(), f()
    assert len(host_state_of("dev0")) == before + 1
    del f
    gc.collect()
    assert len(host_state_of("dev0")) == before


def test_what_is_no_device_is_an_error_that_says_so():
    x = tt.fvector("x")
    with pytest.raises(DeviceError, match="no device has that name"):
        theano.function([x], x + 1, mode=optdb.mode(device="no such device"))


SCRIPT = """
    import numpy as np
    import theano, theano.tensor as tt
    x = tt.fmatrix("x")
    w = theano.shared(np.ones((3, 2), "float32"), name="w")
    states, _ = theano.scan(lambda row, state: tt.tanh(row + state), [x], [tt.zeros(3, "float32")])
    f = theano.function([x], states[-1].sum() + x.dot(w).sum(), updates=[(w, w * 2)] MODE)
    totals = [float(f(np.ones((2, 3), "float32"))) for _ in range(3)]
    print([round(total, 3) for total in totals], w.get_value().tolist()[0])
    print(WHERE)
"""
HOW = "type(f.fn).__name__"
LIFTED = "any('OpenCL' in type(node.op).__name__ for node in f.maker.fgraph.toposort())"
RESULT = "[14.828, 26.828, 50.828] [8.0, 8.0]"


@pytest.mark.thorough_cases(
    "mode=OPENCL--type(f.fn).__name__-Executable",
    "linker=opencl--type(f.fn).__name__-Executable",
    "linker=opencl,optdb.topo=True--type(f.fn).__name__-Executable",
    "optdb.device=opencl-, mode='OPENCL'-type(f.fn).__name__-Executable",
)
@pytest.mark.slow
@pytest.mark.parametrize(
    "flags, mode, where, seen",
    [
        ("mode=OPENCL", "", HOW, "Executable"),
        ("linker=opencl", "", HOW, "Executable"),
        ("linker=opencl,optdb.topo=True", "", HOW, "Executable"),
        ("", ", mode='OPENCL'", HOW, "Executable"),
        ("optdb.device=opencl", ", mode='OPENCL'", HOW, "Executable"),
        ("optdb.device=opencl", "", LIFTED, "True"),
    ],
)
def test_a_script_as_it_is(flags, mode, where, seen):
    code = SCRIPT.replace(" MODE", mode).replace("WHERE", where)
    assert output("import optdb\n" + textwrap.dedent(code), flags=flags).splitlines() == [RESULT, seen]


@pytest.mark.slow
def test_the_device_is_not_looked_for_before_it_is_needed():
    code = "import optdb, theano, sys; theano.compile.get_mode('OPENCL'); print('pyopencl' in sys.modules)"
    assert output(code, flags="mode=OPENCL") == "False"


def test_other_linkers_are_still_refused():
    done = run_code("import optdb, theano", flags="linker=nonsense")
    assert "nonsense" in done.stderr


def test_a_copy_of_a_function_overwrites_nothing(there):
    """A copy overwrites no input, because Theano does not record which inputs of a copy may be overwritten."""
    x, number, w = tt.fvector("x"), theano.shared(np.int32(-3), name="number"), shared()
    f = theano.function([x], [tt.exp(x) * w.sum(), -number], updates=[(w, w * 2)], mode=there)
    value = np.ones(2, "float32")
    g = f.copy()
    assert isinstance(g.fn, Executable)
    for times in (1, 2, 4):
        total, negative = g(value)
        np.testing.assert_allclose(total, np.exp([1, 1]) * 6 * times, rtol=1e-6)
        assert (negative, number.get_value()) == (3, -3)
        np.testing.assert_array_equal(value, [1, 1])
    np.testing.assert_array_equal(w.get_value(), np.full((3, 2), 8))


def test_a_number_of_the_host_may_be_left_out():
    """As with the host's linkers, an argument may be None if the op accepts that."""
    mode = theano.Mode("opencl", "fast_run")
    n, m, k = tt.iscalars("nmk")
    eye = theano.function([n, m, k], tt.eye(n, m, k), mode=mode)
    for args in [(3, None, 0), (3, 4, 1), (3, None, 1), (2, None, 0), (3, 5, 0)]:
        np.testing.assert_array_equal(eye(*args), np.eye(*args))
    x, y = tt.scalars("xy")
    or_else = theano.function([x, y], tt.basic.default(x, y) * 2, mode=mode)
    assert [or_else(None, 2), or_else(1, 2), or_else(None, 3)] == [4, 2, 6]
    v = tt.fvector("v")
    double = theano.function([v], v * 2, mode=mode)
    with pytest.raises(TypeError, match="None"):
        double(None)
