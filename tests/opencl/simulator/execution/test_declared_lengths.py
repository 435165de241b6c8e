"""A legacy convolution with declared lengths raises for other lengths in every call, also on a device."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet.conv import ConvOp

import optdb

IMAGES, FILTERS = (2, 3, 6, 5), (4, 3, 3, 2)
ALL = {"imshp": IMAGES[1:], "kshp": FILTERS[2:], "nkern": FILTERS[0], "bsize": IMAGES[0]}
#: Each case has a parameter that declares lengths, and shapes of which one length differs from the declared length.
OTHERS = [
    ("bsize", (3, 3, 6, 5), FILTERS),
    ("imshp", (2, 3, 7, 5), FILTERS),
    ("imshp", (2, 3, 6, 6), FILTERS),
    ("imshp", (2, 2, 6, 5), (4, 2, 3, 2)),
    ("nkern", IMAGES, (5, 3, 3, 2)),
    ("kshp", IMAGES, (4, 3, 2, 2)),
    ("kshp", IMAGES, (4, 3, 3, 3)),
]


def convolution(linker, mode, **declared):
    x, w = tt.ftensor4("x"), tt.ftensor4("w")
    unknown = {"imshp": (None, None, None), "kshp": (None, None), "nkern": None, "bsize": None}
    op = ConvOp(output_mode=mode, dx=1, dy=1, **{**unknown, **declared})
    return theano.function([x, w], op(tt.exp(x), w), mode=theano.Mode(linker, "fast_run"))


def values(*shapes):
    return [np.random.RandomState(0).normal(size=shape).astype("float32") for shape in shapes]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ways", ["linker", "simulator"])
@pytest.mark.parametrize("mode", ["valid", "full"])
def test_other_lengths_raise(mode, ways):
    stock = convolution("py", mode, **ALL)
    f = convolution("opencl", mode, **ALL) if ways == "linker" else optdb.SimulatorOCL(convolution("py", mode, **ALL))
    operands = values(IMAGES, FILTERS)
    # There are first, recorded and repeated calls, although other calls in between raise.
    for _ in range(4):
        np.testing.assert_allclose(f(*operands), stock(*operands), rtol=1e-4, atol=1e-5)
        for _, *shapes in OTHERS:
            for function in (stock, f):
                with pytest.raises(ValueError):
                    function(*values(*shapes))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parameter, images, filters", OTHERS)
def test_lengths_that_are_not_declared_are_free(parameter, images, filters):
    declared = {name: value for name, value in ALL.items() if name != parameter}
    f = convolution("opencl", "valid", **declared)
    for shapes in [(IMAGES, FILTERS), (images, filters)] * 2:
        operands = values(*shapes)
        np.testing.assert_allclose(
            f(*operands), convolution("py", "valid", **declared)(*operands), rtol=1e-4, atol=1e-5
        )


@pytest.mark.filterwarnings("ignore")
def test_it_runs_on_the_device_and_in_files(tmp_path):
    operands = values(IMAGES, FILTERS)
    simulator = optdb.SimulatorOCL(convolution("py", "valid", **ALL))
    expected = simulator(*operands)
    simulator.check(*operands, raise_on_difference=True)
    simulator.export(tmp_path / "file.optdb", [operands])
    graph = next(iter(simulator.__debugprint__()))
    assert not any(isinstance(node.op, ConvOp) or "HostFromOpenCL" in str(node.op) for node in graph.apply_nodes)
    loaded = optdb.load(tmp_path / "file.optdb")
    np.testing.assert_allclose(loaded(*operands), expected, rtol=1e-5, atol=1e-5)
    for _, *shapes in OTHERS:
        with pytest.raises(ValueError):
            loaded(*values(*shapes))
