"""With all of the host's rewriters, no host op remains between the device ops of neural nets."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.host.api import ops as host
from optdb.opencl import HostFromOpenCL, OpenCLFromHost
from tests.opencl.lifted import host_function, ops_of

RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.uniform(-4, 4, shape).astype("float32")


NETS = {
    "sigmoid": tt.nnet.sigmoid,
    "hard_sigmoid": tt.nnet.hard_sigmoid,
    "ultra_fast_sigmoid": tt.nnet.ultra_fast_sigmoid,
    "softplus": tt.nnet.softplus,
    "softsign": tt.nnet.softsign,
    "elu": tt.nnet.elu,
    "selu": tt.nnet.selu,
    "relu": lambda x: tt.nnet.relu(x, 0.1),
    "confusion": lambda x: tt.nnet.binary_crossentropy(tt.nnet.sigmoid(x), tt.nnet.sigmoid(x.T).T),
    "categorical": lambda x: tt.nnet.categorical_crossentropy(tt.nnet.softmax(x), tt.nnet.softmax(-x)),
}


def optimized(inputs, outputs, at_home=()):
    """Return a function whose arrays come from the device and stay there, with all of the host's rewrites."""
    moved = {x: HostFromOpenCL()(OpenCLFromHost("dev0")(x)) for x in inputs if x not in at_home}
    outputs = [out.transfer("dev0") for out in theano.clone(outputs, moved)]
    return theano.function(inputs, outputs, mode=theano.Mode("py", "fast_run").including("opencl"))


@pytest.mark.slow_cases("elu", "relu")
@pytest.mark.parametrize("name", NETS)
def test_pieces_of_nets_leave_nothing_behind(name, default):
    x = tt.fmatrix()
    y = NETS[name](x)
    outputs = [y] if name == "ultra_fast_sigmoid" else [y, theano.grad(y.sum(), x)]
    value = numbers(4, 3)
    f = optimized([x], outputs)
    for got, want in zip(f(value), host_function([x], outputs)(value), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=3e-5, atol=1e-7)
    assert not [op for op in ops_of(f) if not op.__name__.startswith("OpenCL") and op is not host.Shape_i]


@pytest.mark.slow
def test_a_softmax_in_two_levels_leaves_only_indexes_behind(default):
    x, w1, b1, w2, b2, y = tt.fmatrix(), tt.fmatrix(), tt.fvector(), tt.ftensor3(), tt.fmatrix(), tt.lvector()
    out = tt.nnet.h_softmax(x, 4, 6, 2, 3, w1, b1, w2, b2, y)
    values = [numbers(4, 5), numbers(5, 2), numbers(2), numbers(2, 5, 3), numbers(2, 3), np.array([0, 3, 5, 2])]
    f = optimized([x, w1, b1, w2, b2, y], [out], at_home=[y])
    (want,) = host_function([x, w1, b1, w2, b2, y], [out])(*values)
    np.testing.assert_allclose(np.asarray(f(*values)[0]), want, rtol=1e-5)
    floats = [
        node
        for node in f.maker.fgraph.toposort()
        if node.outputs[0].dtype == "float32" and not type(node.op).__name__.startswith("OpenCL")
    ]
    assert {type(node.op).__name__ for node in floats} <= {"HostFromOpenCL"}
