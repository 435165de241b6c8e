"""Functions handle arrays whose lengths contradict the broadcast patterns of their types."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import Apply, Op

import optdb
from optdb.opencl import OpenCLArrayType, as_opencl_variable
from optdb.opencl.kernel_ops import Kernel, OpenCLKernelBase, check_lengths, output_array

PROMISE = "declares length 1"


class Resized(Op):
    """An op that returns an array with the lengths that a call passes, even if the type declares other lengths."""

    __props__ = ("kind",)

    def __init__(self, kind):
        self.kind = kind

    def make_node(self, lengths):
        return Apply(self, [lengths], [self.kind()])

    def perform(self, node, inputs, outputs, params=None):
        outputs[0][0] = np.arange(np.prod(inputs[0]), dtype="float32").reshape(inputs[0])


one, lengths, vector, matrix = (
    tt.TensorType("float32", (True,))("one"),
    tt.lvector("n"),
    tt.fvector("v"),
    tt.fmatrix("m"),
)
#: An array with one broadcastable axis, and an array with a broadcastable axis and another axis.
liar, row_liar = (Resized(tt.TensorType("float32", pattern))(lengths) for pattern in ((True,), (True, False)))


def values(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype="float32").reshape(shape)


def piece(x, axis=0):
    return tt.split(x, [0, 1], 2, axis)[0]


def of_device(inputs, outputs, **kwargs):
    return theano.function(inputs, outputs, mode=optdb.mode(device="opencl"), on_unused_input="ignore", **kwargs)


def in_python(inputs, outputs):
    return theano.function(inputs, outputs, mode=theano.Mode("py", None), on_unused_input="ignore")


@pytest.mark.parametrize(
    "result",
    [
        piece(one) * 2,
        one[:1:-1] + 1,
        piece(one) * 2 + vector,
        tt.exp(piece(one)).dimshuffle("x", 0) + one.dimshuffle("x", 0),
        tt.concatenate([piece(one), one, vector]),
        piece(one.dimshuffle(0, "x"), 1).dot(tt.unbroadcast(matrix[:0], 0)),
        tt.alloc(piece(one), 3, 0),
        tt.inc_subtensor(vector[:0], piece(one)),
        tt.cumsum(piece(one)),
        tt.nnet.softmax(piece(one.dimshuffle(0, "x")) * matrix),
        (row_liar + one).sum(axis=1) * 2,
        (row_liar * one).sum(axis=1),
    ],
    ids=str,
)
def test_what_has_length_0_is_computed(result):
    inputs = [one, lengths, vector, matrix]
    arguments = values(1), np.array([0, 3]), values(1), values(1, 1)
    expected = in_python(inputs, result)(*arguments)
    function = of_device(inputs, result)
    for _ in range(3):
        computed = function(*arguments)
        assert computed.shape == expected.shape
        np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize(
    "shape, build",
    [
        ((3,), lambda x: x * 2),
        ((3,), lambda x: x + vector),
        ((0,), lambda x: x + vector),
        ((3,), lambda x: tt.alloc(x * 1, 3, 3)),
        ((0,), lambda x: x.dimshuffle() + 1),
        ((3,), lambda x: (matrix * 2).sum(axis=0) * 2 + x),
        ((3, 3), lambda x: x * 2),
        ((3, 3), lambda x: x.sum(axis=1) * 2),
        ((3, 3), lambda x: (x * 2).sum(axis=1)),
    ],
)
@pytest.mark.usefixtures("default")
def test_what_cannot_be_computed_is_refused_by_name(shape, build):
    x = as_opencl_variable(row_liar if len(shape) > 1 else liar, "dev0")
    mode = theano.compile.get_default_mode().including("opencl")
    function = theano.function([lengths, vector, matrix], build(x), mode=mode, on_unused_input="ignore")
    words = rf"axis 0 is broadcastable, which declares length 1, but the array has length {shape[0]}"
    for _ in range(3):
        with pytest.raises(ValueError, match=words) as info:
            function(np.array(shape), values(3), values(3, 3))
    assert "theano.tensor.unbroadcast(x, 0)" in str(info.value) and " takes output 0 of " in str(info.value)


@pytest.mark.usefixtures("default")
def test_shapes_that_do_not_fit_because_a_promise_is_broken():
    state = theano.shared(values(1, 1), "state", broadcastable=(True, True))
    x = piece(theano.shared(values(1), "x", broadcastable=(True,)))
    mode = theano.compile.get_default_mode().including("opencl")
    function = theano.function([], state + tt.outer(x, x), mode=mode)
    assert any("Ger" in str(node.op) for node in function.maker.fgraph.apply_nodes)
    with pytest.raises(ValueError, match=f"Ger.* takes output 0 of .*Split.*{PROMISE}.* length 0"):
        function()


def test_the_cure_of_the_error():
    result = tt.split(tt.unbroadcast(one, 0), [0, 1], 2)[0]
    assert of_device([one, vector], tt.concatenate([result, vector]) * 2)(values(1), values(2)).tolist() == [2, 4]


@pytest.mark.parametrize("plans", [True, False])
def test_lengths_that_change_from_call_to_call(plans):
    first = tt.lscalar()
    arguments = [one, first, vector]
    result = tt.concatenate([tt.split(one, tt.stack([first, 1 - first]), 2)[0] * 2, vector + 1])
    with theano.change_flags({"optdb.plans": plans}):
        function = of_device(arguments, result)
    expected = in_python(arguments, result)
    for number in (1, 1, 1, 0, 0, 1, 0, 1, 1):
        call = values(1), number, values(2)
        np.testing.assert_array_equal(function(*call), expected(*call))


def test_a_result_that_does_not_fit_into_the_overwritten_input():
    state = theano.shared(values(1), "state", broadcastable=(True,))
    result = piece(one) + state
    simulator = optdb.SimulatorOCL(theano.function([one], result, updates=[(state, state * 2)]), "opencl")
    for factor in (1, 2, 4):
        assert simulator.get(state).tolist() == [factor]
        assert simulator(values(1)).shape == (0,)


@pytest.mark.parametrize("shape", [(0,), (2,)])
def test_a_next_value_of_another_length_is_not_stored(shape):
    state = theano.shared(values(1), "state", broadcastable=(True,))
    update = [(state, Resized(state.type)(lengths))]
    function = of_device([lengths], [], updates=update)
    simulator = optdb.SimulatorOCL(theano.function([lengths], [], updates=update), "opencl")
    for call in (function, simulator):
        call(np.array([1]))
        with pytest.raises(ValueError, match=f"update of state .*{PROMISE}.* length {shape[0]}"):
            call(np.array(shape))
    assert simulator.get(state).tolist() == state.get_value().tolist() == [0]


def test_a_file_computes_what_has_length_0(tmp_path):
    result = piece(one) * 2 + vector
    simulator = optdb.SimulatorOCL(theano.function([one, vector], result), "opencl")
    assert simulator.call_n_times(3, values(1), values(1)).shape == (0,)
    simulator.export(tmp_path / "f.optdb", [(values(1), values(1))])
    assert optdb.load(tmp_path / "f.optdb", "opencl")(values(1), values(1)).shape == (0,)


class FirstOfAll(OpenCLKernelBase):
    """An op whose kernel reads only the first element of the second input, as its broadcast pattern allows."""

    __props__ = ()

    def make_node(self, x, y):
        x, y = as_opencl_variable(x, "dev0"), as_opencl_variable(y, "dev0")
        return Apply(self, [x, y], [OpenCLArrayType("float32", (False,), "dev0")()])

    def gpu_kernels(self, node, name):
        code = "KERNEL void go(ARRAY float *x, ARRAY float *y, ARRAY float *z) { z[get_global_id(0)] = *y; }"
        return [Kernel(code)]

    def run(self, node, inputs, outputs, kernels, context):
        x, y = inputs
        out = output_array(outputs[0], context, x.shape, "float32")
        kernels["go"].call(x.size, None, x, y, out)


@pytest.mark.usefixtures("default")
def test_an_op_with_kernels_of_its_own_gets_what_types_promise():
    mode = theano.compile.get_default_mode().including("opencl")
    function = theano.function(
        [one, lengths, vector], FirstOfAll()(vector, piece(one)), mode=mode, on_unused_input="ignore"
    )
    for _ in range(3):
        with pytest.raises(ValueError, match=f"FirstOfAll.* takes output 0 of .*Split.*{PROMISE}.*length 0"):
            function(values(1), [0], values(2))


class Half(FirstOfAll):
    """An op whose results have another shape or dtype than its node declares."""

    __props__ = ("shape", "dtype")

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, dtype

    def run(self, node, inputs, outputs, kernels, context):
        outputs[0][0] = None if self.dtype is None else output_array([None], context, self.shape, self.dtype)


@pytest.mark.usefixtures("default")
@pytest.mark.parametrize("shape, dtype", [((3,), "int8"), ((3, 3), "float32"), ((), "float32"), ((3,), None)])
def test_results_of_an_op_with_kernels_of_its_own_are_of_their_types(shape, dtype):
    mode = theano.compile.get_default_mode().including("opencl")
    function = theano.function([one, vector], Half(shape, dtype)(vector, one) * 2, mode=mode)
    with pytest.raises(TypeError, match=r"Half.* returned output 0 .*make_node declares .*float32, vector"):
        function(values(1), values(3))


def test_check_lengths_takes_what_types_promise():
    check_lengths("a test", [one, vector], [values(1), values(3)])
    with pytest.raises(ValueError, match=f"a test takes one, .*{PROMISE}"):
        check_lengths("a test", [one, vector], [values(2), values(3)])
    with pytest.raises(ValueError, match=PROMISE):
        check_lengths("a test", [one], [values(0)])
    check_lengths("a test", [one], [values(0)], empty=True)


@pytest.mark.parametrize("dtype", ["int8", "float16", ">f4", "float64", "bool"])
def test_arguments_that_theano_does_not_look_at(dtype):
    function = of_device([vector], vector * 2 + 1)
    function.trust_input = True
    for _ in range(3):
        result = function(np.array([1, 0, 1], dtype))
        assert result.dtype == "float32" and result.tolist() == [3, 1, 3]


@pytest.mark.parametrize("value", [np.ones((2, 2), "float32"), np.ones(2, "complex64"), np.float32(1)])
def test_trusted_arguments_of_another_kind_are_refused_by_name(value):
    function = of_device([vector], vector * 2 + 1)
    function.trust_input = True
    with pytest.raises(TypeError, match=f"v must be .*float32.* but is an array of {value.dtype}"):
        function(value)


def test_an_op_of_the_host_that_returns_another_dtype():
    class Bytes(Resized):
        def perform(self, node, inputs, outputs, params=None):
            outputs[0][0] = np.ones(inputs[0], "int8")

    result = Bytes(vector.type)(lengths) * 2 + vector
    assert of_device([lengths, vector], result)(np.array([3]), values(3)).tolist() == [3, 4, 5]


@pytest.mark.parametrize("change", [tt.inc_subtensor, tt.set_subtensor])
def test_rows_without_elements_take_no_values_of_another_length(change):
    result = change(matrix[tt.constant([0, 0])], vector)
    function, expected = of_device([matrix, vector], result), in_python([matrix, vector], result)
    np.testing.assert_array_equal(function(values(1, 0), values(0)), expected(values(1, 0), values(0)))
    for compute in (function, expected):
        with pytest.raises(ValueError, match="broadcast"):
            compute(values(1, 0), values(2))
