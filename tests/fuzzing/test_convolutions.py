"""Random convolutions and poolings give the same results as the Python code of Theano's ops, or both are rejected."""

from __future__ import annotations

import pytest
from theano.tensor.nnet import abstract_conv
from theano.tensor.signal.pool import Pool

from fuzzing.convolutions import Case, compare, performed, run
from tests.effort import examples

#: Numbers of examples; ``python -m fuzzing.convolutions`` runs any number.
QUICK, SLOW = 25, examples(500)


def test_random_convolutions_and_poolings():
    counts = run(0, QUICK)
    assert counts["equal"] > QUICK / 2
    assert counts["refused"]


@pytest.mark.thorough
@pytest.mark.slow
def test_many_random_convolutions_and_poolings():
    counts = run(1, SLOW)
    assert counts["equal"] > SLOW / 2


def conv(**parameters):
    return abstract_conv.AbstractConv2d(**parameters)


X = (2, 2, 3, 4)
WEIGHTS, INPUTS = abstract_conv.AbstractConv2d_gradWeights(), abstract_conv.AbstractConv2d_gradInputs()

#: Cases that a device once rejected, each with the shapes of the arrays and of the result.
EMPTY = [
    (Case("forward", conv(), (X, (3, 2, 4, 2)), "float32"), (2, 3, 0, 3)),
    (Case("forward", conv(subsample=(2, 2)), (X, (3, 2, 4, 2)), "float64"), (2, 3, 0, 2)),
    (Case("forward", conv(filter_dilation=(3, 1)), (X, (3, 2, 2, 2)), "float32"), (2, 3, 0, 3)),
    (Case("forward", conv(num_groups=2), (X, (4, 1, 0, 2)), "float32"), (2, 4, 4, 3)),
    (Case("forward", conv(border_mode="half"), ((0, 2, 3, 0), (3, 2, 3, 1)), "float32"), (0, 3, 3, 0)),
    (Case("forward", conv(border_mode=((0, 1), 0)), ((2, 0, 1, 4), (3, 0, 3, 1)), "float32"), (2, 3, 0, 4)),
    (
        Case("weights", abstract_conv.AbstractConv2d_gradWeights(), (X, (2, 3, 0, 3)), "float32", ((4, 2),)),
        (3, 2, 4, 2),
    ),
    (Case("inputs", abstract_conv.AbstractConv2d_gradInputs(), ((3, 2, 4, 2), (2, 3, 0, 3)), "float32", ((3, 4),)), X),
    (Case("pool", Pool(ndim=1, mode="sum"), ((2, 0),), "float32", ((3,), (1,), (0,))), (2, 1)),
    (Case("pool", Pool(True, "average_exc_pad", 1), ((2, 2),), "float32", ((1,), (1,), (1,))), (2, 4)),
    (Case("pool", Pool(True, "max", 1), ((0, 2),), "float32", ((1,), (1,), (1,))), (0, 4)),
]


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
@pytest.mark.parametrize("case, shape", EMPTY, ids=map(str, range(len(EMPTY))))
def test_what_is_empty_is_computed(case, shape):
    assert performed(case.op, [*case.arrays(), *case.host_numbers()]).shape == shape
    assert compare(case) == "equal"


#: Cases that Theano's Python code rejects.
REFUSED = [
    Case("forward", conv(), (X, (3, 2, 5, 2)), "float32"),
    Case("forward", conv(subsample=(2, 1)), (X, (3, 2, 5, 2)), "float32"),
    Case("forward", conv(filter_dilation=(2, 1)), (X, (3, 2, 0, 2)), "float32"),
    Case("forward", conv(border_mode="full"), (X, (3, 2, 0, 2)), "float32"),
    Case("forward", abstract_conv.AbstractConv3d(), ((1, 1, 2, 2, 2), (1, 1, 3, 1, 1)), "float32"),
    Case(
        *("weights", abstract_conv.AbstractConv3d_gradWeights(), ((1, 1, 2, 2, 2), (1, 1, 3, 2, 2)), "float32"),
        ((0, 1, 1),),
    ),
    Case(
        *("inputs", abstract_conv.AbstractConv3d_gradInputs(), ((1, 1, 0, 1, 1), (1, 1, 3, 2, 2)), "float32"),
        ((2, 2, 2),),
    ),
    Case("pool", Pool(True, "max", 1), ((2, 2),), "float32", ((1,), (1,), (1,))),
    Case("pool", Pool(ndim=1, mode="sum"), ((2, 0),), "float32", ((1,), (1,), (0,))),
]


@pytest.mark.parametrize("case", REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_the_host_refuses_is_refused(case):
    assert compare(case) == "refused"
