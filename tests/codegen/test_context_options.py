"""Each context of a device has its own options, and kernels that follow these options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emulation import EMULATED
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.kernels import compile_kernels
from optdb.runtime.arrays import empty, from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.context_options import ContextOptions
from tests.codegen.computed import note_products
from tests.opencl_device import new_context

#: Options that select other kernels of products, and the prefix of these kernels' names.
KINDS = {
    "quads": ({"quad_tiles": "all"}, "matmul_32x32x64_quads"),
    "warpgroups": (
        {"instructions": EMULATED, "warpgroup_tiles": "all", "warpgroup_tile": (64, 64, 32, 2, 1)},
        "warpgroups_64x64_2_1",
    ),
}


@pytest.fixture
def multiplied(monkeypatch):
    """Return a list that receives each product that uses other kernels than the default ones."""
    return note_products(monkeypatch)


def gpu_context(**options):
    context = new_context(**{"quad_tiles": "none", **options})
    profile = context.profile.as_kind("gpu")
    # Without PTX, tensor cores do not compute these products.
    context.profile = replace(profile, quirks=replace(profile.quirks, takes_ptx=False))
    return context


def check_product(context):
    """Multiply matrices of integers with aligned rows."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("float32") for shape in ((20, 16), (16, 24)))
    x, v, z = from_host(context, a), from_host(context, b), empty(context, (20, 24), "float32")
    matmul(compile_kernels(matmul_kernels("float32", context), context), context, x, v, z, precision="default")
    np.testing.assert_array_equal(to_host(z), a @ b)


def test_contexts_of_one_device_differ_at_the_same_time(multiplied):
    usual, others = gpu_context(), {kind: gpu_context(**options) for kind, (options, _) in KINDS.items()}
    for _ in range(2):  # in the second round, each context uses the kernels that it has prepared
        check_product(usual)
        assert not multiplied
        for kind, context in others.items():
            check_product(context)
            assert multiplied.pop().plan.launches[-1].kernel.startswith(KINDS[kind][1])


def test_other_options_find_nothing_that_was_prepared_for_the_former_ones(multiplied):
    context = gpu_context()
    for kind in ("quads", "warpgroups", "quads"):
        options, name = KINDS[kind]
        context.options = replace(ContextOptions(quad_tiles="none"), **options)
        check_product(context)
        assert multiplied.pop().plan.launches[-1].kernel.startswith(name)
    context.options = ContextOptions(quad_tiles="none")
    check_product(context)
    assert not multiplied


def test_contexts_have_the_options_of_users_unless_told_others():
    assert Context("opencl").options == ContextOptions()
