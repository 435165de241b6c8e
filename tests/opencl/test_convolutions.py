"""Convolutions and their gradients on the device, against NumPy and against the host's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import abstract_conv as host

from optdb.codegen import scratch
from optdb.codegen.convolve import packing
from optdb.opencl import HostFromOpenCL, OpenCLFromHost, get_context
from optdb.opencl.ops.convolve import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights
from tests.opencl.convolved import Reference, lengths_of
from tests.opencl.layouts import NAME, device_array, run, variable
from tests.opencl.lifted import lifted_function, ops_of

OPS = (OpenCLConv, OpenCLConvGradWeights, OpenCLConvGradInputs)
HOST_OPS = {
    2: (host.AbstractConv2d, host.AbstractConv2d_gradWeights, host.AbstractConv2d_gradInputs),
    3: (host.AbstractConv3d, host.AbstractConv3d_gradWeights, host.AbstractConv3d_gradInputs),
}


def case(images, channels, filters, image, taps, border_mode="valid", step=1, dilation=1, **others):
    """Return images, filters, a gradient of the result, and the host's parameters."""
    dims = len(image)
    step, dilation = ((x,) * dims if isinstance(x, int) else x for x in (step, dilation))
    parameters = {"border_mode": border_mode, "subsample": step, "filter_dilation": dilation, **others}
    out = lengths_of(image, taps, border_mode, step, dilation)
    groups = others.get("num_groups", 1)
    regions = out if others.get("unshared") else ()
    rng = np.random.default_rng(0)
    shapes = (
        (images, channels, *image),
        (filters, *regions, channels // groups, *taps),
        (images, filters, *out),
    )
    return [rng.uniform(-1, 1, shape) for shape in shapes], parameters


CASES = {
    "valid": case(2, 3, 5, (7, 6), (3, 2)),
    "half": case(3, 4, 8, (16, 16), (3, 3), "half"),
    "rows of vectors": case(1, 2, 9, (3, 33), (3, 3), "half"),
    "full": case(2, 2, 4, (5, 6), (3, 4), "full", filter_flip=False),
    "asymmetric": case(2, 2, 4, (9, 8), (3, 3), ((0, 2), (1, 0)), step=(2, 1)),
    "strided": case(2, 3, 17, (11, 14), (3, 3), 1, step=(2, 3)),
    "every other of vectors": case(1, 2, 9, (5, 67), (3, 3), "half", step=2),
    "every other, without padding": case(1, 2, 9, (3, 66), (1, 2), step=(1, 2)),
    "dilated": case(2, 3, 4, (12, 13), (3, 2), (2, 1), step=2, dilation=(2, 3), filter_flip=False),
    "more padding than taps": case(2, 2, 4, (3, 3), (2, 2), (3, 4), step=2),
    "steps over elements": case(2, 2, 4, (9, 9), (2, 1), step=4),
    "1x1": case(2, 6, 5, (6, 7), (1, 1)),
    "1x1 strided": case(2, 6, 5, (6, 7), (1, 1), step=2),
    "one pixel": case(3, 4, 5, (1, 1), (1, 1)),
    "groups": case(2, 6, 8, (8, 7), (3, 3), "half", num_groups=2),
    "depthwise": case(2, 4, 4, (9, 20), (3, 3), "half", num_groups=4),
    "depthwise strided": case(2, 4, 8, (9, 20), (3, 3), "half", step=2, num_groups=4),
    "three axes": case(2, 3, 4, (4, 5, 6), (2, 3, 2), (1, 0, 1), step=(1, 2, 1)),
    "three axes in groups": case(1, 4, 4, (5, 4, 3), (2, 2, 2), "full", dilation=(2, 1, 1), num_groups=2),
    "unshared": case(2, 3, 4, (6, 5), (3, 2), "half", unshared=True),
    "unshared in groups": case(
        2, 4, 6, (8, 7), (3, 2), ((1, 0), 2), step=(2, 1), dilation=2, num_groups=2, unshared=True, filter_flip=False
    ),
}


def close(got, want, dtype):
    assert got.shape == want.shape and got.dtype == want.dtype == dtype
    eps = np.finfo(dtype).eps
    scale = max(np.abs(want.astype("float64")).max(initial=0), 1)
    np.testing.assert_allclose(got, want, rtol=0, atol=(2 if dtype == "float16" else 60) * eps * scale)


def check(arrays, parameters, dtype):
    x, w, t = (a.astype(dtype) for a in arrays)
    dims = x.ndim - 2
    reference = Reference(x, w, t, parameters)
    a, b, c = (tt.TensorType(dtype, [False] * v.ndim)() for v in (x, w, t))
    forward, weights, inputs = (op(**parameters) for op in HOST_OPS[dims])
    outputs = [
        forward(a, b),
        weights(a, c, np.array(w.shape[-dims:])),
        inputs(b, c, np.array(x.shape[2:])),
    ]
    f = lifted_function([a, b, c], outputs)
    assert set(ops_of(f)) == set(OPS)
    for got, want in zip(f(x, w, t), (reference.forward(), reference.weights(), reference.inputs())):
        close(np.asarray(got), want, dtype)


@pytest.mark.parametrize("name", CASES)
def test_lifted_convolutions_are_as_defined(name, each_device_kind):
    check(*CASES[name], "float32")


@pytest.mark.parametrize("name", ["strided", "depthwise", "unshared"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(name, dtype, each_device_kind):
    check(*CASES[name], dtype)


@pytest.mark.parametrize("name", ["half", "depthwise"])
def test_images_are_laid_out_a_few_at_a_time(name, each_device_kind, monkeypatch):
    arrays, parameters = CASES[name]
    monkeypatch.setattr(packing, "LARGEST", 1)
    check([np.repeat(a, 2, axis=0) if i != 1 else a for i, a in enumerate(arrays)], parameters, "float32")


def op_inputs(kind, x, w, t, steps=(1, 1, 1)):
    """Return what an op takes, as values on the device and of the host."""
    x, w, t = ((value, steps) for value in (x, w, t))
    chosen = {OpenCLConv: [x, w], OpenCLConvGradWeights: [x, t], OpenCLConvGradInputs: [w, t]}[kind]
    arrays = [device_array(value, [step for step, _ in zip(own * 2, value.shape)]) for value, own in chosen]
    others = {OpenCLConvGradWeights: [np.array(w[0].shape[2:])], OpenCLConvGradInputs: [np.array(x[0].shape[2:])]}
    return [variable(value) for value, _ in chosen] + others.get(kind, []), arrays + others.get(kind, [])


@pytest.mark.parametrize("steps", [(2, -1, 1), (1, 1, -3), (-1, 2, 2)])
def test_inputs_of_any_strides(steps):
    arrays, parameters = CASES["half"]
    x, w, t = (a.astype("float32") for a in arrays)
    reference = Reference(x, w, t, parameters)
    for kind, want in zip(OPS, (reference.forward(), reference.weights(), reference.inputs())):
        variables, values = op_inputs(kind, x, w, t, steps)
        (got,) = run(kind(2, **parameters)(*variables).owner, values)
        close(got, want, "float32")


@pytest.mark.parametrize("empty", [(0, 4, 8), (2, 0, 8), (2, 4, 0)])
def test_where_nothing_is_summed_up_there_are_zeros(empty):
    arrays, parameters = case(*empty, (5, 6), (3, 3), "half")
    x, w, t = (a.astype("float32") for a in arrays)
    for kind, want in zip(OPS, (t, w, x)):
        variables, values = op_inputs(kind, x, w, t)
        (got,) = run(kind(2, **parameters)(*variables).owner, values)
        np.testing.assert_array_equal(got, np.zeros_like(want))


def test_what_is_not_finite_stays_where_it_is():
    x = np.zeros((1, 1, 4, 6), "float32")
    x[0, 0, 1, 4], x[0, 0, 3, 0] = np.inf, np.nan
    w, t = np.ones((4, 1, 1, 2), "float32"), np.ones((1, 4, 4, 5), "float32")
    parameters = {"border_mode": "valid", "subsample": (1, 1), "filter_dilation": (1, 1)}
    variables, values = op_inputs(OpenCLConv, x, w, t)
    (got,) = run(OpenCLConv(2)(*variables).owner, values)
    np.testing.assert_array_equal(got, Reference(x, w, t, parameters).forward())
    x[0, 0, 3, 0], x[0, 0, 1, 4], x[0, 0, 2, 5] = 0, 0, np.inf
    variables, values = op_inputs(OpenCLConvGradWeights, x, w, t)
    (got,) = run(OpenCLConvGradWeights(2)(*variables).owner, values)
    np.testing.assert_array_equal(got, np.array([np.inf, 0] * 4, "float32").reshape(w.shape))


SHAPES = [
    ((2, 3, 5, 5), (4, 2, 3, 3), {}, "numbers of channels do not fit"),
    ((2, 4, 5, 5), (3, 2, 3, 3), {"num_groups": 2}, "cannot divide 3 filters into 2 groups"),
    ((2, 3, 5, 5), (4, 3, 7, 3), {}, "nothing is left"),
    ((2, 3, 5, 5), (4, 3, 7, 3), {"subsample": (2, 2)}, "nothing is left"),
    ((2, 3, 5, 5), (4, 3, 0, 3), {"filter_dilation": (2, 1)}, "nothing is left"),
    ((2, 3, 5, 5), (4, 3, 0, 3), {"border_mode": "full"}, "nothing is left"),
    ((2, 3, 5, 5), (4, 3, 3, 2, 3, 3), {"unshared": True}, "numbers of channels do not fit"),
    ((2, 3, 5, 5), (4, 2, 2, 3, 3, 3), {"unshared": True}, r"filters are needed for \(3, 3\) outputs"),
]


@pytest.mark.parametrize("image, kernel, parameters, message", SHAPES)
def test_shapes_that_do_not_fit_are_refused(image, kernel, parameters, message):
    x, w = np.ones(image, "float32"), np.ones(kernel, "float32")
    node = OpenCLConv(2, **parameters)(variable(x), variable(w)).owner
    with pytest.raises(ValueError, match=message):
        run(node, [device_array(x), device_array(w)])


@pytest.mark.parametrize("kind", [OpenCLConvGradWeights, OpenCLConvGradInputs])
def test_a_shape_that_gives_another_result_is_refused(kind):
    arrays, parameters = CASES["valid"]
    variables, values = op_inputs(kind, *(a.astype("float32") for a in arrays))
    node = kind(2, **parameters)(*variables).owner
    with pytest.raises(ValueError, match="which do not give a result of shape"):
        run(node, [*values[:2], np.array([4, 4])])


def test_dtypes_are_not_mixed():
    x, w = np.ones((1, 1, 3, 3), "float32"), np.ones((1, 1, 3, 3), "float64")
    with pytest.raises(TypeError, match="takes floats of one dtype, not float32 and float64: cast them first"):
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
        (forward(a, b), c, [a, b]),  # by images and by filters
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


def test_tables_and_memory_are_used_again():
    arrays, parameters = CASES["half"]
    x, w, t = (a.astype("float32") for a in arrays)
    kept = get_context(NAME).kept
    for _ in range(2):
        for kind in OPS:
            variables, values = op_inputs(kind, x, w, t)
            run(kind(2, **parameters)(*variables).owner, values)
        seen = len(kept[scratch.TABLES]._entries), kept[scratch.MEMORY].base_data.int_ptr
    assert (len(kept[scratch.TABLES]._entries), kept[scratch.MEMORY].base_data.int_ptr) == seen


def test_ops_are_pickled():
    for kind in OPS:
        op = kind(2, border_mode=((1, 2), 3), num_groups=2, imshp=(None, 4, 5, 6))
        assert pickle.loads(pickle.dumps(op)) == op
        assert kind.like(op) == op != kind(2)


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
