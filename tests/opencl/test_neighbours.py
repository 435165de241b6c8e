"""Patches of images on the device against the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import neighbours as host

from optdb.opencl.ops.parts import OpenCLImages2Neibs
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both, lifted_function, ops_of

pytestmark = pytest.mark.optimized

MODES = ["valid", "half", "full", "ignore_borders", "wrap_centered"]
# Shapes of images, of patches, and steps, which suit some modes.
CASES = [
    ((2, 3, 6, 8), (3, 2), (3, 2)),
    ((1, 2, 7, 9), (3, 3), (1, 1)),
    ((2, 1, 5, 7), (3, 5), (2, 2)),
    ((1, 1, 6, 6), (5, 3), (2, 3)),
    ((2, 2, 5, 5), (1, 3), (3, 4)),
    ((0, 2, 4, 4), (2, 2), (2, 2)),
    ((1, 1, 2, 4), (3, 3), (2, 1)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
def test_as_the_host(mode, dtype, each_device_kind):
    x, shape, step = tt.TensorType(dtype, (False,) * 4)(), tt.lvector(), tt.lvector()
    node = host.Images2Neibs(mode)(x, shape, step).owner
    lifted = None
    compared = 0
    for lengths, *numbers in CASES:
        a = (np.arange(np.prod(lengths)) % 100 + 1).reshape(lengths).astype(dtype)
        numbers = [np.array(values) for values in numbers]
        lifted = lifted or OpenCLImages2Neibs(mode)(variable(a), shape, step).owner
        storage = [[None]]
        try:
            node.op.perform(node, [a, *numbers], storage, mode)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                run(lifted, [device_array(a), *numbers])
            continue
        (want,) = storage[0]
        for steps in [1] * 4, [2, -1, -3, 1]:
            (got,) = run(lifted, [device_array(a, steps), *numbers])
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype
        compared += 1
    assert compared > 1


def test_lifted_with_its_gradient():
    x = tt.ftensor4()
    a = np.random.default_rng(0).normal(size=(2, 2, 6, 8)).astype("float32")
    z = host.images2neibs(x, (3, 2))
    borders = host.images2neibs(x, (4, 3), mode="ignore_borders")
    outputs = [z, theano.grad((z**2).sum(), x), theano.grad((borders**3).sum(), x)]
    got, want, ops = both([x], outputs, [a])
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    np.testing.assert_allclose(got[1], 2 * a, rtol=1e-6)
    assert ops.count(OpenCLImages2Neibs) == 4
    assert host.Images2Neibs not in ops


@pytest.mark.slow
def test_the_gradient_of_overlapping_patches(default):
    x = tt.ftensor4()
    a = np.random.default_rng(0).normal(size=(1, 2, 5, 5)).astype("float32")
    z = host.images2neibs(x, (3, 3), (2, 2))
    mode = theano.Mode("vm", "fast_run").including("opencl")
    f = theano.function([x], theano.grad((z**2).sum(), x), mode=mode)
    assert OpenCLImages2Neibs in ops_of(f)
    covered = np.array([1, 1, 2, 1, 1])
    np.testing.assert_allclose(f(a), 2 * a * np.outer(covered, covered), rtol=1e-5)


def test_what_is_no_patch():
    a = np.zeros((1, 1, 4, 4), "float32")
    node = OpenCLImages2Neibs("valid")(variable(a), tt.lvector(), tt.lvector()).owner
    for numbers, error, reason in [
        (([2], [1, 1]), TypeError, r"neib_shape has to contain 2 elements, not \[2\]"),
        (([2, 2], [0, 1]), ValueError, r"neib_step has values <= 0: \[0, 1\]"),
        (([3, 3], [2, 1]), TypeError, r"neib_shape\[0\]=3, neib_step\[0\]=2 and ten4.shape\[2\]=4 not consistent"),
    ]:
        with pytest.raises(error, match=reason):
            run(node, [device_array(a), *map(np.array, numbers)])
    x, shape = tt.ftensor4(), tt.fvector()
    assert host.Images2Neibs in ops_of(lifted_function([x, shape], [host.images2neibs(x, shape)]))
