"""Copies of optimized graphs with plain ops give the same values as the graphs."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.nnet.blocksparse import sparse_block_dot
from theano.tensor.nnet.conv import ConvOp
from theano.tensor.nnet.corr import CorrMM, CorrMM_gradInputs, CorrMM_gradWeights
from theano.tensor.nnet.corr3d import Corr3dMM, Corr3dMM_gradInputs, Corr3dMM_gradWeights
from theano.tensor.shared_randomstreams import RandomStreams

from optdb.host.theano.functions.optimized import plain_copy, without_copies

MODE = theano.Mode(linker="cvm", optimizer="fast_run")


def data(*shape, dtype="float64", seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(dtype)


def copied(f):
    """Return the inputs and outputs of a plain copy of a function's graph."""
    fgraph = f.maker.fgraph
    inputs = [var.clone() for var in fgraph.inputs]
    copies = plain_copy(fgraph.toposort(), dict(zip(fgraph.inputs, inputs, strict=True)))
    return inputs, [copies[without_copies(var)] for var in fgraph.outputs]


def in_place(outputs):
    """Return the in-place nodes on which some variables depend."""
    nodes = theano.gof.graph.io_toposort([], outputs)
    return [node for node in nodes if getattr(node.op, "destroy_map", None)]


def expressions():
    """Yield graphs: each has a name, inputs, an output that the optimizer computes in place, and values."""
    x, y, v = tt.dmatrix("x"), tt.dmatrix("y"), tt.dvector("v")
    i = tt.lvector("i")
    square, indexes = data(4, 4), np.array([0, 2, 2])
    yield "elementwise", [x], tt.exp(tt.dot(x, x) + 1), [square]
    yield "part", [x], tt.set_subtensor(tt.dot(x, x)[1:3], 0), [square]
    yield "increment", [x], tt.inc_subtensor(tt.dot(x, x)[0], 2), [square]
    yield "rows", [x, i], tt.inc_subtensor(tt.dot(x, x)[i], 2), [square, indexes]
    yield "product", [x, y], tt.exp(x) * 2 + 3 * tt.dot(x, y), [square, data(4, 4, seed=1)]
    yield "with a vector", [x, v], tt.exp(v) * 2 + tt.dot(x, v), [square, data(4)]
    yield "outer", [x, v], tt.exp(x) + tt.outer(v, v), [square, data(4)]
    yield "loop", [v], theano.scan(lambda a, b: a + b, [v], [tt.zeros(())])[0], [data(5)]


@pytest.mark.slow_cases("elementwise---", "increment---", "with a vector---", "loop---")
@pytest.mark.parametrize(
    "name, inputs, output, values", expressions(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_ops_in_place_become_plain(name, inputs, output, values):
    f = theano.function(inputs, output, mode=MODE)
    assert in_place(f.maker.fgraph.outputs), name
    copies, outputs = copied(f)
    assert not in_place(outputs)
    again = theano.function(copies, outputs, mode=theano.Mode(linker="cvm", optimizer=None))
    np.testing.assert_allclose(again(*values)[0], f(*values), rtol=1e-12)


def test_random_numbers_are_drawn_without_overwriting_the_state():
    for streams in (MRG_RandomStreams(1), RandomStreams(1)):
        f = theano.function([], streams.uniform((3,)), mode=MODE)
        assert in_place(f.maker.fgraph.outputs)
        assert not in_place(copied(f)[1])


def test_blocks_of_sparse_products():
    w, h, b = tt.dtensor4("w"), tt.dtensor3("h"), tt.dmatrix("b")
    inputs, outputs = tt.lmatrix("inputs"), tt.lmatrix("outputs")
    f = theano.function([w, h, inputs, b, outputs], sparse_block_dot(w, h, inputs, b, outputs), mode=MODE)
    assert in_place(f.maker.fgraph.outputs)
    assert not in_place(copied(f)[1])


HOW = [
    {"border_mode": "valid"},
    {"border_mode": "full"},
    {"border_mode": 1},
    {"border_mode": "valid", "subsample": 2},
    {"border_mode": "half", "filter_dilation": 2, "subsample": 2},
]


@pytest.mark.thorough_cases("3-True-{'border_mode': 'valid'}")
@pytest.mark.slow_cases(
    "2-True-{'border_mode': 'valid'}",
    "2-False-{'border_mode': 'valid'}",
    "3-True-{'border_mode': 'valid'}",
    "3-False-{'border_mode': 'valid'}",
)
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("has_shape", [True, False])
@pytest.mark.parametrize("dims", [2, 3])
def test_convolutions_by_products_become_what_they_mean(dims, how, has_shape):
    classes = (CorrMM, CorrMM_gradWeights, CorrMM_gradInputs)
    if dims == 3:
        classes = (Corr3dMM, Corr3dMM_gradWeights, Corr3dMM_gradInputs)
    how = {key: (value,) * dims if isinstance(value, int) else value for key, value in how.items()}
    if not has_shape and (how.get("subsample") or how["border_mode"] == "half"):
        pytest.skip("the shape has to be given")
    forward, weights, inputs = (made(**how) for made in classes)
    image, filters = data(2, 3, *[7] * dims), data(4, 3, *[3] * dims, seed=1)
    given = [tt.TensorType("float64", (False,) * (dims + 2))() for _ in range(3)]
    top = forward(given[0], given[1])
    lengths = [theano.tensor.constant(n) for n in (3, 7)]
    shapes = [[length] * dims if has_shape else None for length in lengths]
    results = [top, weights(given[0], given[2], shapes[0]), inputs(given[1], given[2], shapes[1])]
    f = theano.function(given, results, mode=theano.Mode(linker="cvm", optimizer=None))
    copies, outputs = copied(f)
    names = {type(node.op).__name__ for node in theano.gof.graph.io_toposort([], outputs)}
    assert not {made.__name__ for made in classes} & names
    again = theano.function(copies, outputs, mode="FAST_RUN")
    grown = theano.function(given[:2], top, mode=theano.Mode(linker="cvm", optimizer=None))(image, filters)
    values = [image, filters, data(*grown.shape, seed=2)]
    for ours, theirs in zip(again(*values), f(*values), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_gradient_that_theano_would_misjudge_stays_what_it_is():
    image, top = tt.dtensor4(), tt.dtensor4()
    f = theano.function([image, top], CorrMM_gradWeights(filter_dilation=(2, 2))(image, top), mode=MODE)
    outputs = copied(f)[1]
    assert any(isinstance(node.op, CorrMM_gradWeights) for node in theano.gof.graph.io_toposort([], outputs))


def test_the_old_convolution_of_known_lengths_of_one():
    image, filters = tt.dtensor4(), tt.dtensor4()
    op = ConvOp(output_mode="valid", imshp=(3, 5, 5), kshp=(5, 5), nkern=1, bsize=1, dx=1, dy=1)
    f = theano.function([image, filters], op(image, filters), mode=MODE)
    copies, outputs = copied(f)
    assert outputs[0].type == f.maker.fgraph.outputs[0].type
    values = [data(1, 3, 5, 5), data(1, 3, 5, 5, seed=1)]
    again = theano.function(copies, outputs, mode="FAST_RUN")
    np.testing.assert_allclose(again(*values)[0], f(*values), rtol=1e-10)


def test_a_list_among_the_inputs():
    """Inputs can be lists of variables; a list has a truth value, but its variables have none."""
    a, b, c = tt.dvector(), tt.dvector(), tt.lvector()
    f = theano.function([a, b, c], tt.choose(c, (a, b)), mode=theano.Mode("vm", None))
    copies, outputs = copied(f)
    again = theano.function(copies, outputs, mode="FAST_RUN")
    assert again([1, 2], [3, 4], [0, 1])[0].tolist() == [1, 4]


@pytest.mark.slow
def test_the_old_convolution():
    image, filters = tt.dtensor4(), tt.dtensor4()
    op = ConvOp(output_mode="full", dx=2, dy=1)
    f = theano.function([image, filters], op(image, filters), mode=MODE)
    copies, outputs = copied(f)
    values = [data(2, 3, 6, 5), data(4, 3, 3, 2, seed=1)]
    again = theano.function(copies, outputs, mode="FAST_RUN")
    np.testing.assert_allclose(again(*values)[0], f(*values), rtol=1e-10)
