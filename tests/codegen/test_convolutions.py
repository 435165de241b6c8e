"""Convolutions and their gradients on the device agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen import scratch
from optdb.codegen.convolve import operations, packing
from optdb.codegen.convolve.operations import ConvolutionSettings, Convolve, FilterGradient, ImageGradient
from optdb.codegen.layout import is_contiguous
from optdb.codegen.operation import ArraySpec
from tests.codegen.convolved import CASES, Reference, case, close
from tests.codegen.layouts import compute, context, device_array

OPERATIONS = (Convolve, FilterGradient, ImageGradient)
#: Theano's names of settings.
NAMES = {
    "border_mode": "border_mode",
    "subsample": "steps",
    "filter_dilation": "dilations",
    "num_groups": "groups",
    "filter_flip": "flip",
    "unshared": "unshared",
}
PLAIN = {"border_mode": "valid", "subsample": (1, 1), "filter_dilation": (1, 1)}


def convolved(kind, x, w, t, parameters, steps=(1, 1, 1), lengths=None):
    """Copy NumPy arrays to the device, with the strides in `steps`; return an operation's results for these copies."""
    settings = ConvolutionSettings(x.ndim - 2, **{NAMES[name]: value for name, value in parameters.items()})
    x, w, t = ((value, step) for value, step in zip((x, w, t), steps))
    chosen, like = {Convolve: ([x, w], None), FilterGradient: ([x, t], w), ImageGradient: ([w, t], x)}[kind]
    arrays = [device_array(value, [step, 1] + [1] * (value.ndim - 2)) for value, step in chosen]
    if like is not None:
        arrays.append(np.array(lengths or like[0].shape[-settings.dims :]))
    operation = kind(context(), *(ArraySpec.of(value) for value, _ in chosen), settings)
    (result,) = compute(operation, *arrays)
    return result


def check(arrays, parameters, dtype, **others):
    x, w, t = (a.astype(dtype) for a in arrays)
    reference = Reference(x, w, t, parameters)
    for kind, want in zip(OPERATIONS, (reference.forward(), reference.weights(), reference.inputs()), strict=True):
        close(convolved(kind, x, w, t, parameters, **others), want, dtype)


@pytest.mark.parametrize("name", CASES)
def test_all_settings(name, each_device_kind):
    check(*CASES[name], "float32")


@pytest.mark.pairwise
@pytest.mark.parametrize("name", ["strided", "depthwise", "unshared"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(name, dtype, each_device_kind):
    check(*CASES[name], dtype)


@pytest.mark.parametrize("name", ["half", "depthwise"])
def test_images_are_laid_out_a_few_at_a_time(name, each_device_kind, monkeypatch):
    arrays, parameters = CASES[name]
    monkeypatch.setattr(packing, "LARGEST", 1)
    check([np.repeat(a, 2, axis=0) if i != 1 else a for i, a in enumerate(arrays)], parameters, "float32")


@pytest.mark.parametrize("steps", [(2, -1, 1), (1, 1, -3), (-1, 2, 2)])
def test_inputs_of_any_strides(steps):
    check(*CASES["half"], "float32", steps=steps)


@pytest.mark.parametrize("name", CASES)
def test_filters_that_lie_backwards_are_not_copied(name, each_device_kind, monkeypatch):
    """Theano reverses filters with a view, and tells the op not to reverse them."""
    (x, w, t), parameters = CASES[name]
    x, w, t = (a.astype("float32") for a in (x, w, t))
    reference = Reference(x, w, t, parameters)
    settings = ConvolutionSettings(x.ndim - 2, **{NAMES[key]: value for key, value in parameters.items()})
    filters = device_array(w, [1] * (w.ndim - settings.dims) + [-1] * settings.dims)
    copied = []
    make = operations.contiguous
    monkeypatch.setattr(
        operations, "contiguous", lambda x, *rest: (copied.append(not is_contiguous(x)), make(x, *rest))[1]
    )
    (got,) = compute(Convolve(context(), ArraySpec.of(x), ArraySpec.of(w), settings), device_array(x), filters)
    close(got, reference.forward(), "float32")
    gradient = ImageGradient(context(), ArraySpec.of(w), ArraySpec.of(t), settings)
    (got,) = compute(gradient, filters, device_array(t), np.array(x.shape[-settings.dims :]))
    close(got, reference.inputs(), "float32")
    assert not any(copied)


@pytest.mark.parametrize("empty", [(0, 4, 8), (2, 0, 8), (2, 4, 0)])
def test_where_nothing_is_summed_up_there_are_zeros(empty):
    arrays, parameters = case(*empty, (5, 6), (3, 3), "half")
    x, w, t = (a.astype("float32") for a in arrays)
    for kind, want in zip(OPERATIONS, (t, w, x)):
        np.testing.assert_array_equal(convolved(kind, x, w, t, parameters), np.zeros_like(want))


def test_what_is_not_finite_stays_where_it_is():
    x = np.zeros((1, 1, 4, 6), "float32")
    x[0, 0, 1, 4], x[0, 0, 3, 0] = np.inf, np.nan
    w, t = np.ones((4, 1, 1, 2), "float32"), np.ones((1, 4, 4, 5), "float32")
    got = convolved(Convolve, x, w, t, PLAIN)
    np.testing.assert_array_equal(got, Reference(x, w, t, PLAIN).forward())
    x[0, 0, 3, 0], x[0, 0, 1, 4], x[0, 0, 2, 5] = 0, 0, np.inf
    got = convolved(FilterGradient, x, w, t, PLAIN)
    np.testing.assert_array_equal(got, np.array([np.inf, 0] * 4, "float32").reshape(w.shape))


SHAPES = [
    ((2, 3, 5, 5), (4, 2, 3, 3), {}, "numbers of channels do not match"),
    ((2, 4, 5, 5), (3, 2, 3, 3), {"num_groups": 2}, "cannot divide 3 filters into 2 groups"),
    ((2, 3, 5, 5), (4, 3, 7, 3), {}, "the result would be empty"),
    ((2, 3, 5, 5), (4, 3, 7, 3), {"subsample": (2, 2)}, "the result would be empty"),
    ((2, 3, 5, 5), (4, 3, 0, 3), {"filter_dilation": (2, 1)}, "the result would be empty"),
    ((2, 3, 5, 5), (4, 3, 0, 3), {"border_mode": "full"}, "the result would be empty"),
    ((2, 3, 5, 5), (4, 3, 3, 2, 3, 3), {"unshared": True}, "numbers of channels do not match"),
    ((2, 3, 5, 5), (4, 2, 2, 3, 3, 3), {"unshared": True}, r"needs filters for \(3, 3\) outputs"),
]


@pytest.mark.parametrize("image, kernel, parameters, message", SHAPES)
def test_shapes_that_do_not_fit_are_refused(image, kernel, parameters, message):
    x, w = np.ones(image, "float32"), np.ones(kernel, "float32")
    with pytest.raises(ValueError, match=message):
        convolved(Convolve, x, w, x, {**PLAIN, **parameters})


def test_axes_of_length_0_are_refused_in_three_dimensions():
    x, w = np.ones((2, 3, 4, 5, 6)), np.ones((4, 3, 5, 2, 2))
    parameters = {"border_mode": "valid", "subsample": (1, 1, 1), "filter_dilation": (1, 1, 1)}
    with pytest.raises(
        ValueError, match=r"does not support axes of length 0 in three dimensions: the lengths are \(0, 4, 5\)"
    ):
        convolved(Convolve, x, w, x, parameters)
    assert convolved(Convolve, x[..., 0], w[..., 0], x, PLAIN).shape == (2, 4, 0, 4)


@pytest.mark.parametrize("kind", [FilterGradient, ImageGradient])
def test_a_shape_that_gives_another_result_is_refused(kind):
    arrays, parameters = CASES["valid"]
    with pytest.raises(ValueError, match="which do not produce a result of shape"):
        convolved(kind, *(a.astype("float32") for a in arrays), parameters, lengths=(4, 4))


def test_tables_and_memory_are_used_again():
    kept = context().kept
    for _ in range(2):
        check(*CASES["half"], "float32")
        seen = len(kept[scratch.TABLES]._entries), kept[scratch.MEMORY].base_data.int_ptr
    assert (len(kept[scratch.TABLES]._entries), kept[scratch.MEMORY].base_data.int_ptr) == seen
