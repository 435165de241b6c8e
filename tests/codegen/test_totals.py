"""The parts of split products are added up correctly, for results in any layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.gemm.blocks import GroupBlock
from optdb.codegen.gemm.launches import by_tiles, total_kernel
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.source import work_dtype
from optdb.runtime.arrays import from_host, to_host
from tests.codegen.layouts import device_array, gpu_context
from tests.effort import examples

PART = 4


def total(parts, y, z, beta, dtype, layouts, batch):
    """Return twice the sum of `parts`, plus `beta` times `y`, in the memory of `z`."""
    context = gpu_context()
    arrays = [device_array(value, layout, gpu_context) for value, layout in zip((y, z), layouts, strict=True)]
    lengths = parts.shape[-2:]
    unused = (0, lengths[1], 1)
    of_y, of_z = (steps(x, batch) for x in arrays)
    problem = Problem(batch, *lengths, PART * len(parts), unused, unused, of_y, of_z, beta != 0)
    plan = by_tiles(problem, "a_product", GroupBlock(16, 16, PART, 4, 2), len(parts))
    launch = plan.launches[-1]
    assert plan.memory == parts.size
    (kernel,) = compile_kernels([total_kernel(dtype)], context).values()
    memory = from_host(context, parts.astype(work_dtype(dtype)))
    kernel.call(launch.items, launch.group, *launch.sizes, 2.0, beta, *arrays, memory)
    return to_host(arrays[1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@settings(max_examples=examples(12))
@given(
    lengths=st.tuples(*[st.sampled_from([1, 2, 3, 4, 7, 8, 12, 33])] * 2),
    batch=st.integers(1, 3),
    count=st.integers(2, 6),
    beta=st.sampled_from([0.0, 3.0]),
    layouts=st.lists(st.tuples(*[st.sampled_from([1, 2, -1])] * 3), min_size=2, max_size=2),
    seed=st.integers(0, 99),
)
def test_parts_are_added_up(dtype, lengths, batch, count, beta, layouts, seed):
    rng = np.random.default_rng(seed)
    parts = rng.integers(-4, 5, (count, batch, *lengths))
    y, z = (rng.integers(-4, 5, (batch, *lengths)).astype(dtype) for _ in range(2))
    got = total(parts, y, z, beta, dtype, layouts, batch)
    np.testing.assert_array_equal(got, 2 * parts.sum(axis=0) + beta * y)
