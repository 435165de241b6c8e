"""A device uses the current contents of arrays that other code writes in place, and overwrites no foreign arrays."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb

UPDATES = {
    "inc": lambda s: tt.inc_subtensor(s[1:3], 1),
    "set": lambda s: tt.set_subtensor(s[0], s[0] + 7),
    "advanced": lambda s: tt.inc_subtensor(s[np.array([0, 0])], 1),
    "elementwise": lambda s: s + 1,
    "view": lambda s: s[::-1],
}


@pytest.fixture(autouse=True)
def without_compiler():
    """Do not compile C for nodes that stay on the host: it takes longer than the rest."""
    with theano.configparser.change_flags(cxx=""):
        yield


def shared(dtype="int32"):
    return theano.shared(np.arange(5).astype(dtype), "s")


def reader(s):
    """Return a function that keeps a copy of a shared variable on the device."""
    x = tt.fvector("x")
    return theano.function([x], s * x, mode=optdb.mode(device="opencl"))


def seen(read):
    return read(np.ones(5, "float32")).astype(int).tolist()


@pytest.mark.parametrize("way", ["mode", "py"])
@pytest.mark.parametrize("name", UPDATES)
def test_what_a_function_updates_on_the_host_is_new_on_the_device(name, way):
    s = shared()
    mode = optdb.mode(device="opencl") if way == "mode" else theano.Mode("py", "fast_run")
    write = theano.function([], [], updates=[(s, UPDATES[name](s))], mode=mode)
    read = reader(s)
    for _ in range(3):
        write()
        assert seen(read) == s.get_value().tolist()


def test_a_function_of_the_device_leaves_the_present_array_on_the_host_as_it_is():
    s = shared()
    write = theano.function([], [], updates=[(s, UPDATES["inc"](s))], mode=optdb.mode(device="opencl"))
    present = s.get_value(borrow=True)
    write()
    assert present.tolist() == [0, 1, 2, 3, 4]
    assert s.get_value().tolist() == [0, 2, 3, 3, 4]


def written_by_set_value(s, read):
    array = s.get_value(borrow=True, return_internal_type=True)
    array += 1
    s.set_value(array, borrow=True)


def written_by_the_container(s, read):
    array = s.get_value(borrow=True)
    array += 1
    s.container.data = array


def set_to_zero(s, read):
    s.zero(borrow=True)


@pytest.mark.parametrize("change", [written_by_set_value, written_by_the_container, set_to_zero])
def test_who_writes_in_place_and_sets_the_value_is_noticed(change):
    s = shared("float32")
    read = reader(s)
    assert seen(read) == [0, 1, 2, 3, 4]
    for _ in range(3):
        change(s, read)
        assert seen(read) == s.get_value().astype(int).tolist()


def test_a_copy_without_updates_may_write_in_place():
    s = shared()
    following = UPDATES["inc"](s)
    write = theano.function([], following, updates=[(s, following)], mode=theano.Mode("py", "fast_run"))
    other = shared()
    copied = write.copy(swap={s: other}, delete_updates=True)
    read = reader(other)
    for _ in range(3):
        copied()
        assert seen(read) == other.get_value().tolist()


def test_an_upload_that_fails_is_made_again(monkeypatch):
    s = shared("float32")
    read = reader(s)
    seen(read)
    s.set_value(np.full(5, 7, "float32"))

    def from_host(*_):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("optdb.opencl.simulator.execution.state.from_host", from_host)
        with pytest.raises(MemoryError):
            seen(read)
    assert seen(read) == [7] * 5


@pytest.mark.parametrize("length", [3, 40_000])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("way", ["mode", "simulator"])
def test_a_borrowed_result_may_be_the_next_argument(way, dtype, length):
    x, y = tt.vector("x", dtype), tt.vector("y", dtype)
    outputs = [theano.Out(y, borrow=True), theano.Out((y + y)[1:], borrow=True), x, x + 1, x.shape]
    f = theano.function(
        [x, y], outputs, mode=optdb.mode(device="opencl") if way == "mode" else theano.Mode("py", "fast_run")
    )
    f = f if way == "mode" else optdb.SimulatorOCL(f, "opencl")
    for index in (0, 1):
        last = np.zeros(length - index, dtype)
        for number in range(5):
            before = last.copy()
            results = f(last, np.full(length, number, dtype))
            np.testing.assert_array_equal(results[2], before)
            np.testing.assert_array_equal(results[3], before + 1)
            last = results[index]
            np.testing.assert_array_equal(last, np.full(length - index, number * (1 + index)))


@pytest.mark.parametrize("way", ["mode", "simulator"])
def test_a_call_leaves_an_argument_that_was_its_result(way):
    x = tt.fvector("x")
    outputs = [theano.Out(x + 1, borrow=True)]
    f = theano.function(
        [x], outputs, mode=optdb.mode(device="opencl") if way == "mode" else theano.Mode("py", "fast_run")
    )
    f = f if way == "mode" else optdb.SimulatorOCL(f, "opencl")
    last = np.zeros(3, "float32")
    for number in range(4):
        (result,) = f(last)
        np.testing.assert_array_equal(last, [number] * 3)
        last = result


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("way", ["mode", "simulator"])
def test_a_borrowed_copy_of_an_argument_may_be_the_next_argument(way, dtype):
    x, y = tt.vector("x", dtype), tt.vector("y", dtype)
    outputs = [theano.Out(y, borrow=True), x, x.shape]
    f = theano.function(
        [x, y], outputs, mode=optdb.mode(device="opencl") if way == "mode" else theano.Mode("py", "fast_run")
    )
    f = f if way == "mode" else optdb.SimulatorOCL(f, "opencl")
    last = np.zeros(3, dtype)
    for number in range(4):
        before = last.copy()
        last, same, _ = f(last, np.full(3, number, dtype))
        np.testing.assert_array_equal(same, before)
        np.testing.assert_array_equal(last, [number] * 3)


def test_a_borrowed_result_may_be_a_variables_value():
    x = tt.fvector("x")
    s = theano.shared(np.zeros(3, "float32"), "s")
    f = theano.function([x], [theano.Out(x * 2, borrow=True), s], mode=optdb.mode(device="opencl"))
    for number in range(4):
        expected = s.get_value()
        result, present = f(np.full(3, number, "float32"))
        np.testing.assert_array_equal(present, expected)
        np.testing.assert_array_equal(s.get_value(), expected)
        s.set_value(result, borrow=True)
