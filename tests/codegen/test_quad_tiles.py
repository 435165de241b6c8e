"""Kernels of small products read four numbers at a time where they can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulation import EMULATED
from optdb.codegen.gemm import launches, quad_tiles
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.tensor_cores import ptx
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.kernels.bodies import bodies_of
from optdb.codegen.kernels.prelude import PRELUDE
from optdb.codegen.kernels.programs import TranslationUnit, origin
from optdb.runtime.arrays import DeviceArray, from_host, overwrite, to_host
from optdb.runtime.context_options import ContextOptions
from optdb.runtime.dispatch import listened
from optdb.runtime.library import cl
from optdb.runtime.timing import Timer
from tests.codegen.computed import note_products
from tests.codegen.test_tensor_cores import checker
from tests.effort import examples
from tests.opencl_device import new_context

#: Orders of a matrix's axes in memory, after the batch axis.
ROWS, COLUMNS = (0, 1, 2), (0, 2, 1)
TILES = (quad_tiles.TILE, quad_tiles.HALF_TILE)


@pytest.fixture(scope="module")
def context():
    context = new_context(quad_tiles="all")
    context.profile = context.profile.as_kind("gpu")
    return context


@pytest.fixture(scope="module")
def kernels(context):
    return compile_kernels(matmul_kernels("float32", context), context)


def sample(*shape):
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype("float32")


def put(context, value, order=ROWS, gap=0, shift=0):
    """Copy a value to the device; `order` orders its axes, `gap` separates lines, and `shift` offsets the array."""
    lines = value.transpose(order)
    memory = np.full((*lines.shape[:-1], lines.shape[-1] + gap), np.nan, "float32")
    memory[..., : lines.shape[-1]] = lines
    there = from_host(context, np.concatenate([np.full(shift, np.nan, "float32"), memory.ravel()]))
    strides = tuple(memory.strides[axis] for axis in np.argsort(order))
    offset = there.offset + 4 * shift
    return DeviceArray(context.queue, value.shape, "float32", data=there.base_data, offset=offset, strides=strides)


def reads_quads(context, kernels, a, b, y, z, beta, monkeypatch):
    """Compare a product with NumPy's; return whether it reads four numbers at a time."""
    computed = note_products(monkeypatch)
    matmul(kernels, context, a, b, z, -1.5, y, beta)
    x, v, added = (to_host(array).astype("float64") for array in (a, b, y))
    got, k = to_host(z), a.shape[-1]
    want = -1.5 * np.matmul(x, v) + (beta * added if beta else 0)
    np.testing.assert_allclose(got, want, atol=1e-6 * max(k, 4))
    return [product.name for product in computed] == ["a small product"]


@pytest.mark.parametrize("b_order", [ROWS, COLUMNS])
@pytest.mark.parametrize("z_order", [ROWS, COLUMNS])
@given(
    st.integers(1, 2),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 40),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0, 4]),
    st.sampled_from([0, 1, 4]),
    st.sampled_from([0, 1, 4]),
)
@settings(max_examples=examples(30))
def test_products_up_to_twice_a_tile(context, kernels, b_order, z_order, batch, m, n, quads, beta, gap, z_gap, shift):
    k = 4 * quads
    # For a column-major result, the product of the transposed matrices is computed.
    a_order = ROWS
    if z_order == COLUMNS and m > 1:
        a_order, b_order = COLUMNS if b_order == ROWS else ROWS, COLUMNS
    m = -(-m // 4) * 4 if a_order == COLUMNS else m
    n = -(-n // 4) * 4 if b_order == ROWS else n
    a, b = put(context, sample(batch, m, k), a_order, gap), put(context, sample(batch, k, n), b_order, gap)
    y = put(context, sample(batch, m, n), gap=shift)
    z = put(context, np.full((batch, m, n), np.nan, "float32"), z_order, z_gap, shift)
    with pytest.MonkeyPatch.context() as patch:
        assert reads_quads(context, kernels, a, b, y, z, beta, patch)


@pytest.mark.pairwise
@pytest.mark.parametrize("z_order", [ROWS, COLUMNS])
@pytest.mark.parametrize("b_order", [ROWS, COLUMNS])
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 128, 64, 512), (2, 16, 36, 132), (3, 48, 32, 4), (1, 4, 4, 68)])
def test_halves_of_tiles_have_the_same_sums(context, kernels, z_order, b_order, batch, m, n, k):
    turned = z_order == COLUMNS
    a = put(context, sample(batch, m, k), ROWS if not turned or b_order == ROWS else COLUMNS)
    b = put(context, sample(batch, k, n), COLUMNS if turned else b_order)
    y, z = put(context, sample(batch, m, n)), put(context, np.full((batch, m, n), np.nan, "float32"), z_order)
    timer = Timer()
    with listened(timer):
        matmul(kernels, context, a, b, z, -1.5, y, 0.5)
    timer.finish()
    whole = to_host(z)
    (command,) = (timed.command for timed in timer.commands if timed.command.kind == "launch")
    unit, name = origin(command.kernel)
    halves = quad_tiles.halves(name, command.args)
    assert bodies_of(unit).kernels[halves.kernel].synchronizes
    overwrite(z, put(context, np.full((batch, m, n), np.nan, "float32"), z_order))
    (b_along,) = (along for along in (False, True) if quad_tiles.HALF_TILE.kernel_name(along) == halves.kernel)
    kernel = quad_tiles.quad_kernel(quad_tiles.HALF_TILE, b_along)
    program = cl.Program(context.cl_context, PRELUDE + kernel.code).build()
    items = quad_tiles.HALF_TILE.items
    getattr(program, kernel.name)(context.queue, (halves.groups * items,), (items,), *halves.args)
    np.testing.assert_array_equal(to_host(z), whole)


def test_other_launches_are_not_halved(context):
    assert quad_tiles.halves("matmul_32x32_tf32_quads_n", ()) is None
    problem = Problem(1, 30, 36, 4096, (0, 4096, 1), (0, 36, 1), (0, 36, 1), (0, 36, 1), False)
    launch = quad_tiles.plan(problem, 64, quad_tiles.TILE).launches[0]
    assert quad_tiles.halves(launch.kernel, launch.sizes) is None  # sums are split, which keeps all units busy


@pytest.mark.parametrize("b_order", [ROWS, COLUMNS])
@pytest.mark.parametrize("terms", [256, 260, 1000])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_long_sums_have_parts(context, kernels, monkeypatch, b_order, terms, beta):
    monkeypatch.setattr(quad_tiles, "PART", 60)
    problem = Problem(1, 30, 36, terms, (0, terms, 1), (0, 36, 1), (0, 36, 1), (0, 36, 1), False)
    plan = quad_tiles.plan
    assert len(plan(problem, 64, quad_tiles.TILE).launches) == 2
    monkeypatch.setattr(quad_tiles, "plan", lambda problem, _, *how: plan(problem, 64, *how))
    context.kept.pop(quad_tiles.__name__, None)
    a, b, z = put(context, sample(1, 30, terms)), put(context, sample(1, terms, 36), b_order), sample(1, 30, 36)
    there = put(context, z)
    assert reads_quads(context, kernels, a, b, put(context, z), there, beta, monkeypatch)
    context.kept.pop(quad_tiles.__name__, None)


@pytest.mark.parametrize(
    ("a", "b", "is_read"),
    [
        ({}, {}, True),
        ({"shift": 4}, {"shift": 8}, True),
        ({"shift": 1}, {}, False),
        ({}, {"shift": 2}, False),
        ({"gap": 2}, {}, False),
        ({}, {"gap": 1}, False),
        ({"order": COLUMNS}, {}, False),
    ],
)
def test_what_is_not_aligned_has_other_kernels(context, kernels, monkeypatch, a, b, is_read):
    x, v, y = put(context, sample(2, 8, 12), **a), put(context, sample(2, 12, 16), **b), put(context, sample(2, 8, 16))
    z = put(context, sample(2, 8, 16))
    assert reads_quads(context, kernels, x, v, y, z, 0.5, monkeypatch) is is_read


def test_sums_of_no_terms_have_other_kernels(context, kernels, monkeypatch):
    a, b = (DeviceArray(context.queue, shape, "float32") for shape in [(8, 0), (0, 12)])
    y, z = put(context, sample(8, 12), (0, 1)), put(context, sample(8, 12), (0, 1))
    assert not reads_quads(context, kernels, a, b, y, z, 0.5, monkeypatch)


def test_long_distances_have_other_kernels():
    def problem(row, m=64, batch=1):
        return Problem(batch, m, 64, 64, (0, row, 1), (0, 64, 1), (0, 64, 1), (0, 64, 1), False)

    assert not quad_tiles.needs_64bit_index(problem(1 << 20))
    assert quad_tiles.needs_64bit_index(problem(1 << 26))
    assert quad_tiles.needs_64bit_index(problem(64, batch=1 << 10))


@pytest.mark.parametrize(
    ("number", "divisor"), [(0, 1), (6, 7), (7, 7), (65_535, 3), (65_535, 32_767), (46_340, 46_340)]
)
def test_numbers_are_divided_by_reciprocals(number, divisor):
    assert number * launches.reciprocal(divisor) >> 31 == number // divisor


@pytest.mark.parametrize("b_order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 96), (30, 28, 40), (1, 4, 4)])
def test_items_stay_within_their_memory(monkeypatch, b_order, m, n, k):
    """The default tile needs more local memory than the memory checker has, so only a smaller tile is used."""
    context = checker()
    kernels = compile_kernels(matmul_kernels("float32", context), context)
    monkeypatch.setattr(context, "options", ContextOptions(quad_tiles="all"))
    a, b, y = (
        put(context, sample(m, k), (0, 1)),
        put(context, sample(k, n), b_order),
        put(context, sample(m, n), (0, 1)),
    )
    assert not reads_quads(context, kernels, a, b, y, put(context, sample(m, n), (0, 1)), 0.5, monkeypatch)
    monkeypatch.setattr(context, "options", ContextOptions(quad_tiles="all", quad_tile=(16, 16, 32, 8)))
    assert reads_quads(context, kernels, a, b, y, put(context, sample(m, n), (0, 1)), 0.5, monkeypatch)


# With tensor cores


@pytest.fixture
def emulated(monkeypatch):
    """Return a context of a device that claims to have tensor cores, which kernels with groups of 64 items emulate."""
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks, compute_capability=(9, 0)))
    monkeypatch.setattr(quad_tiles, "_TENSOR_TILE", quad_tiles.QuadTile(32, 32, 32, 2, tensor=True))
    monkeypatch.setattr(context, "options", ContextOptions(instructions=EMULATED, quad_tiles="all"))
    monkeypatch.delitem(context.kept, quad_tiles.__name__, raising=False)
    yield context
    context.kept.pop(quad_tiles.__name__, None)


def rounded(value):
    """Return TF32 numbers, rounded as the kernels round them."""
    return (value * np.float32(1 + 2**-12 * 4 / 3)).view("uint32") & np.uint32(0xFFFFE000)


@pytest.mark.thorough_cases(
    "0.0-40-28-132-2-b_order0",
    "0.0-40-28-132-2-b_order1",
    "0.5-26-28-100-1-b_order0",
    "0.5-26-28-100-1-b_order1",
)
@pytest.mark.parametrize("b_order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("m", "n", "k", "parts"), [(26, 28, 100, 1), (40, 28, 132, 2), (32, 32, 16, 1)])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_tensor_cores(emulated, monkeypatch, b_order, m, n, k, parts, beta):
    monkeypatch.setattr(quad_tiles, "parts_of", lambda *_: parts)
    a, b, y = sample(m, k), sample(k, n), sample(m, n)
    kernels = compile_kernels(matmul_kernels("float32", emulated), emulated)
    z = put(emulated, y, (0, 1))
    matmul(kernels, emulated, put(emulated, a, (0, 1)), put(emulated, b, b_order), z, -1.5, z, beta, "default")
    x, v = (rounded(value).view("float32").astype("float64") for value in (a, b))
    np.testing.assert_allclose(to_host(z), -1.5 * np.dot(x, v) + beta * y, atol=2e-5)


def test_few_terms_are_of_the_highest_precision(emulated):
    a, b = np.full((28, 12), np.float32(1 + 2**-13)), np.ones((12, 28), "float32")
    z = put(emulated, sample(28, 28), (0, 1))
    kernels = compile_kernels(matmul_kernels("float32", emulated), emulated)
    matmul(kernels, emulated, put(emulated, a, (0, 1)), put(emulated, b, (0, 1)), z, precision="default")
    np.testing.assert_array_equal(to_host(z), 12 * a[0, 0])


@pytest.mark.parametrize("b_along", [False, True])
def test_other_kernels_run_them_as_a_part(b_along):
    by_tensor_cores = quad_tiles.tensor_quad_kernel(b_along, ptx())
    for kernel in (by_tensor_cores, *(quad_tiles.quad_kernel(tile, b_along) for tile in TILES)):
        bodies = bodies_of(TranslationUnit(checker(), (kernel.code,), "a product")).kernels
        assert list(bodies) == [kernel.name]
        assert bodies[kernel.name].synchronizes
