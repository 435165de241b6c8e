"""Products that copy tiles asynchronously: when they are used, and (with emulated copies) their indexes."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulation import EMULATED
from optdb.codegen.gemm import copied, families
from optdb.codegen.gemm.copied import LARGE, SMALLER, CopiedBlock, copied_kernel, kernel_name, parts_of, plan
from optdb.codegen.gemm.launches import run, total_kernel
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.kernels import compile_kernels
from optdb.runtime.arrays import to_host
from optdb.runtime.context_options import ContextOptions
from tests.codegen.computed import note_products
from tests.codegen.test_matmul import put
from tests.codegen.test_tensor_cores import checker
from tests.effort import examples

#: A tile that is small enough for the memory checker Oclgrind to run several products.
SMALL = CopiedBlock(32, 32, 8, 3, 8, 4)
#: Layouts of a batch of matrices: the order of the axes in memory (the contiguous axis last), and the gaps.
ORDERS = {"rows": ((0, 1, 2), (1, 1, 1)), "columns": ((0, 2, 1), (1, 1, 1))}
ALONG = [(True, False), (False, False), (True, True)]
#: The small tile with each order of terms, also with transposing copies where the order allows them.
CASES = [(replace(SMALL, transposes=flag), along) for flag in (False, True) for along in ALONG if any(along) >= flag]
_SLOW = pytest.mark.slow


@functools.cache
def compiled(block, along):
    kernels = [copied_kernel(block, along, EMULATED), total_kernel("float32")]
    return compile_kernels(kernels, checker())


def kernel_name_of(block):
    return kernel_name(block, (True, False))


def numbers(*shape):
    """Return small integers, whose products and sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype("float32")


def multiply(a, b, y, alpha=1.0, beta=0.0, layouts=(ORDERS["rows"],) * 3, block=SMALL, units=1):
    """Multiply batches of matrices that have the given layouts; return the product and the plan."""
    context, batch = checker(), y.shape[0]
    x, v, z = (put(context, value, *layout) for value, layout in zip((a, b, y), layouts))
    added = steps(z, batch)
    problem = Problem(batch, *y.shape[1:], a.shape[2], steps(x, batch), steps(v, batch), added, added, beta != 0)
    planned = plan(problem, block, units)
    arrays = {"a": x, "b": v, "y": z, "z": z}
    run(planned, compiled(block, problem.along), context, arrays, alpha, beta)
    return to_host(z), planned


def layouts_of(along, by_columns=False):
    """Return the layouts of both matrices and the result; `along`: whether each matrix's terms are contiguous."""
    left, right = (ORDERS["rows" if is_along == is_left else "columns"] for is_along, is_left in zip(along, (1, 0)))
    return left, right, ORDERS["columns" if by_columns else "rows"]


@pytest.mark.parametrize(("block", "along"), CASES)
@pytest.mark.parametrize("by_columns", [False, True])
def test_rows_columns_and_terms_beyond_the_last(block, along, by_columns):
    a, b, y = numbers(1, 40, 20), numbers(1, 20, 44), numbers(1, 40, 44)
    got, _ = multiply(a, b, y, 2.0, 0.5, layouts_of(along, by_columns), block=block)
    np.testing.assert_array_equal(got, 2 * (a @ b) + 0.5 * y)


@pytest.mark.parametrize(("block", "along"), CASES)
@pytest.mark.parametrize("terms", [8, 16, 24, pytest.param(64, marks=_SLOW)])
def test_whole_tiles(block, along, terms):
    a, b, y = numbers(1, 32, terms), numbers(1, terms, 64), numbers(1, 32, 64)
    got, _ = multiply(a, b, y, layouts=layouts_of(along), block=block)
    np.testing.assert_array_equal(got, a @ b)


def tiles_that_devices_take():
    """Yield a case for each block and order of terms; quick runs keep only one case of each block."""
    for (number, block), (place, along) in itertools.product(enumerate([*LARGE.values(), *SMALLER]), enumerate(ALONG)):
        marks = [_SLOW] if number % len(ALONG) == place else [_SLOW, pytest.mark.thorough]
        yield pytest.param(block, along, id=f"{kernel_name_of(block)}-along{place}", marks=marks)


@pytest.mark.parametrize(("block", "along"), tiles_that_devices_take())
def test_the_tiles_that_devices_take(block, along):
    a, b, y = numbers(1, 68, 40), numbers(1, 40, 64), numbers(1, 68, 64)
    # Oclgrind has only 32 KiB of local memory.
    fitting = block if block.local_bytes <= 32 << 10 else replace(block, stages=3)
    got, _ = multiply(a, b, y, layouts=layouts_of(along), block=fitting)
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize(("block", "along"), CASES)
def test_numbers_that_are_not_aligned(block, along):
    # A rebound array may have another address than the array for which a kernel was chosen.
    a, b, y = numbers(2, 33, 19), numbers(1, 19, 35), numbers(2, 33, 35)
    orders = layouts_of(along)
    got, _ = multiply(
        a, b, y, -0.5, 2.0, ((orders[0][0], (1, 1, 1)), (orders[1][0], (1, 1, 1)), ((1, 0, 2), (1, -1, 2))), block
    )
    np.testing.assert_array_equal(got, -0.5 * (a @ b) + 2 * y)


@pytest.mark.parametrize("along", ALONG)
def test_sums_in_parts(along, monkeypatch):
    monkeypatch.setattr(copied, "parts_of", lambda problem, block, units: 3)
    a, b, y = numbers(1, 36, 52), numbers(1, 52, 32), numbers(1, 36, 32)
    got, planned = multiply(a, b, y, 2.0, 1.0, layouts_of(along))
    assert planned.launches[-1].kernel == "matmul_total" and planned.memory == 3 * 36 * 32
    np.testing.assert_array_equal(got, 2 * (a @ b) + y)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((3200, 512, 10000), (5, 7)),
        ((3200, 512, 2048), (3, 5)),
        ((512, 2048, 3200), (2, 4)),
        ((512, 512, 4096), (4, 12)),
        ((64, 64, 1 << 20), (100, 396)),
        # Sums are not split if tiles keep all units busy, or if adding the parts takes longer than units would be idle.
        ((3200, 2048, 512), (1, 1)),
        ((512, 10000, 3200), (1, 1)),
        ((1024, 1024, 1024), (3, 3)),
        ((4096, 4096, 4096), (1, 1)),
        ((64, 64, 255), (1, 1)),
        ((64, 64, 0), (1, 1)),
    ],
)
def test_how_many_parts(sizes, parts):
    m, n, k = sizes
    problem = Problem(1, m, n, k, (0, k, 1), (0, n, 1), (0, n, 1), (0, n, 1), False)
    assert parts[0] <= parts_of(problem, LARGE[True], 132) <= parts[1]


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("along", ALONG[:2])
def test_sums_of_no_terms(along, beta):
    a, b, y = numbers(1, 33, 0), numbers(1, 0, 36), numbers(1, 33, 36)
    got, _ = multiply(a, b, y, 1.0, beta, layouts_of(along))
    np.testing.assert_array_equal(got, np.float32(beta) * y)


@_SLOW
@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_any_product(data):
    m, n, k = (data.draw(st.sampled_from([1, 4, 7, 8, 12, 31, 32, 36, 64]), name) for name in "mnk")
    block, along = data.draw(st.sampled_from(CASES), "block, along")
    batch, beta = data.draw(st.sampled_from([1, 3]), "batch"), data.draw(st.sampled_from([0.0, 1.0]), "beta")
    a, b, y = numbers(batch, m, k), numbers(data.draw(st.sampled_from([1, batch])), k, n), numbers(batch, m, n)
    left, right, result = layouts_of(along, data.draw(st.booleans(), "by columns"))
    units = data.draw(st.sampled_from([1, 8]), "units")
    got, _ = multiply(a, b, y, 1.0, beta, (left, right, result), block, units)
    np.testing.assert_array_equal(got, a @ b + beta * y)


# Choice of products


@pytest.fixture
def copying(monkeypatch):
    """Yield a context whose device claims asynchronous copies, and a list that receives the products that use them."""
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks, compute_capability=(9, 0)))
    monkeypatch.setattr(copied, "LARGE", dict.fromkeys((False, True), SMALL))
    monkeypatch.setattr(context, "options", ContextOptions(instructions=EMULATED, copied_tiles="all"))
    monkeypatch.setattr(copied, "_ENOUGH", 1.0)
    monkeypatch.delitem(context.kept, families.__name__, raising=False)
    yield context, note_products(monkeypatch)
    context.kept.pop(families.__name__, None)


def kernels_of(computed):
    """Return the kernel that each product launches first."""
    return [product.plan.launches[0].kernel for product in computed]


def product(context, a, b, orders=((0, 1),) * 3, dtype="float32"):
    x, v = (put(context, value.astype(dtype), order, (1, 1)) for value, order in zip((a, b), orders))
    z = put(context, np.full((a.shape[0], b.shape[1]), np.nan, dtype), orders[2], (1, 1))
    matmul(compile_kernels(matmul_kernels(dtype, context), context), context, x, v, z)
    return to_host(z)


@pytest.mark.parametrize("left", [(0, 1), (1, 0)])
@pytest.mark.parametrize("right", [(0, 1), (1, 0)])
@pytest.mark.parametrize("result", [(0, 1), (1, 0)])
def test_each_order_of_the_matrices(copying, left, right, result):
    context, computed = copying
    a, b = numbers(36, 28), numbers(28, 40)
    np.testing.assert_array_equal(product(context, a, b, (left, right, result)), a @ b)
    # If terms are contiguous only in the right matrix, the product of the transposed matrices is computed.
    turned = {("t", "n"): "tn", ("n", "n"): "nn", ("t", "t"): "tt", ("n", "t"): "tn"}
    letters = "nt"[left == (0, 1)], "nt"[right == (1, 0)]
    assert [name.rpartition("_")[2] for name in kernels_of(computed)] == [turned[letters]]


def test_products_of_a_batch(copying):
    context, computed = copying
    x, v = (put(context, numbers(2, 32, 32), *ORDERS["rows"]) for _ in range(2))
    z = put(context, np.full((2, 32, 32), np.nan, "float32"), *ORDERS["rows"])
    matmul(compile_kernels(matmul_kernels("float32", context), context), context, x, v, z)
    np.testing.assert_array_equal(to_host(z), to_host(x) @ to_host(v))
    assert kernels_of(computed) == [kernel_name(SMALL, (True, False))]


def test_others_are_loaded_through_registers(copying):
    context, computed = copying
    for a, b, dtype in [(numbers(36, 28), numbers(28, 39), "float32"), (numbers(36, 28), numbers(28, 40), "float64")]:
        np.testing.assert_array_equal(product(context, a, b, dtype=dtype), a @ b)
    assert not computed


def test_tiles_that_fill_all_units_are_loaded_where_terms_stand_side_by_side(copying, monkeypatch):
    context, computed = copying
    monkeypatch.setattr(copied, "_ENOUGH", 0.9)
    a, b = numbers(36, 28), numbers(28, 40)
    np.testing.assert_array_equal(product(context, a, b, ((0, 1), (1, 0), (0, 1))), a @ b)
    assert not computed
    np.testing.assert_array_equal(product(context, a, b), a @ b)
    assert computed


def test_a_device_that_cannot_compile_them_loads_tiles(copying, monkeypatch, caplog):
    context, computed = copying
    monkeypatch.setattr(context, "options", replace(context.options, instructions=None))
    a, b = numbers(36, 28), numbers(28, 40)
    np.testing.assert_array_equal(product(context, a, b), a @ b)
    assert not computed and "Other kernels are used for a product by copied tiles" in caplog.text


@pytest.mark.parametrize(
    ("lengths", "tile"),
    [
        ((1, 512, 512, 512), "copied_32x32x32_4x4_3"),
        ((1, 128, 2048, 512), "copied_32x32x32_4x4_3"),
        ((1, 1024, 1024, 1024), "transposed_64x128x16_8x8_3"),
        ((256, 128, 128, 64), "copied_64x64x16_4x8_4"),
        ((1, 4096, 4096, 4096), "transposed_64x128x16_8x8_3"),
        ((1, 128, 512, 512), None),
        ((1, 16, 4096, 512), None),
    ],
)
def test_the_tile_of_a_product(lengths, tile, monkeypatch):
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True)
    profile = replace(
        context.profile, quirks=quirks, compute_capability=(9, 0), compute_units=132, local_memory_bytes=48 << 10
    )
    monkeypatch.setattr(context, "profile", profile)
    batch, m, n, k = lengths
    problem = Problem(batch, m, n, k, (m * k, k, 1), (k * n, n, 1), (m * n, n, 1), (m * n, n, 1), False)
    found = copied.choices(context, families.Request(problem, "float32", is_aligned=True))
    assert [choice.plan.launches[0].kernel for choice in found] == ([f"{tile}_tn"] if tile else [])
