"""Lifted convolutions and their gradients agree with NumPy and with the host."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from theano.tensor.nnet import abstract_conv as host

from optdb.codegen.convolve import operations
from optdb.codegen.convolve.geometry import axes_of
from optdb.opencl import HostFromOpenCL, OpenCLFromHost
from optdb.opencl.ops.conv import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights
from tests.codegen.convolved import CASES, Reference, close, convolutions
from tests.effort import examples
from tests.opencl.layouts import NAME, device_array, variable
from tests.opencl.lifted import lifted_function, ops_of

OPS = (OpenCLConv, OpenCLConvGradWeights, OpenCLConvGradInputs)
HOST_OPS = {
    2: (host.AbstractConv2d, host.AbstractConv2d_gradWeights, host.AbstractConv2d_gradInputs),
    3: (host.AbstractConv3d, host.AbstractConv3d_gradWeights, host.AbstractConv3d_gradInputs),
}

#: Cases whose programs take long to build.
SLOW = {"valid", "three axes", "unshared"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]
)
def test_lifted_convolutions_are_as_defined(name):
    arrays, parameters = CASES[name]
    x, w, t = (a.astype("float32") for a in arrays)
    dims = x.ndim - 2
    reference = Reference(x, w, t, parameters)
    a, b, c = (tt.TensorType("float32", [False] * v.ndim)() for v in (x, w, t))
    forward, weights, inputs = (op(**parameters) for op in HOST_OPS[dims])
    outputs = [
        forward(a, b),
        weights(a, c, np.array(w.shape[-dims:])),
        inputs(b, c, np.array(x.shape[2:])),
    ]
    f = lifted_function([a, b, c], outputs)
    assert set(ops_of(f)) == set(OPS)
    for got, want in zip(f(x, w, t), (reference.forward(), reference.weights(), reference.inputs())):
        close(np.asarray(got), want, "float32")


@given(convolutions())
@settings(max_examples=examples(150))
def test_lengths_are_those_of_the_host(convolution):
    image, taps, parameters = convolution
    numbers = parameters["border_mode"], parameters["subsample"], parameters["filter_dilation"]
    theirs = host.get_conv_output_shape((1, 1, *image), (1, 1, *taps), *numbers)
    assert [axis.out for axis in axes_of(image, taps, *numbers)] == [1, *theirs[2:]]


def test_dtypes_are_not_mixed():
    x, w = np.ones((1, 1, 3, 3), "float32"), np.ones((1, 1, 3, 3), "float64")
    with pytest.raises(TypeError, match="takes floats of the same dtype, not float32 and float64: cast them first"):
        OpenCLConv(2)(variable(x), variable(w))
    with pytest.raises(TypeError, match="not int8"):
        OpenCLConv(2)(variable(x.astype("int8")), variable(x.astype("int8")))


def test_a_lift_casts():
    x, w = tt.ftensor4(), tt.dtensor4()
    a, b = np.linspace(-1, 1, 2 * 2 * 5 * 5).reshape(2, 2, 5, 5), np.linspace(-2, 1, 4 * 2 * 3 * 3).reshape(4, 2, 3, 3)
    f = lifted_function([x, w], [host.AbstractConv2d()(x, w)])
    assert OpenCLConv in ops_of(f)
    (got,) = f(a.astype("float32"), b)
    parameters = {"border_mode": "valid", "subsample": (1, 1), "filter_dilation": (1, 1)}
    want = Reference(a.astype("float32"), b, np.zeros((2, 4, 3, 3)), parameters).forward()
    close(np.asarray(got), want, "float32")


def test_whole_numbers_stay_on_the_host():
    x = tt.TensorType("int32", [False] * 4)()
    f = lifted_function([x], [host.AbstractConv2d()(x, x)])
    assert ops_of(f) == [host.AbstractConv2d]


GRADIENTS = ["strided", "three axes in groups", "unshared"]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_through_ops_of_the_device(name):
    arrays, parameters = CASES[name]
    x, w, t = (a.astype("float32") for a in arrays)
    dims = x.ndim - 2
    reference = Reference(x, w, t, parameters)
    a, b, c = (variable(value) for value in (x, w, t))
    taps, lengths = np.array(w.shape[-dims:]), np.array(x.shape[2:])
    forward, weights, inputs = (kind(dims, **parameters) for kind in OPS)
    graphs = [
        (forward(a, b), c, [a, b]),  # the gradients of this one are with respect to images and filters
        (weights(a, c, taps), b, [a, c]),
        (inputs(b, c, lengths), a, [b, c]),
    ]
    mode = theano.Mode("py", None)
    grads = []
    for out, by, wrt in graphs:
        found = theano.grad(None, wrt, known_grads={out: by})
        assert all(grad.type == var.type for grad, var in zip(found, wrt))
        grads += found
    f = theano.function([a, b, c], grads, mode=mode, on_unused_input="ignore")
    got = [np.asarray(value) for value in f(*map(device_array, (x, w, t)))]
    outputs = {"x": reference.inputs(), "w": reference.weights(), "t": reference.forward()}
    for value, which in zip(got, ["x", "w", "x", "t", "w", "t"]):
        close(value, outputs[which], "float32")


def test_directional_derivatives():
    arrays, parameters = CASES["valid"]
    x, w, t = (a.astype("float32") for a in arrays)
    a, b, d, e = (variable(value) for value in (x, w, x, w))
    out = OpenCLConv(2, **parameters)(a, b)
    f = theano.function([a, b, d, e], theano.tensor.Rop(out, [a, b], [d, e]), mode=theano.Mode("py", None))
    got = f(*map(device_array, (x, w, 2 * x, 3 * w)))
    close(np.asarray(got), 5 * Reference(x, w, t, parameters).forward(), "float32")


def test_shapes_are_known_without_computing():
    x, w, s = tt.ftensor4(), tt.ftensor4(), tt.lvector()
    device = [OpenCLFromHost(NAME)(v) for v in (x, w)]
    op = {"border_mode": "half", "subsample": (2, 1)}
    shapes = [
        OpenCLConv(2, **op)(*device).shape,
        OpenCLConvGradWeights(2, **op)(*device, s).shape,
        OpenCLConvGradInputs(2, **op)(*device, s).shape,
    ]
    f = theano.function([x, w, s], shapes, mode=theano.Mode("py", "fast_run").excluding("fusion"))
    assert not any(isinstance(node.op, OPS) for node in f.maker.fgraph.apply_nodes)
    values = np.ones((2, 3, 9, 8), "float32"), np.ones((4, 3, 3, 3), "float32"), np.array([3, 3])
    assert [tuple(shape) for shape in f(*values)] == [(2, 4, 5, 8), (3, 3, 3, 3), (4, 3, 3, 3)]


def test_ops_are_pickled():
    for kind in OPS:
        op = kind(2, border_mode=((1, 2), 3), num_groups=2, imshp=(None, 4, 5, 6))
        assert pickle.loads(pickle.dumps(op)) == op
        assert kind.like(op) == op != kind(2)


@pytest.mark.slow
@pytest.mark.skipif(not theano.config.cxx, reason="the host's convolutions are in C++")
def test_gradients_of_a_net_are_those_of_the_host():
    rng = np.random.default_rng(1)
    x, w = tt.ftensor4(), tt.ftensor4()
    shapes = (2, 3, 9, 8), (4, 3, 3, 3)
    out = tt.nnet.conv2d(x, w, shapes[0], shapes[1], border_mode=(1, 2), subsample=(2, 1), filter_dilation=(1, 2))
    outputs = [out, *tt.grad((out**2).sum(), [x, w])]
    values = [rng.normal(size=shape).astype("float32") for shape in shapes]
    want = theano.function([x, w], outputs, mode=theano.Mode("c|py", "fast_run"))(*values)
    f = lifted_function([x, w], outputs)
    assert set(OPS) <= set(ops_of(f))
    for got, theirs in zip(f(*values), want):
        np.testing.assert_allclose(np.asarray(got), theirs, rtol=1e-4, atol=1e-4)


def test_sizes_of_results_are_worked_out_on_the_host():
    values = np.ones((2, 3, 9, 8), "float32"), np.ones((4, 3, 3, 3), "float32")
    device = [variable(value) for value in values]
    x, w = map(tt.as_tensor_variable, device)
    loss = tt.nnet.conv2d(x, w, border_mode="half", subsample=(2, 2)).sum()
    outputs = [grad.transfer(NAME) for grad in tt.grad(loss, [x, w])]
    mode = theano.Mode("py", "fast_run").including("opencl").excluding("fusion")
    f = theano.function(device, outputs, mode=mode)
    nodes = f.maker.fgraph.toposort()
    assert sum(isinstance(node.op, OPS) for node in nodes) == 2
    assert not any(isinstance(node.op, OpenCLFromHost | HostFromOpenCL) for node in nodes)
    parameters = {"border_mode": "half", "subsample": (2, 2), "filter_dilation": (1, 1)}
    reference = Reference(*values, np.ones((2, 4, 5, 4), "float32"), parameters)
    for got, want in zip(f(*map(device_array, values)), (reference.inputs(), reference.weights())):
        close(np.asarray(got), want, "float32")


def test_each_function_keeps_the_precision_that_it_was_compiled_with(monkeypatch):
    seen = []

    def listening(function):
        def listen(call, *args):
            seen.append(call.precision)
            return function(call, *args)

        return listen

    for name in ("correlate", "weights"):
        monkeypatch.setattr(operations, name, listening(getattr(operations, name)))
    x, w = tt.ftensor4(), tt.ftensor4()
    result = tt.nnet.conv2d(x, w)
    outputs = [result, *theano.grad(result.sum(), [x, w])]
    functions = {}
    for precision in ("default", "highest"):
        with theano.change_flags(**{"optdb.matmul_precision": precision}):
            functions[precision] = lifted_function([x, w], outputs)
    for precision, function in functions.items():
        seen.clear()
        function(np.ones((2, 4, 5, 5), "float32"), np.ones((5, 4, 3, 3), "float32"))
        assert seen == [precision] * 3
