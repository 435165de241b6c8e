"""Matrix products outside of graphs: all layouts, both kinds of devices, and how large products are divided."""

from __future__ import annotations

import functools
import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.gemm import blocks, cpu, families, gpu, launches, products, vector
from optdb.codegen.gemm.blocks import GroupBlock, ItemBlock
from optdb.codegen.gemm.problem import CLASSES, Problem, classify, steps
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.vector import matvec, matvec_kernels
from optdb.codegen.kernels import compile_kernels
from optdb.runtime.arrays import DeviceArray, empty, from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.device_profiles import DEVICE_KINDS
from tests.effort import examples

SIZES = st.sampled_from([0, 1, 2, 7, 8, 10, 16, 17, 24, 32, 33, 40])
STEPS = st.sampled_from([1, 1, 1, 2, -1])

# Tiles that are small enough for the memory checker Oclgrind to run several of them.
SMALL_TILES = {
    "square": GroupBlock(16, 16, 8, 4, 4),
    "small": GroupBlock(16, 16, 8, 2, 2),
    "tiny": GroupBlock(16, 16, 16, 2, 2),
    "flat": GroupBlock(8, 16, 8, 2, 2),
    "narrow": GroupBlock(16, 8, 8, 2, 2),
}


@functools.cache
def context_of(device_kind):
    context = Context("opencl")
    context.profile = context.profile.as_kind(device_kind)
    if device_kind == "gpu":
        for dtype in ("float16", "float32", "float64", "uint32", "uint64"):
            blocks.choose(context, dtype, blocks.TunedBlocks(SMALL_TILES))
    return context


@functools.cache
def kernels_of(device_kind, dtype):
    context = context_of(device_kind)
    return compile_kernels(matmul_kernels(dtype, context), context)


def put(context, value, order, steps):
    """Return a value on the device; `order` orders its axes in memory, and `steps` sets their gaps and directions."""
    base = np.zeros([value.shape[axis] * abs(step) for axis, step in zip(order, steps)], value.dtype)
    spaced = base[tuple(slice(None, None, step) for step in steps)]
    spaced[...] = value.transpose(order)
    back = np.argsort(order)
    there = from_host(context, base)
    if not value.size:
        return DeviceArray(context.queue, value.shape, value.dtype)
    at = spaced.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    strides = tuple(spaced.strides[axis] for axis in back)
    return DeviceArray(
        context.queue, value.shape, value.dtype, data=there.base_data, offset=there.offset + at, strides=strides
    )


@st.composite
def layout(draw, ndim):
    return draw(st.permutations(range(ndim))), [draw(STEPS) for _ in range(ndim)]


def sample(dtype, *shape):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


def close(got, want, k):
    eps = np.finfo(got.dtype).eps
    np.testing.assert_allclose(got, want, rtol=4 * eps, atol=2 * eps * max(k, 4))


@pytest.mark.slow
@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
@given(st.data(), st.integers(0, 3), SIZES, SIZES, SIZES, st.sampled_from(["float32", "float32", "float64", "float16"]))
@settings(max_examples=examples(60))
def test_any_layout(device_kind, data, batch, m, n, k, dtype):
    context = context_of(device_kind)
    # The name of the operand, if any, that is one matrix for all products of the batch.
    shared = data.draw(st.sampled_from(["", "a", "b"])) if batch > 1 else ""
    a, b = sample(dtype, 1 if shared == "a" else batch, m, k), sample(dtype, 1 if shared == "b" else batch, k, n)
    y, alpha = sample(dtype, batch, m, n), data.draw(st.sampled_from([1.0, -0.5]))
    beta, inplace = data.draw(st.sampled_from([0.0, 1.0, 2.0])), data.draw(st.booleans())
    x, v, added = (put(context, value, *data.draw(layout(3))) for value in (a, b, y))
    z = added if inplace else put(context, np.full_like(y, np.nan), *data.draw(layout(3)))
    matmul(kernels_of(device_kind, dtype), context, x, v, z, alpha, added, beta)
    want = alpha * np.matmul(a.astype("float64"), b.astype("float64")) + beta * y.astype("float64")
    close(to_host(z), want.astype(dtype), k)
    if not inplace:
        np.testing.assert_array_equal(to_host(added), y)


@pytest.mark.slow_cases("orders2-64-33-17-gpu")
@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
@pytest.mark.parametrize(("m", "k", "n"), [(100, 784, 10), (64, 33, 17), (20, 50, 100), (96, 64, 64), (130, 40, 70)])
@pytest.mark.parametrize("orders", [((0, 1), (0, 1)), ((1, 0), (0, 1)), ((0, 1), (1, 0)), ((1, 0), (1, 0))])
def test_matrices_and_their_transposes(device_kind, m, k, n, orders):
    context = context_of(device_kind)
    a, b = sample("float32", m, k), sample("float32", k, n)
    x, v = (put(context, value, order, (1, 1)) for value, order in zip((a, b), orders))
    z = empty(context, (m, n), "float32")
    matmul(kernels_of(device_kind, "float32"), context, x, v, z)
    close(to_host(z), np.dot(a, b), k)


@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("shape", [(1, 33, 40, 17), (3, 7, 5, 2), (2, 1, 300, 20), (2, 0, 4, 3), (2, 3, 0, 4)])
def test_products_of_integers_wrap(device_kind, dtype, shape):
    context, (batch, m, k, n) = context_of(device_kind), shape
    limits, rng = np.iinfo(dtype), np.random.default_rng(k)
    a, b, y = (
        rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
        for size in ((batch, m, k), (1, k, n), (batch, m, n))
    )
    for orders, beta in [((0, 1, 2), 0), ((0, 2, 1), 1)]:
        x, v, z = (put(context, value, orders, (1, 1, 1)) for value in (a, b, y))
        matmul(kernels_of(device_kind, dtype), context, x, v, z, 1, z, beta)
        np.testing.assert_array_equal(to_host(z), np.matmul(a, b) + np.dtype(dtype).type(beta) * y)


@functools.cache
def kernels_of_tile(tile, dtype):
    context = Context("opencl")
    context.profile = context.profile.as_kind("gpu")
    blocks.choose(context, dtype, blocks.TunedBlocks(dict.fromkeys(CLASSES, tile)))
    return context, compile_kernels(matmul_kernels(dtype, context), context)


#: A tile with 4 x 8 items, a tile of which each item loads two parts of each row, and a tile with few loads.
TILES = [
    GroupBlock(16, 32, 8, 4, 4),
    GroupBlock(16, 128, 8, 8, 16),
    GroupBlock(8, 8, 4, 1, 2),
]


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@given(st.data(), st.sampled_from([0.0, 0.5]))
@settings(max_examples=examples(30))
def test_tiles_of_products_up_to_twice_their_size(tile, dtype, data, beta):
    context, kernels = kernels_of_tile(tile, dtype)

    def length(most):
        fours = st.integers(0, most // 4).map(lambda n: 4 * n)  # whole vectors
        return data.draw(st.one_of(fours, fours, st.integers(0, most)))

    m, n, k = length(2 * tile.rows), length(2 * tile.cols), length(3 * tile.depth)
    a, b, y = sample(dtype, m, k), sample(dtype, k, n), sample(dtype, m, n)

    def shifted(value):
        """Return a value on the device, optionally at an offset where its vectors are not aligned."""
        shift, order = data.draw(st.sampled_from([0, 0, 1, 4])), data.draw(st.permutations(range(2)))
        beside = np.zeros(value.size + shift, dtype)
        beside[shift:] = value.transpose(order).ravel()
        there = from_host(context, beside)
        strides = np.empty((value.shape[order[0]], value.shape[order[1]]), dtype).strides
        strides = tuple(strides[axis] for axis in np.argsort(order))
        at = there.offset + shift * value.itemsize
        if not value.size:
            return DeviceArray(context.queue, value.shape, dtype)
        return DeviceArray(context.queue, value.shape, dtype, data=there.base_data, offset=at, strides=strides)

    z = shifted(y)
    matmul(kernels, context, shifted(a), shifted(b), z, 2.0, z, beta)
    want = 2 * np.dot(a.astype("float64"), b.astype("float64")) + beta * y.astype("float64")
    close(to_host(z), want.astype(dtype), 2 * k)


@pytest.mark.parametrize("tile_rows", [1, 8, 11, 16])
def test_bands_of_tiles(tile_rows):
    """A band has eight rows of tiles; the last band may have fewer."""
    context, kernels = kernels_of_tile(TILES[2], "float32")
    a, b = sample("float32", 2, 8 * tile_rows - 3, 5), sample("float32", 2, 5, 21)
    z = empty(context, (2, a.shape[1], 21), "float32")
    matmul(kernels, context, from_host(context, a), from_host(context, b), z)
    close(to_host(z), np.matmul(a, b), 5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("orders", [((0, 1, 2), (0, 1, 2)), ((0, 2, 1), (0, 2, 1))])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_large_products_are_cut_along_all_lengths(monkeypatch, dtype, orders, beta):
    for name, value in {"PACKED": 1024, "TERMS": 16, "LARGE": 1, "PANELS": 1, "FAR": 1, "ROW_BLOCKS": 1}.items():
        monkeypatch.setattr(cpu, name, value)
    context = context_of("cpu")
    monkeypatch.delitem(context.kept, families.__name__, raising=False)
    a, b, y = sample(dtype, 2, 50, 41), sample(dtype, 2, 41, 90), sample(dtype, 2, 50, 90)
    x, v = (put(context, value, order, (1, 1, 1)) for value, order in zip((a, b), orders))
    z = from_host(context, y)
    matmul(kernels_of("cpu", dtype), context, x, v, z, 1.0, z, beta)
    (planned,) = [product.plan for _, product in context.kept[families.__name__]._entries.values()]
    assert len(planned.launches) > 8
    want = np.matmul(a.astype("float64"), b.astype("float64")) + beta * y.astype("float64")
    close(to_host(z), want.astype(dtype), 41)


@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
@pytest.mark.parametrize("name, beta", [("square", 0.0), ("square", 0.5), ("tiny", 0.5)])
def test_long_sums_are_cut_into_parts(monkeypatch, device_kind, name, beta):
    monkeypatch.setattr(cpu, "PART", 10)
    monkeypatch.setattr(gpu, "PART", 10)
    # The plan is for many compute units, most of which would be idle if sums were not split.
    plans = []

    def on_many_units(chosen, context, dtype, problem):
        block = chosen[name]
        if device_kind == "cpu":
            plans.append(cpu.plan(problem, block, 16, False, 4))
        else:
            plans.append(gpu.plan(problem, block, 16))
        return plans[-1]

    monkeypatch.setattr(products, "plan_with", on_many_units)
    context = context_of(device_kind)
    monkeypatch.delitem(context.kept, families.__name__, raising=False)
    a, b, y = sample("float32", 2, 7, 61), sample("float32", 2, 61, 10), sample("float32", 2, 7, 10)
    z = from_host(context, y)
    matmul(kernels_of(device_kind, "float32"), context, from_host(context, a), from_host(context, b), z, 0.5, z, beta)
    (plan,) = plans
    assert plan.launches[-1].kernel.startswith("matmul_total") and plan.memory > 2 * 7 * 10
    close(to_host(z), 0.5 * np.matmul(a, b) + np.float32(beta) * y, 61)


def tiles_of_all_blocks():
    """Yield each block with each dtype; some cases have the mark `thorough`.

    If a block's float64 tiles fit into 64 KiB of local memory, one of its cases, float32 or float64 in turn, is
    thorough.
    """
    for number, block in enumerate([*SMALL_TILES.values(), *blocks._GPU_DEFAULTS.values(), *blocks._GPU_CANDIDATES]):
        for dtype in ("float32", "float64"):
            is_thorough = block.local_bytes("float64") <= 1 << 16 and (dtype == "float64") == bool(number % 2)
            yield pytest.param(
                block, dtype, id=f"{dtype}-block{number}", marks=[pytest.mark.thorough] if is_thorough else []
            )


@pytest.mark.parametrize(("block", "dtype"), tiles_of_all_blocks())
def test_whole_tiles_of_all_blocks(block, dtype):
    context = context_of("gpu")
    if block.local_bytes(dtype) > 1 << 16:
        pytest.skip("the tiles are too large")
    m, n, k = block.rows * 2, block.cols, block.depth * 3
    kernels = compile_kernels(products.kernels_of({block}, dtype, context), context)
    a, b = sample(dtype, 2, m, k), sample(dtype, 2, k, n)
    for orders in itertools.product([(0, 1, 2), (0, 2, 1)], repeat=2):
        x, v = (put(context, value, order, (1, 1, 1)) for value, order in zip((a, b), orders))
        z = empty(context, (2, m, n), dtype)
        problem = Problem(2, m, n, k, *(steps(array, 2) for array in (x, v, z, z)), False)
        arrays = {"a": x, "b": v, "y": z, "z": z}
        launches.run(gpu.plan(problem, block, 1), kernels, context, arrays, 1.0, 0.0)
        close(to_host(z), np.matmul(a, b), k)


@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
def test_sums_of_many_terms_are_as_exact_as_numpys(device_kind):
    context = context_of(device_kind)
    a, b = sample("float32", 24, 3000), sample("float32", 3000, 40)
    z = empty(context, (24, 40), "float32")
    matmul(kernels_of(device_kind, "float32"), context, from_host(context, a), from_host(context, b), z)
    want = np.dot(a.astype("float64"), b.astype("float64"))
    assert np.linalg.norm(to_host(z) - want) < 1e-5 * np.linalg.norm(want)


def test_what_a_vector_reads_beyond_a_row_is_within_the_matrix():
    block = ItemBlock(8, 32, 16)
    for n in (1, 5, 10, 31):
        for k in (1, 2, 9, 64):
            for step in (n, n + 3, 40):
                p = Problem(1, 20, n, k, (0, k, 1), (0, step, 1), (0, n, 1), (0, n, 1), False)
                launches = cpu.plan(p, block, 2, False, 4).launches
                if len(launches) > 1:  # packed instead
                    continue
                whole = int(launches[0].sizes[1]["s11"])
                assert 0 <= whole <= k
                assert whole == 0 or (whole - 1) * step + block.cols <= (k - 1) * step + n


def test_shapes_that_do_not_fit_are_refused():
    context = context_of("cpu")
    a, b, z = (empty(context, shape, "float32") for shape in ((2, 3, 4), (3, 4, 5), (2, 3, 5)))
    with pytest.raises(ValueError, match=r"a product of \(2, 3, 4\) and \(3, 4, 5\)"):
        matmul({}, context, a, b, z)
    with pytest.raises(ValueError, match=r"added to an array of \(3, 4, 5\)"):
        matmul({}, context, a, empty(context, (1, 4, 5), "float32"), z, 1.0, b, 1.0)


def test_what_products_are_like():
    assert classify(1, 1000, 10, 2) == "narrow"
    assert classify(1, 10, 1000, 2) == "flat"
    assert [classify(1, side, side, 2) for side in (32, 100, 1000)] == ["tiny", "small", "square"]
    assert classify(1, 1000, 1000, 132) == "small"


@pytest.mark.slow
@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
@given(st.data(), st.sampled_from([0, 1, 5, 16, 40, 700]), st.sampled_from([0, 1, 7, 33, 100, 1100]))
@settings(max_examples=examples(40))
def test_matrix_and_vector(device_kind, data, m, k):
    """If `PIECES_PER_UNIT` is 0, each work item of a GPU computes several rows."""
    wanted = data.draw(st.sampled_from([0, 8]))
    vector._plan.cache_clear()
    with mock.patch.dict(vector.PIECES_PER_UNIT, dict.fromkeys(DEVICE_KINDS, wanted)):
        compare_matvec(device_kind, data, m, k)


def compare_matvec(device_kind, data, m, k):
    context, dtype = context_of(device_kind), data.draw(st.sampled_from(["float32", "float16"]))
    a, b, y = sample(dtype, m, k), sample(dtype, k), sample(dtype, m)
    x, (v, z) = put(context, a, *data.draw(layout(2))), (put(context, c, *data.draw(layout(1))) for c in (b, y))
    compiled = compile_kernels(matvec_kernels(dtype, context), context)
    matvec(compiled, context, x, v, z, 0.5, z, 2.0)
    want = 0.5 * np.dot(a.astype("float64"), b.astype("float64")) + 2 * y.astype("float64")
    close(to_host(z), want.astype(dtype), k)


@pytest.mark.parametrize("device_kind", DEVICE_KINDS)
def test_long_rows_are_cut_into_parts(monkeypatch, device_kind):
    monkeypatch.setattr(vector, "PART", dict.fromkeys(DEVICE_KINDS, 10))
    vector._plan.cache_clear()
    context = context_of(device_kind)
    a, b, y = sample("float32", 3, 95), sample("float32", 95), sample("float32", 3)
    z = from_host(context, y)
    compiled = compile_kernels(matvec_kernels("float32", context), context)
    matvec(compiled, context, from_host(context, a), from_host(context, b), z, 1.0, z, -1.0)
    vector._plan.cache_clear()
    close(to_host(z), np.dot(a, b) - y, 95)


def test_defaults_can_be_built():
    for device_kind in DEVICE_KINDS:
        context = context_of(device_kind)
        for dtype in ("float16", "float32", "float64"):
            default = blocks.defaults(context, dtype)
            assert set(default) == set(CLASSES)
            assert len({block.name for block in blocks.candidates(context, dtype)}) > 1
