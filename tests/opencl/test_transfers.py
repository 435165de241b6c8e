"""Graphs and functions contain transfers between the host and the device."""

from __future__ import annotations

import io

import numpy as np
import pyopencl.array as cl_array
import pytest
import theano
import theano.tensor as tt
from hypothesis import given

from optdb.lifters.contexts import ContextNotDefined
from optdb.lifters.transfers import count_transfers, dedup_transfers
from optdb.opencl import (
    HostFromOpenCL,
    OpenCLArrayType,
    OpenCLConstant,
    OpenCLFromHost,
    OpenCLToOpenCL,
    as_opencl_variable,
    contexts,
    infer_context_name,
)
from optdb.opencl.transfers import MixedContexts
from tests.opencl.values import values


def on_device(name="dev0", dtype="float32", broadcastable=(False,)):
    return OpenCLArrayType(dtype, broadcastable, name)()


def ops(f):
    return [type(node.op) for node in f.maker.fgraph.toposort()]


def test_a_function_returns_an_array_on_the_device():
    x = tt.fmatrix()
    f = theano.function([x], x.transfer("dev0"))
    value = np.arange(6, dtype="float32").reshape(2, 3)
    out = f(value)
    assert isinstance(out, cl_array.Array)
    np.testing.assert_array_equal(out.get(), value)
    assert ops(f) == [OpenCLFromHost]


@given(values())
def test_there_and_back_and_to_another(value):
    kind = tt.TensorType(value.dtype, (False,) * value.ndim)
    op = OpenCLFromHost("dev0"), OpenCLToOpenCL("dev1"), HostFromOpenCL()
    x = kind()
    outputs = [op[0](x)]
    outputs.append(op[1](outputs[0]))
    outputs.append(op[2](outputs[1]))
    storage = value
    for out in outputs:
        cell = [[None]]
        out.owner.op.perform(out.owner, [storage], cell)
        storage = cell[0][0]
        assert out.type.is_valid_value(storage)
    np.testing.assert_array_equal(storage, value)
    assert not np.may_share_memory(storage, value)


@pytest.mark.parametrize("mode", ["FAST_RUN", "FAST_COMPILE", "DebugMode"])
def test_modes(mode):
    x = tt.fmatrix()
    y = x.transfer("dev0").transfer("dev1").transfer("cpu") * 2
    f = theano.function([x], [y, x.transfer("dev0")], mode=mode)
    for value in (np.ones((2, 3), "float32"), np.ones((4, 6), "float32")[::2, ::-2], np.ones((0, 3), "float32")):
        back, there = f(value)
        np.testing.assert_array_equal(back, value * 2)
        np.testing.assert_array_equal(there.get(), value)


def test_inputs_on_the_device():
    x = on_device()
    f = theano.function([x], [x, x * 2], allow_input_downcast=True)
    there = x.type.filter(np.arange(6, dtype="float32"))
    same, double = f(there[::-2])
    np.testing.assert_array_equal(same.get(), [5, 3, 1])
    np.testing.assert_array_equal(double, [10, 6, 2])
    assert not x.type.may_share_memory(same, there)
    np.testing.assert_array_equal(f([1.5, 2.5])[1], [3, 5])


def test_borrowed_outputs_may_be_the_input():
    x = on_device()
    f = theano.function([theano.In(x, borrow=True)], theano.Out(x, borrow=True))
    there = x.type.filter(np.arange(3, dtype="float32"))
    assert x.type.may_share_memory(f(there), there)


def test_outputs_of_views_that_are_not_contiguous_are_copied():
    x = on_device()
    queue = x.type.context.queue
    theirs = cl_array.to_device(queue, np.arange(6, dtype="float32"))[::2]
    np.testing.assert_array_equal(theano.function([x], x)(theirs).get(), [0, 2, 4])


def test_outputs_of_earlier_calls_stay():
    x = tt.fvector()
    f = theano.function([x], [x.transfer("dev0"), x.transfer("dev0").transfer("cpu")])
    first = f([1])
    second = f([2])
    assert [np.asarray(out)[0] for out in (*first, *second)] == [1, 1, 2, 2]


def test_kept_intermediates_are_right():
    x = tt.fvector()
    y = HostFromOpenCL()(OpenCLFromHost("dev0")(x)) + 1
    f = theano.function([x], y, mode=theano.Mode(linker=theano.gof.vm.VM_Linker(allow_gc=False, use_cloop=False)))
    for value in ([1, 2], [3, 4], [5]):
        np.testing.assert_array_equal(f(np.float32(value)), np.float32(value) + 1)


@pytest.mark.slow
def test_gradients():
    x = tt.dmatrix()
    y = OpenCLToOpenCL("dev1")(OpenCLFromHost("dev0")(x * 3)).transfer("cpu")
    grad = theano.grad((y**2).sum(), x)
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(theano.function([x], grad)(value), 18 * value)
    theano.gradient.verify_grad(lambda x: tt.tanh(x.transfer("dev0")).transfer("cpu"), [value], rng=np.random)


def test_gradients_on_the_device():
    x = on_device("dev1", "float64")
    grad = theano.grad((x * 2).transfer("dev0").transfer("cpu").sum(), x)
    assert grad.type == x.type
    np.testing.assert_array_equal(theano.function([x], grad)([1.0, 2.0]).get(), [2, 2])


def test_r_op():
    x, v = tt.dvectors("x", "v")
    y = OpenCLToOpenCL("dev1")(OpenCLFromHost("dev0")(x**2)).transfer("cpu")
    f = theano.function([x, v], tt.Rop(y, x, v))
    np.testing.assert_allclose(f([1.0, 2.0], [10.0, 100.0]), [20, 400])


def test_shapes_need_no_transfer():
    x = tt.fmatrix()
    f = theano.function([x], x.transfer("dev0").transfer("dev1").shape)
    assert f(np.ones((2, 3), "float32")).tolist() == [2, 3]
    assert not {OpenCLFromHost, OpenCLToOpenCL, HostFromOpenCL} & set(ops(f))


def test_what_crosses_is_counted():
    x = tt.fvector()
    f = theano.function([x], OpenCLToOpenCL("dev1")(x.transfer("dev0")).transfer("cpu"))
    with count_transfers() as traffic:
        f(np.ones(5, "float32"))
    assert traffic.nbytes == {"OpenCLFromHost": 20, "OpenCLToOpenCL": 20, "HostFromOpenCL": 20}


def test_special_comparisons_go_along():
    x = tt.dvector()
    x.tag.values_eq_approx = tt.type.values_eq_approx_remove_inf
    there = OpenCLFromHost("dev0")(x)
    further = OpenCLToOpenCL("dev1")(there)
    kind = further.type
    one, inf = kind.filter(np.ones(1)), kind.filter(np.array([np.inf]))
    assert further.tag.values_eq_approx(inf, one)
    assert not kind.values_eq_approx(inf, one)
    assert HostFromOpenCL()(further).tag.values_eq_approx is tt.type.values_eq_approx_remove_inf


@pytest.mark.parametrize("op", [HostFromOpenCL, lambda: OpenCLToOpenCL("dev0")])
def test_ops_refuse_what_is_on_the_host(op):
    with pytest.raises(TypeError, match="moves arrays from an OpenCL device"):
        op()(tt.fvector())


def test_from_host_refuses_what_is_on_the_device():
    with pytest.raises(TypeError, match="is on dev1"):
        OpenCLFromHost("dev0")(on_device("dev1"))


def test_ops_are_what_their_context_is():
    assert OpenCLFromHost("dev0") == OpenCLFromHost("dev0") != OpenCLFromHost("dev1")
    assert str(OpenCLToOpenCL("dev1")) == "OpenCLToOpenCL<dev1>"
    with pytest.raises(ContextNotDefined, match="dev9"):
        OpenCLFromHost("dev9")


# As few transfers as possible


def test_what_is_there_stays():
    x = on_device()
    assert as_opencl_variable(x, "dev0") is x
    assert as_opencl_variable(x.transfer("cpu"), "dev0") is x
    assert as_opencl_variable(x.transfer("dev1").transfer("cpu"), "dev0") is x
    assert x.transfer("dev0") is x


def test_one_move_between_devices():
    x = on_device()
    moved = as_opencl_variable(x.transfer("cpu"), "dev1")
    assert isinstance(moved.owner.op, OpenCLToOpenCL)
    assert moved.owner.inputs == [x]
    on_host = tt.fvector()
    moved = as_opencl_variable(on_host.transfer("dev0"), "dev1")
    assert isinstance(moved.owner.op, OpenCLFromHost)
    assert moved.owner.inputs == [on_host]


@pytest.mark.parametrize("value", [tt.constant([1.0, 2.0]), np.array([1.0, 2.0]), [1.0, 2.0]])
def test_constants_become_constants(value):
    moved = as_opencl_variable(value, "dev0")
    assert isinstance(moved, OpenCLConstant)
    np.testing.assert_array_equal(moved.data.get(), [1, 2])
    again = as_opencl_variable(moved, "dev1")
    assert isinstance(again, OpenCLConstant)
    assert again.type.context_name == "dev1"
    assert moved.equals(as_opencl_variable(moved.transfer("cpu"), "dev0"))


def test_arrays_on_the_device_become_constants():
    there = OpenCLArrayType("float32", (False, False), "dev0").filter(np.ones((3, 1), "float32"))
    moved = as_opencl_variable(there, "dev0")
    assert moved.type == OpenCLArrayType("float32", (False, True), "dev0")


def test_constant_transfers_are_folded():
    x = tt.fvector()
    f = theano.function([x], x * OpenCLFromHost("dev0")(tt.constant(np.float32([1, 2]))))
    assert not {OpenCLFromHost, HostFromOpenCL} & set(ops(f))
    np.testing.assert_array_equal(f([3, 4]), [3, 8])


def test_scalars_of_the_host():
    moved = as_opencl_variable(theano.scalar.float32(), "dev0")
    assert moved.type == OpenCLArrayType("float32", (), "dev0")


def test_other_types_are_refused():
    with pytest.raises(TypeError):
        as_opencl_variable(theano.gof.generic(), "dev0")


def test_one_transfer_in_a_lift():
    x = tt.fvector()
    with dedup_transfers():
        once, other = as_opencl_variable(x, "dev0"), as_opencl_variable(x, "dev1")
        assert as_opencl_variable(x, "dev0") is once
        assert other.type.context_name == "dev1"
    assert as_opencl_variable(x, "dev0") is not once


def test_stack_traces_go_along():
    x = tt.fvector() + 1
    assert x.tag.trace[0] in as_opencl_variable(x, "dev0").tag.trace


# Targets


def test_unknown_targets():
    with pytest.raises(
        ContextNotDefined, match=r"dev9: no such context; there is .*dev0, dev1.*\nThe cure: .*optdb\.contexts=dev9->"
    ):
        tt.fvector().transfer("dev9")
    with pytest.raises(ContextNotDefined, match="no default"):
        tt.fvector().transfer(None)


def test_the_default_target(default):
    assert tt.fvector().transfer(None).type.context_name == default


def test_other_devices_are_asked_as_well(monkeypatch):
    moved = tt.fvector()
    others = [*tt.transfer._others, lambda x, target: moved if target == "elsewhere" else None]
    monkeypatch.setattr(tt.transfer, "_others", others)
    assert tt.fvector().transfer("elsewhere") is moved


# The placement of an op


def test_inferred_contexts(default):
    contexts.default = None
    x, here, there = tt.fvector(), on_device("dev0"), on_device("dev1")
    assert infer_context_name(x, there) == "dev1"
    assert infer_context_name(here.transfer("cpu"), there) == "dev1"
    assert infer_context_name(x, there.transfer("cpu")) == "dev1"
    with pytest.raises(ContextNotDefined, match="no default"):
        infer_context_name(x)
    x.tag.target = "cpu"
    with pytest.raises(ContextNotDefined, match="no default"):
        infer_context_name(x)
    x.tag.target = "dev1"
    assert infer_context_name(x) == "dev1"
    x.tag.context_name = "dev0"
    assert infer_context_name(x) == "dev0"
    assert infer_context_name(x, there.transfer("cpu")) == "dev1"
    contexts.default = "dev1"
    assert infer_context_name(tt.fvector()) == "dev1"
    assert infer_context_name() == "dev1"


def test_mixed_contexts():
    with pytest.raises(MixedContexts, match=r"is on dev0, .* is on dev1; move them .*x.transfer\('dev0'\)"):
        infer_context_name(on_device("dev0"), tt.fvector(), on_device("dev1"))


def test_print():
    x = tt.fvector("x")
    y = on_device("dev1")
    text = io.StringIO()
    theano.printing.debugprint([OpenCLToOpenCL("dev1")(x.transfer("dev0")), y * 2], file=text, print_type=True)
    for part in (
        "OpenCLFromHost<dev0>",
        "OpenCLToOpenCL<dev1>",
        "HostFromOpenCL",
        "OpenCLArrayType<dev1>(float32, vector)",
    ):
        assert part in text.getvalue()
