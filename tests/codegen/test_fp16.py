from __future__ import annotations

import warnings

import numpy as np
import pytest

from optdb.codegen.kernels import ARRAY, SIZE, Kernel, compile_kernels, ctype
from optdb.codegen.source import load_w, work_dtype, write_w
from optdb.runtime.arrays import empty, from_host
from tests.opencl_device import runtime_context

#: Every float16, including infinities, NaN and denormal numbers.
HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)

ADD_ONE = """
KERNEL void add_one(GLOBAL_MEM {x} *x, ga_size x_off, GLOBAL_MEM {y} *y, ga_size y_off, ga_size n) {{
    ga_size i = GID_0 * LDIM_0 + LID_0;
    if (i < n) {{
        {work} z = {load}(x[i]);
        z += {increment};
        y[i] = {write}(z);
    }}
}}
"""


def add(values, dtype, increment=1):
    """Add a number to all values with a kernel whose code is the same for all dtypes; return the sums."""
    context = runtime_context()
    code = ADD_ONE.format(
        x=ctype(values.dtype),
        y=ctype(dtype),
        work=ctype(work_dtype(values.dtype)),
        load=load_w(values.dtype),
        write=write_w(dtype),
        increment=increment,
    )
    kernel = Kernel(code, "add_one", [ARRAY, ARRAY, SIZE], Kernel.get_flags(values.dtype, dtype))
    x, y = from_host(context, values), empty(context, values.shape, dtype)
    compile_kernels([kernel], context)["add_one"].scall(x.size, x, y, x.size)
    return y.get()


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_other_dtypes_need_no_help(dtype):
    assert (work_dtype(dtype), load_w(dtype), write_w(dtype)) == (dtype, "", "")


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16")])
def test_float16_is_computed_in_float32(dtype):
    assert (work_dtype(dtype), load_w(dtype), write_w(dtype)) == ("float32", "ga_half2float", "ga_float2half")


@pytest.mark.slow
def test_every_float16_is_loaded_exactly():
    np.testing.assert_array_equal(add(HALVES, "float32", 0), HALVES.astype("float32"))


def test_every_float16_survives_the_way_there_and_back():
    np.testing.assert_array_equal(add(HALVES, "float16", 0), HALVES)


def test_stores_round_to_nearest_even_as_numpy_does():
    halves = HALVES[np.isfinite(HALVES)].astype("float32")
    between = np.nextafter(halves, np.float32(np.inf))  # just above each
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the overflow is intended
        ties = halves + np.spacing(halves.astype("float16")).astype("float32") / 2
        values = np.concatenate([between, ties, np.float32([1e6, -1e6, 65519, 65520, 1e-9])])
        expected = values.astype("float16")
    np.testing.assert_array_equal(add(values, "float16", 0), expected)


def test_one_template_does_for_float16_and_float32():
    values = np.linspace(-4, 4, 100)
    for dtype in ("float16", "float32"):
        x = values.astype(dtype)
        np.testing.assert_array_equal(add(x, dtype), (x.astype("float32") + 1).astype(dtype))


def test_calculating_with_the_bits_of_a_half_does_not_compile():
    from optdb.codegen.kernels import BuildError

    code = "KERNEL void k(GLOBAL_MEM ga_half *x, ga_size x_off) { x[0] += 1; }"
    with pytest.raises(BuildError, match="ga_half"):
        compile_kernels([Kernel(code, "k", [ARRAY])], runtime_context())
