"""The type of device arrays checks, converts and compares values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
import theano
from hypothesis import given

from optdb.lifters.contexts import ContextNotDefined
from optdb.opencl import OpenCLArrayType, contexts, get_context
from optdb.opencl.type import UnsupportedDtype
from optdb.runtime import arrays
from tests.opencl.values import DTYPES, values


def vector(dtype="float32", context="dev0"):
    return OpenCLArrayType(dtype, (False,), context)


@pytest.mark.slow
@given(values())
def test_values_go_there_and_back(value):
    kind = OpenCLArrayType(value.dtype, (False,) * value.ndim, "dev0")
    there = kind.filter(value)
    assert kind.is_valid_value(there)
    assert (there.shape, there.dtype) == (value.shape, value.dtype)
    np.testing.assert_array_equal(there.get(), value)
    value = value.copy()  # the value on the device is a copy
    np.testing.assert_array_equal(np.asarray(there), value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_host_may_change_its_array(dtype):
    value = np.ones(3, dtype)
    there = vector(dtype).filter(value)
    value[...] = 0
    assert (there.get() == 1).all()


def test_a_dtype_that_the_device_lacks(monkeypatch):
    context = get_context("dev0")
    monkeypatch.setattr(context, "profile", replace(context.profile, float64=False))
    for dtype in ("float64", "complex128"):
        with pytest.raises(UnsupportedDtype, match=f"dev0 cannot take arrays of {dtype}: .* has no double precision"):
            vector(dtype)
    assert vector("float32").dtype == "float32"


def test_a_dtype_that_nobody_has():
    with pytest.raises(TypeError, match="float128"):
        vector("float128")


def test_unknown_contexts_are_refused():
    with pytest.raises(
        ContextNotDefined, match=r"dev9: no such context; there is .*dev0, dev1.*\nThe cure: .*optdb\.contexts=dev9->"
    ):
        vector(context="dev9")
    with pytest.raises(ContextNotDefined, match="no default context"):
        OpenCLArrayType("float32", ())


def test_none_is_the_default_context(default):
    assert OpenCLArrayType("float32", ()) == OpenCLArrayType("float32", (), "dev0")


def test_float_x():
    assert vector("floatX").dtype == theano.config.floatX


@pytest.mark.parametrize("value", [np.ones(2, "float32"), [1.0, 2.0], 1.0])
def test_strict_takes_only_what_is_there(value):
    with pytest.raises(TypeError, match="on the device"):
        vector().filter(value, strict=True)


def test_strict_returns_the_same_array():
    kind = vector()
    there = kind.filter(np.ones(2, "float32"))
    assert kind.filter(there, strict=True) is there
    assert kind.filter(there) is there
    with pytest.raises(TypeError, match="expected float64"):
        vector("float64").filter(there, strict=True)
    with pytest.raises(TypeError, match="on the queue of dev1"):
        vector(context="dev1").filter(there, strict=True)


def test_casts_are_those_of_the_host():
    kind = vector()
    assert kind.filter([1, 2]).dtype == "float32"
    assert kind.filter(np.ones(2, "int8")).dtype == "float32"
    for value in (np.ones(2, "float64"), [0.1, 0.2], vector("float64").filter(np.ones(2))):
        with pytest.raises(TypeError):
            kind.filter(value)
        assert kind.filter(value, allow_downcast=True).dtype == "float32"
    scalar = OpenCLArrayType(theano.config.floatX, (), "dev0")
    assert scalar.filter(0.1).dtype == theano.config.floatX


def test_shapes_are_checked():
    column = OpenCLArrayType("float32", (False, True), "dev0")
    assert column.filter(np.ones((3, 1), "float32")).shape == (3, 1)
    there = OpenCLArrayType("float32", (False, False), "dev0").filter(np.ones((3, 2), "float32"))
    for value in (np.ones((3, 2), "float32"), there):
        with pytest.raises(TypeError):
            column.filter(value)
    with pytest.raises(TypeError, match="expected 1 dimension"):
        vector().filter(there)
    assert not vector().is_valid_value(there)
    assert "1 dimension" in vector().value_validity_msg(there)


def test_symbolic_values_are_refused():
    with pytest.raises(TypeError, match="Variable"):
        vector().filter(theano.tensor.fvector())


def test_arrays_of_other_queues_are_taken_over():
    context = get_context("dev0")
    other = cl.CommandQueue(context.cl_context)
    theirs = cl_array.to_device(other, np.arange(4, dtype="float32"))
    assert not vector().is_valid_value(theirs)
    ours = vector().filter(theirs)
    assert vector().is_valid_value(ours)
    assert vector().may_share_memory(ours, theirs)
    np.testing.assert_array_equal(ours.get(), [0, 1, 2, 3])


def test_arrays_of_other_contexts_are_moved():
    there = vector(context="dev1").filter(np.arange(4, dtype="float32"))
    here = vector().filter(there)
    assert vector().is_valid_value(here)
    assert not vector().may_share_memory(here, there)
    np.testing.assert_array_equal(here.get(), [0, 1, 2, 3])


def test_arrays_without_a_queue_cannot_be_read():
    there = vector(context="dev1").filter(np.arange(4, dtype="float32")).with_queue(None)
    with pytest.raises(TypeError, match="with_queue"):
        vector().filter(there)


def test_types_compare_by_what_they_are():
    assert vector() == vector()
    assert hash(vector()) == hash(vector())
    others = [vector("float64"), vector(context="dev1"), OpenCLArrayType("float32", (True,), "dev0")]
    assert all(vector() != other for other in [*others, vector().host_type])


def test_clone():
    kind = OpenCLArrayType("float32", (False, True), "dev0", name="mine")
    assert kind.clone(dtype="int8") == OpenCLArrayType("int8", (False, True), "dev0")
    assert kind.clone(broadcastable=()) == OpenCLArrayType("float32", (), "dev0")
    assert kind.clone(context_name="dev1") == OpenCLArrayType("float32", (False, True), "dev1")
    assert kind.clone().name == "mine"


@pytest.mark.parametrize(
    ("broadcastable", "text"),
    [
        ((), "OpenCLArrayType<dev0>(int8, scalar)"),
        ((False, False), "OpenCLArrayType<dev0>(int8, matrix)"),
        ((True, False, False), "OpenCLArrayType<dev0>(int8, (True, False, False))"),
        ((False,) * 4, "OpenCLArrayType<dev0>(int8, 4D)"),
    ],
)
def test_print(broadcastable, text):
    assert str(OpenCLArrayType("int8", broadcastable, "dev0")) == text


def test_pickle_and_copy():
    kind = vector()
    for twin in (pickle.loads(pickle.dumps(kind)), copy.copy(kind), copy.deepcopy(kind)):
        assert twin == kind
        assert twin.context is kind.context


def test_equality_of_values():
    kind = vector("float64")
    a = kind.filter(np.array([1.0, np.nan, np.inf]))
    same = kind.filter(np.array([1.0, np.nan, np.inf]))
    near = kind.filter(np.array([1.0 + 1e-12, np.nan, np.inf]))
    far = kind.filter(np.array([2.0, np.nan, np.inf]))
    moved = kind.filter(np.array([np.nan, 1.0, np.inf]))
    assert kind.values_eq(a, same)
    assert not kind.values_eq(a, near)
    assert kind.values_eq_approx(a, same)
    assert kind.values_eq_approx(a, near)
    assert not kind.values_eq_approx(a, far)
    assert not kind.values_eq(a, moved)
    assert not kind.values_eq_approx(a, moved)
    assert kind.values_eq_approx(kind.filter(np.array([1.0])), kind.filter(np.array([2.0])), rtol=1.0)
    shorter = kind.filter(np.array([1.0, np.nan]))
    single = vector().filter(np.array([1.0, np.nan, np.inf], "float32"))
    for other in (shorter, single):
        assert not kind.values_eq(a, other)
        assert not kind.values_eq_approx(a, other)
    assert kind.values_eq(a, single, force_same_dtype=False)


@pytest.mark.slow
@given(values(), values())
def test_equality_is_that_of_numpy(a, b):
    kind_a, kind_b = (OpenCLArrayType(x.dtype, (False,) * x.ndim, "dev0") for x in (a, b))
    there = kind_a.filter(a)
    assert kind_a.values_eq(there, kind_a.filter(a.copy()))
    equal = a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    assert kind_a.values_eq(there, kind_b.filter(b)) == equal


def test_which_values_share_memory():
    kind = vector()
    a = kind.filter(np.arange(8, dtype="float32"))
    assert kind.may_share_memory(a, a[2:4])
    assert kind.may_share_memory(a[::-1], a[:1])
    assert not kind.may_share_memory(a[:4], a[4:])
    assert not kind.may_share_memory(a[:0], a)
    assert not kind.may_share_memory(a, arrays.copy(a))
    assert not kind.may_share_memory(a, np.arange(8))


def test_part_buffers_share_with_the_whole():
    context = get_context("dev0")
    a = arrays.from_host(context, np.zeros(4096, "float32"))
    part = cl_array.Array(context.queue, (1024,), "float32", data=a.base_data.get_sub_region(8192, 4096))
    assert vector().may_share_memory(a, part)
    assert vector().may_share_memory(part, a[2048:])
    assert not vector().may_share_memory(part, a[:2048])


def test_sizes():
    kind = OpenCLArrayType("complex64", (False, False), "dev0")
    assert kind.get_size(kind.get_shape_info(kind.filter(np.ones((3, 5), "complex64")))) == 120
    assert OpenCLArrayType("int16", (), "dev0").get_size(()) == 2


def test_variables_of_the_type_stand_for_others():
    kind = vector()
    x = kind("x")
    assert kind.filter_variable(x) is x
    assert kind.filter_variable(np.ones(3, "float32")).type == kind
    on_host = theano.tensor.fvector()
    assert kind.filter_variable(on_host).type == kind
    assert kind.filter_variable(vector(context="dev1")()).type == kind
    single = OpenCLArrayType("float32", (True,), "dev0")()
    assert kind.filter_variable(single).type == kind
    with pytest.raises(TypeError, match="is not compatible with"):
        kind.filter_variable(single, allow_convert=False)
    for wrong in (theano.tensor.dvector(), theano.tensor.fmatrix(), theano.gof.generic()):
        with pytest.raises(TypeError, match="is not compatible with"):
            kind.filter_variable(wrong)
    assert single.type.convert_variable(x) is None


def test_the_context_of_the_type():
    assert vector().context is contexts.get("dev0")
