"""Convolutions by matrix products agree with ``perform`` of the abstract ops, and with the C code of CorrMM."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor.nnet import abstract_conv, corr, corr3d

from optdb.host.theano.vectorized import convolutions
from tests.host.theano.vectorized.nodes import assert_alike, by_c, by_perform, by_whole_arrays, numbers

#: Two-dimensional cases: border, stride, dilation and number of groups.
CASES = [
    ("valid", (1, 1), (1, 1), 1),
    ("half", (1, 1), (1, 1), 1),
    ("full", (2, 1), (1, 1), 1),
    ((1, 2), (2, 3), (1, 1), 2),
    (((1, 0), (0, 2)), (1, 2), (2, 1), 3),
    ("full", (2, 2), (2, 2), 2),
]
IDS = [f"{border}-{stride}-{dilation}-{groups}".replace(" ", "") for border, stride, dilation, groups in CASES]


def arrays_of(groups, dimensions=2, dtype="float64"):
    """Return three images with two channels per group, and two filters per group."""
    images = numbers((3, 2 * groups, 9, 8, 7)[: dimensions + 2], 0, dtype)
    return images, numbers((2 * groups, 2, 3, 2, 2)[: dimensions + 2], 1, dtype)


def nodes(family, options, dimensions, values, top):
    """Return the nodes of the three ops, each with its input arrays."""
    images, kernel = values
    tensor = tt.TensorType("float64", [False] * (dimensions + 2))
    shape = tt.lvector()
    forward, weights, inputs = (kind(**options) for kind in family)
    size, inside = np.array(kernel.shape[2:]), np.array(images.shape[2:])
    if family[0].__name__.startswith("Corr"):
        lengths = tt.lscalars(dimensions)
        sizes = [[np.asarray(n) for n in part] for part in (size, inside)]
    else:
        lengths, sizes = shape, [[size], [inside]]
    return [
        (forward.make_node(tensor(), tensor()), [images, kernel]),
        (weights.make_node(tensor(), tensor(), lengths), [images, top, *sizes[0]]),
        (inputs.make_node(tensor(), tensor(), lengths), [kernel, top, *sizes[1]]),
    ]


def cases(family, options, dimensions, groups):
    values = arrays_of(groups, dimensions)
    tensor = tt.TensorType("float64", [False] * (dimensions + 2))
    (out,) = by_whole_arrays(family[0](**options).make_node(tensor(), tensor()), values)
    return nodes(family, options, dimensions, values, numbers(out.shape, 5))


ABSTRACT = (
    abstract_conv.AbstractConv2d,
    abstract_conv.AbstractConv2d_gradWeights,
    abstract_conv.AbstractConv2d_gradInputs,
)
ABSTRACT_3D = (
    abstract_conv.AbstractConv3d,
    abstract_conv.AbstractConv3d_gradWeights,
    abstract_conv.AbstractConv3d_gradInputs,
)
CORR = corr.CorrMM, corr.CorrMM_gradWeights, corr.CorrMM_gradInputs
CORR_3D = corr3d.Corr3dMM, corr3d.Corr3dMM_gradWeights, corr3d.Corr3dMM_gradInputs


@pytest.mark.parametrize("flips", [True, False])
@pytest.mark.parametrize("border, stride, dilation, groups", CASES, ids=IDS)
def test_abstract_convolutions(border, stride, dilation, groups, flips):
    options = {
        "border_mode": border,
        "subsample": stride,
        "filter_dilation": dilation,
        "num_groups": groups,
        "filter_flip": flips,
    }
    for node, arrays in cases(ABSTRACT, options, 2, groups):
        assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))


@pytest.mark.parametrize("border, groups", [("half", 1), ((1, 0, 2), 2)])
def test_three_dimensions(border, groups):
    options = {"border_mode": border, "subsample": (2, 1, 1), "filter_dilation": (1, 2, 1), "num_groups": groups}
    for node, arrays in cases(ABSTRACT_3D, options, 3, groups):
        assert_alike(by_whole_arrays(node, arrays), by_perform(node, arrays))


@pytest.mark.slow
@pytest.mark.parametrize("border, stride, dilation, groups", CASES, ids=IDS)
def test_correlations_as_c_computes_them(border, stride, dilation, groups):
    options = {"border_mode": border, "subsample": stride, "filter_dilation": dilation, "num_groups": groups}
    for node, arrays in cases(CORR, options, 2, groups):
        assert_alike(by_whole_arrays(node, arrays), by_c(node, arrays))


@pytest.mark.slow
def test_correlations_in_three_dimensions_as_c_computes_them():
    options = {"border_mode": "half", "subsample": (1, 2, 1), "filter_dilation": (1, 1, 2), "num_groups": 2}
    for node, arrays in cases(CORR_3D, options, 3, 2):
        assert_alike(by_whole_arrays(node, arrays), by_c(node, arrays))


@pytest.mark.parametrize("border", ["valid", "full", (1, 2)])
def test_gradients_that_know_their_sizes(border):
    options = {"border_mode": border, "subsample": (1, 1), "filter_dilation": (2, 1)}
    images, kernel = arrays_of(1)
    tensor = tt.TensorType("float64", [False] * 4)
    (top,) = by_whole_arrays(corr.CorrMM(**options).make_node(tensor(), tensor()), [images, kernel])
    (weights,) = by_whole_arrays(corr.CorrMM_gradWeights(**options).make_node(tensor(), tensor()), [images, top])
    (inputs,) = by_whole_arrays(corr.CorrMM_gradInputs(**options).make_node(tensor(), tensor()), [kernel, top])
    assert weights.shape == kernel.shape and inputs.shape == images.shape


def test_many_images_are_laid_out_in_parts(monkeypatch):
    cases_of_all = cases(ABSTRACT, {"border_mode": "half"}, 2, 1)
    expected = [by_whole_arrays(node, arrays) for node, arrays in cases_of_all]
    monkeypatch.setattr(convolutions, "_COLUMNS", 1)
    for (node, arrays), whole in zip(cases_of_all, expected, strict=True):
        assert_alike(by_whole_arrays(node, arrays), whole)


@pytest.mark.parametrize("empty", ["batch", "channels"])
def test_nothing_to_convolve(empty):
    images, kernel = arrays_of(1)
    images = images[:0] if empty == "batch" else images[:, :0]
    kernel = kernel if empty == "batch" else kernel[:, :0]
    tensor = tt.TensorType("float64", [False] * 4)
    (out,) = by_whole_arrays(abstract_conv.AbstractConv2d().make_node(tensor(), tensor()), [images, kernel])
    assert out.shape == (images.shape[0], 2, 7, 7) and not out.any()


def test_filters_larger_than_the_images():
    tensor = tt.TensorType("float64", [False] * 4)
    node = corr.CorrMM().make_node(tensor(), tensor())
    with pytest.raises(ValueError, match="exceed images"):
        by_whole_arrays(node, [numbers((1, 1, 3, 3)), numbers((1, 1, 5, 5))])


def test_channels_that_do_not_match():
    tensor = tt.TensorType("float64", [False] * 4)
    node = corr.CorrMM().make_node(tensor(), tensor())
    with pytest.raises(ValueError, match="do not match"):
        by_whole_arrays(node, [numbers((1, 2, 3, 3)), numbers((1, 1, 2, 2))])


def test_a_shape_that_is_not_that_of_the_images():
    tensor = tt.TensorType("float64", [False] * 4)
    node = abstract_conv.AbstractConv2d_gradInputs().make_node(tensor(), tensor(), tt.lvector())
    with pytest.raises(ValueError, match="invalid input_shape"):
        by_whole_arrays(node, [numbers((1, 1, 2, 2)), numbers((1, 1, 2, 2)), np.array([5, 5])])
