"""Exported simulators continue from the same state, with the same results, as the originals."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb
from optdb.opencl.exporting import Untraceable
from tests.opencl.exported import context_of_kind, floats

pytestmark = pytest.mark.usefixtures("engine_where_quick")


def adam(features=5, classes=3):
    """Return a function that trains and counts its steps, and a function that predicts."""
    x, y = tt.fmatrix("x"), tt.lvector("y")
    w = theano.shared(floats(features, classes) / 8, "w")
    mean, square = (theano.shared(np.zeros((features, classes), "float32"), name) for name in ("mean", "square"))
    count = theano.shared(np.float32(0), "count")
    p = tt.nnet.softmax(x.dot(w))
    loss = tt.nnet.categorical_crossentropy(p, y).mean()
    grad = theano.grad(loss, w)
    following = count + 1
    rate = np.float32(0.01) * tt.sqrt(1 - np.float32(0.999) ** following) / (1 - np.float32(0.9) ** following)
    new_mean, new_square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
    updates = [(count, following), (mean, new_mean), (square, new_square)]
    updates.append((w, w - rate * new_mean / (tt.sqrt(new_square) + 1e-8)))
    updates = [(var, tt.cast(value, "float32")) for var, value in updates]
    train = theano.function([x, y], loss, updates=updates, name="train")
    return train, theano.function([x], p.argmax(axis=1)), [w, mean, square, count]


@pytest.mark.slow
@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
def test_a_file_goes_on_where_the_simulator_was(tmp_path, device_kind):
    train, predict, params = adam()
    sim = optdb.SimulatorOCL(train, device="dev0")
    sim.add_method("predict", predict)
    data = floats(20, 5), np.arange(20) % 3
    for _ in range(3):
        sim(*data)
    sim.predict(data[0])
    reports = sim.export(tmp_path / "step.optdb")
    assert [(report.function, report.shapes) for report in reports if report.device_kind == device_kind] == [
        ("train", ((20, 5), (20,))),
        ("predict", ((20, 5),)),
    ]
    there = optdb.load(tmp_path / "step.optdb", context_of_kind(device_kind))
    for n in (20, 20, 25):
        more = floats(n, 5, seed=n), np.arange(n) % 3
        np.testing.assert_allclose(there(*more), sim(*more), rtol=1e-5)
        np.testing.assert_array_equal(there.predict(more[0]), sim.predict(more[0]))
    for param in params:
        np.testing.assert_allclose(there.get(param.name), sim.get(param), rtol=1e-4, atol=1e-6)


def test_examples(tmp_path):
    train, predict, _ = adam()
    sim = optdb.SimulatorOCL(predict, device="dev0")
    sim.add_method("train", train)
    with pytest.raises(ValueError, match="call it once before, or pass examples="):
        sim.export(tmp_path / "step.optdb")
    with pytest.raises(ValueError, match="no such function; the functions are: 'train'"):
        sim.export(tmp_path / "step.optdb", {"trian": [(floats(8, 5), np.arange(8) % 3)]})
    examples = {None: [(floats(8, 5),)], "train": [{"y": np.arange(8) % 3, "x": floats(8, 5)}]}
    sim.export(tmp_path / "step.optdb", examples, device_kinds=["cpu"])
    there = optdb.load(tmp_path / "step.optdb", context_of_kind("cpu"))
    np.testing.assert_array_equal(there(floats(8, 5)), sim(floats(8, 5)))
    assert list(there) == ["call", "train"]


def test_a_method_may_have_the_name_that_the_simulators_own_function_would_have(tmp_path):
    x = tt.fvector("x")
    sim = optdb.SimulatorOCL(theano.function([x], tt.exp(x)), device="dev0")
    sim.add_method("call", theano.function([x], x * 2))
    sim.export(tmp_path / "f.optdb", {None: [(floats(4),)], "call": [(floats(4),)]}, device_kinds=["cpu"])
    there = optdb.load(tmp_path / "f.optdb", context_of_kind("cpu"))
    assert list(there) == ["call_2", "call"]
    np.testing.assert_allclose(there(floats(4)), np.exp(floats(4)), rtol=1e-6)
    np.testing.assert_array_equal(there.call(floats(4)), floats(4) * 2)


@pytest.mark.parametrize("examples", [floats(20, 5), [floats(20, 5)], [3]])
def test_examples_that_are_no_calls(tmp_path, examples):
    sim = optdb.SimulatorOCL(adam()[1], device="dev0")
    with pytest.raises(TypeError, match=r"examples=\[\(x, y\)\]"):
        sim.export(tmp_path / "f.optdb", examples)
    assert not list(tmp_path.iterdir())


def test_what_stays_on_the_host_is_refused_by_name(tmp_path):
    x = tt.fmatrix("x")
    sim = optdb.SimulatorOCL(theano.function([x], tt.nlinalg.matrix_inverse(tt.exp(x)) * 2), device="dev0")
    with pytest.raises(
        Untraceable, match=r"call cannot be exported: .*that the host computes from device arrays: MatrixInverse"
    ):
        sim.export(tmp_path / "f.optdb", [[floats(3, 3)]])


def test_an_index_that_the_device_computes_is_refused_in_words(tmp_path):
    x = tt.fvector("x")
    numbers = tt.cast(x, "int64")
    f = theano.function([x], [tt.inc_subtensor(numbers[numbers[0]], 1), x * 2], mode="FAST_RUN")
    words = "values of an array of the device are not known before a call.*Compute them before the call"
    with pytest.raises(Untraceable, match=words):
        optdb.SimulatorOCL(f).export(tmp_path / "f.optdb", [(np.zeros(3, "float32"),)])


@pytest.mark.thorough_cases("gpu")
@pytest.mark.slow
@pytest.mark.parametrize("device_kind", ["cpu", "gpu"])
def test_a_loop(tmp_path, device_kind):
    _check_a_loop(tmp_path, device_kind)


@pytest.mark.slow
def test_a_loop_whose_op_is_shared(tmp_path):
    with optdb.cache.install():
        _check_a_loop(tmp_path, "cpu")


def _check_a_loop(tmp_path, device_kind):
    """Export a loop over a batch, and call the loaded file with other batches."""
    x, w = tt.ftensor3("x"), theano.shared(floats(4, 4) / 4, "w")
    states, _ = theano.scan(lambda now, before: tt.tanh(now + before.dot(w)), [x], [tt.zeros_like(x[0])])
    loss = tt.cast((states[-1] ** 2).mean(), "float32")
    train = theano.function([x], loss, updates=[(w, w - np.float32(0.1) * theano.grad(loss, w))])
    sim = optdb.SimulatorOCL(train, device="dev0")
    sim.export(tmp_path / "f.optdb", [[floats(5, 9, 4)]])
    there = optdb.load(tmp_path / "f.optdb", context_of_kind(device_kind))
    for batch in (9, 10, 12):
        np.testing.assert_allclose(there(floats(5, batch, 4)), sim(floats(5, batch, 4)), rtol=1e-5)
    np.testing.assert_allclose(there.get("w"), sim.get(w), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"The exported traces require\n.* == 5\nThe cure"):
        there(floats(6, 9, 4))


@pytest.mark.slow
def test_random_numbers_go_on(tmp_path):
    from theano.sandbox.rng_mrg import MRG_RandomStreams

    stream = MRG_RandomStreams(7)
    f = theano.function([], stream.uniform((6, 3), dtype="float32") * 2)
    sim = optdb.SimulatorOCL(f, device="dev0")
    sim()
    sim.export(tmp_path / "f.optdb")
    there = optdb.load(tmp_path / "f.optdb", context_of_kind("cpu"))
    for _ in range(3):
        np.testing.assert_allclose(there(), sim(), rtol=1e-6)
