"""Lifted ops that take patches of images agree with the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import neighbours as host

from optdb.opencl.ops.conv import OpenCLImages2Neibs
from tests.opencl.lifted import both, lifted_function, ops_of

pytestmark = pytest.mark.optimized


@pytest.mark.slow
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


def test_what_is_no_whole_number_stays_on_the_host():
    x, shape = tt.ftensor4(), tt.fvector()
    assert host.Images2Neibs in ops_of(lifted_function([x, shape], [host.images2neibs(x, shape)]))
