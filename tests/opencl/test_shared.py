"""Variables on a device support arithmetic, constants, shared variables and pickles."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest
import theano
import theano.tensor as tt
from hypothesis import given

from optdb.lifters.contexts import ContextNotDefined
from optdb.opencl import OpenCLArrayType, OpenCLConstant, OpenCLSharedVariable, contexts, get_context
from optdb.runtime import arrays
from tests.opencl.values import values


def shared(value=(1.0, 2.0, 3.0), target="dev0", dtype="float32", **options):
    return theano.shared(np.asarray(value, dtype), target=target, **options)


# Shared variables


@pytest.mark.slow
@given(values())
def test_values_of_shared_variables(value):
    s = theano.shared(value, target="dev0")
    assert isinstance(s, OpenCLSharedVariable)
    got = s.get_value()
    assert got.dtype == value.dtype
    np.testing.assert_array_equal(got, value)
    s.set_value(value[...] if value.ndim else value)
    np.testing.assert_array_equal(s.get_value(), value)


def test_borrowing():
    s = shared()
    inner = s.get_value(borrow=True, return_internal_type=True)
    assert isinstance(inner, cl_array.Array)
    assert s.get_value(borrow=True, return_internal_type=True) is inner
    assert not s.type.may_share_memory(s.get_value(return_internal_type=True), inner)
    s.get_value(borrow=True)[...] = 7
    assert s.get_value().tolist() == [1, 2, 3]


@pytest.mark.parametrize("make", [lambda context, value: arrays.from_host(context, value), None])
def test_arrays_on_the_device_are_borrowed_or_copied(make):
    context = get_context("dev0")
    make = make or (lambda context, value: cl_array.to_device(context.queue, value))
    there = make(context, np.arange(3, dtype="float32"))
    kind = OpenCLArrayType("float32", (False,), "dev0")

    def inner(s):
        return s.get_value(borrow=True, return_internal_type=True)

    assert kind.may_share_memory(inner(theano.shared(there, borrow=True)), there)
    s = theano.shared(there)
    assert s.type == kind
    assert not kind.may_share_memory(inner(s), there)
    s.set_value(there, borrow=True)
    assert kind.may_share_memory(inner(s), there)
    s.set_value(there)
    assert not kind.may_share_memory(inner(s), there)
    np.testing.assert_array_equal(s.get_value(), [0, 1, 2])


def test_setting_values():
    s = shared()
    inner = s.get_value(borrow=True, return_internal_type=True)
    s.set_value(np.float32([4, 5, 6]))
    assert s.get_value(borrow=True, return_internal_type=True) is inner
    assert s.get_value().tolist() == [4, 5, 6]
    s.set_value(np.float32([7]))
    assert s.get_value().tolist() == [7]
    s.set_value([8, 9])
    assert s.get_value().tolist() == [8, 9]
    s.zero()
    assert s.get_value().tolist() == [0, 0]
    for wrong in (np.array([0.1]), np.float32(1), np.ones((2, 2), "float32")):
        with pytest.raises(TypeError):
            s.set_value(wrong)


def test_strict_and_downcast():
    strict = shared(strict=True)
    strict.set_value(np.float32([1]))
    with pytest.raises(TypeError):
        strict.set_value(np.int8([1]))
    loose = shared(allow_downcast=True)
    loose.set_value(np.array([0.1]))
    assert loose.get_value().dtype == "float32"


def test_broadcastable_axes():
    s = shared([[1.0, 2.0]], broadcastable=(True, False))
    assert s.broadcastable == (True, False)
    with pytest.raises(TypeError):
        s.set_value(np.ones((2, 2), "float32"))


@pytest.mark.parametrize("value", [1.5, 2, True, 1j, np.float32(3)])
def test_numbers(value):
    s = theano.shared(value, target="dev0")
    assert s.ndim == 0
    assert s.get_value() == value
    assert isinstance(s.get_value(), np.ndarray)


def test_without_a_target_the_host_has_them():
    assert theano.shared(np.ones(3)).type == tt.dvector
    assert theano.shared(np.ones(3), target="cpu").type == tt.dvector


def test_without_a_target_the_default_context_has_them(default, monkeypatch):
    assert theano.shared(np.ones(3)).type.context_name == default
    assert theano.shared(np.ones(3), target="cpu").type == tt.dvector
    assert theano.shared(np.array(1.0)).type == tt.dscalar
    assert theano.shared(1.0).type == tt.dscalar
    assert theano.shared(np.random.RandomState(1)).type == theano.tensor.raw_random.random_state_type
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", replace(context.profile, float64=False))
    assert theano.shared(np.ones(3)).type == tt.dvector
    assert theano.shared(np.ones(3, "float32")).type.context_name == default


def test_a_target_means_what_it_says(monkeypatch):
    with pytest.raises(ContextNotDefined, match=r"dev9: no such context; there is .*dev0, dev1"):
        theano.shared(np.ones(3), target="dev9")
    with pytest.raises(ValueError, match="an array or a number, got RandomState"):
        theano.shared(np.random.RandomState(1), target="dev0")
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", replace(context.profile, float64=False))
    with pytest.raises(ValueError, match="dev0 cannot take arrays of float64"):
        theano.shared(np.ones(3), target="dev0")


def test_updates():
    s, on_host = shared(), theano.shared(np.float32([0, 0, 0]))
    x = tt.fvector()
    f = theano.function([x], s.sum(), updates=[(s, s + x), (on_host, s)])
    assert f([1, 1, 1]) == 6
    assert f([1, 1, 1]) == 9
    assert s.get_value().tolist() == [3, 4, 5]
    assert on_host.get_value().tolist() == [2, 3, 4]
    assert s.type.is_valid_value(s.get_value(borrow=True, return_internal_type=True))


def test_updates_from_each_other():
    a, b = shared([1, 2]), shared([3, 4], target="dev1")
    f = theano.function([], [], updates=[(a, b), (b, a)])
    f()
    assert (a.get_value().tolist(), b.get_value().tolist()) == ([3, 4], [1, 2])
    same = shared([5, 6])
    theano.function([], [], updates=[(a, same)])()
    a.set_value(np.float32([0, 0]))
    assert same.get_value().tolist() == [5, 6]


def test_an_update_of_another_dtype_is_refused():
    s = shared()
    with pytest.raises(TypeError):
        theano.function([], [], updates=[(s, s.astype("float64") * 2)])


def test_an_update_of_known_length_is_refused_as_on_the_host():
    for s in (shared(), shared(target="cpu")):
        with pytest.raises(TypeError, match="broadcast pattern"):
            theano.function([], [], updates=[(s, tt.ones((1,), "float32"))])


def test_outputs_and_givens():
    s = shared()
    x = OpenCLArrayType("float32", (False,), "dev0")()
    out = theano.function([], x, givens={x: s})()
    assert not s.type.may_share_memory(out, s.get_value(borrow=True, return_internal_type=True))
    np.testing.assert_array_equal(out.get(), [1, 2, 3])
    y = tt.fvector()
    assert theano.function([], y * 2, givens={y: s})().tolist() == [2, 4, 6]


@pytest.mark.slow
def test_training():
    w = shared([[0.5], [-0.25]], dtype="float64")
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    y = x @ [[1.0], [2.0]]
    loss = ((tt.dot(x, w) - y) ** 2).mean()
    grad = theano.grad(loss, w)
    assert grad.type == w.type
    step = theano.function([], loss, updates=[(w, w - 0.02 * grad)])
    losses = [step() for _ in range(20)]
    assert losses[-1] < losses[0] / 100


def test_gradients_that_are_zero():
    s, other = shared(), tt.fvector()
    grad = theano.grad(other.sum(), s, disconnected_inputs="ignore")
    assert theano.function([], grad, on_unused_input="ignore")().tolist() == [0, 0, 0]


def test_pickle():
    s = shared(name="s")
    twin = pickle.loads(pickle.dumps(s))
    assert (twin.name, twin.type) == ("s", s.type)
    twin.set_value(np.float32([0]))
    assert s.get_value().tolist() == [1, 2, 3]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_deep_copies_are_their_own(how):
    s = shared()
    twin = how(s)
    assert not s.type.may_share_memory(*[x.get_value(borrow=True, return_internal_type=True) for x in (s, twin)])
    assert twin.get_value().tolist() == [1, 2, 3]


def test_copies_and_clones_share():
    s = shared()
    for twin in (copy.copy(s), s.clone()):
        twin.set_value(np.float32([9]))
        assert s.get_value().tolist() == [9]


def test_pickled_and_copied_functions():
    s = shared()
    f = theano.function([], s * 2, updates=[(s, s + 1)])
    f()
    for twin in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert twin().tolist() == [4, 6, 8]
        assert twin().tolist() == [6, 8, 10]
    assert s.get_value().tolist() == [2, 3, 4]


def test_pickles_of_other_arrays():
    context = get_context("dev0")
    plain = cl_array.to_device(context.queue, np.arange(3.0))
    ours = arrays.from_host(context, np.arange(3.0))
    for array in (plain, ours, ours[::-2], ours[:0]):
        data = pickle.dumps(array)
        assert b"optdb.opencl.pickling" in data  # files that other versions wrote name this module
        twin = pickle.loads(data)
        assert twin.queue == context.queue
        np.testing.assert_array_equal(twin.get(), arrays.to_host(array))
    np.testing.assert_array_equal(copy.deepcopy(plain).get(), [0, 1, 2])


def test_pickles_of_forgotten_contexts():
    contexts.register("passing", "opencl")
    data = pickle.dumps(shared(target="passing"))
    contexts.forget("passing")
    with pytest.raises(ContextNotDefined, match=r"passing: no such context; there is .*dev0, dev1"):
        pickle.loads(data)


def test_inputs_that_share_memory_are_parted():
    kind = OpenCLArrayType("float32", (False,), "dev0")
    there = kind.filter(np.ones(3, "float32"))
    plain = cl_array.Array(there.queue, there.shape, there.dtype, data=there.base_data)
    for array in (there, plain):
        assert not kind.may_share_memory(copy.copy(array), array)


# Variables and constants


@pytest.mark.slow
def test_arithmetic_is_that_of_the_host():
    x = OpenCLArrayType("float32", (False, False), "dev0")("x")
    y = tt.exp(x[0] + 1).dimshuffle("x", 0) * x.sum(axis=1, keepdims=True) - x.dot(x.T).max()
    value = np.arange(6, dtype="float32").reshape(2, 3)
    wanted = np.exp(value[0] + 1)[None] * value.sum(1, keepdims=True) - (value @ value.T).max()
    np.testing.assert_allclose(theano.function([x], y)(value), wanted, rtol=1e-5)


def test_variables_are_pickled():
    x = OpenCLArrayType("float32", (False,), "dev0")("x")
    y = pickle.loads(pickle.dumps(x.transfer("cpu") * 2))
    assert theano.gof.graph.inputs([y])[0].type == x.type


def test_test_values():
    x = OpenCLArrayType("float32", (False,), "dev0")("x")
    with theano.configparser.change_flags(compute_test_value="raise", print_test_value=True):
        x.tag.test_value = np.float32([1, 2])
        y = x + 1
        assert y.tag.test_value.tolist() == [2, 3]
        assert "[1., 2.]" in repr(x)


def constant(value, dtype="float32", context="dev0"):
    value = np.asarray(value, dtype)
    return OpenCLConstant(OpenCLArrayType(dtype, [n == 1 for n in value.shape], context), value)


def test_constants_compare_by_value():
    assert constant([1, np.nan]).equals(constant([1, np.nan]))
    assert constant([1, 2]).signature() == constant([1, 2]).signature()
    assert hash(constant([1, 2]).signature()) == hash(constant([1, 2]).signature())
    others = [constant([1, 3]), constant([1, 2], "float64"), constant([1, 2], context="dev1"), tt.constant([1, 2])]
    assert not any(constant([1, 2]).equals(other) for other in others)


def test_equal_constants_are_merged():
    kind = OpenCLArrayType("float32", (False,), "dev0")
    f = theano.function([], [tt.exp(kind.make_constant(np.float32([1, 2]))) for _ in range(2)])
    assert all(out.tolist() == pytest.approx(np.exp([1, 2])) for out in f())


def test_what_all_elements_of_a_constant_are():
    assert tt.get_scalar_constant_value(constant(3.0)) == 3
    assert tt.get_scalar_constant_value(constant([[2, 2], [2, 2]])) == 2
    with pytest.raises(tt.NotScalarConstantError):
        tt.get_scalar_constant_value(constant([1, 2]))
    assert constant([]).tag.unique_value is None


def test_constants_in_print():
    assert str(constant([1, 2])) == "OpenCLConstant<dev0>{[1. 2.]}"
    assert str(constant(np.zeros((4, 4)))) == "OpenCLConstant<dev0>{(4, 4) of 0.0}"
    assert len(str(constant(np.arange(1000)))) < 60


def test_constants_are_pickled_and_copied():
    c = constant([1, 2])
    for twin in (pickle.loads(pickle.dumps(c)), copy.copy(c), copy.deepcopy(c), c.clone()):
        assert twin.equals(c)
        assert twin.tag.unique_value is None


def test_a_function_may_return_a_constant():
    out = theano.function([], constant([1, 2]))()
    np.testing.assert_array_equal(out.get(), [1, 2])
