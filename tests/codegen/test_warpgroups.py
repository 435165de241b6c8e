"""Products by warpgroups: when they are used, and their index arithmetic and signals (instructions are emulated)."""

from __future__ import annotations

import functools
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulation import EMULATED
from optdb.codegen.gemm import families, launches, tune, tuning_table, warpgroups
from optdb.codegen.gemm.families import Request
from optdb.codegen.gemm.launches import run, total_kernel
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.gemm.tensor_cores import ptx
from optdb.codegen.gemm.warpgroups import (
    DEFAULTS,
    LAYOUTS,
    TileTimes,
    WarpgroupTile,
    kernel_name,
    kernels_of,
    multiply_kernel,
    pack_kernel,
    plan,
)
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.kernels.bodies import bodies_of
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.runtime import binaries, tuning
from optdb.runtime.arrays import DeviceArray, to_host
from optdb.runtime.context import Context
from optdb.runtime.context_options import ContextOptions
from tests.codegen.computed import note_products
from tests.codegen.test_matmul import put
from tests.codegen.test_tensor_cores import FINE, ORDERS, checker, product
from tests.effort import examples

_SLOW = pytest.mark.slow
#: A tile that is small enough for the memory checker Oclgrind to run several of them.
SMALL = WarpgroupTile(64, 64, stages=2, warpgroups=1)
#: Tiles of 128 rows, which one warpgroup multiplies in two halves, or two warpgroups multiply together.
TALL, SHARED = (WarpgroupTile(128, 64, stages=2, warpgroups=warpgroups) for warpgroups in (1, 2))
ARITHMETICS = {"tf32": "float32", "float16": "float16"}
IN_ROWS, IN_COLUMNS = ORDERS.values()


@functools.cache
def compiled(context, tile, arithmetic, along):
    kernels = [multiply_kernel(tile, arithmetic, along, EMULATED), pack_kernel(arithmetic)]
    return compile_kernels([*kernels, total_kernel(ARITHMETICS[arithmetic])], context)


def whole(*shape):
    """Return small integers; TF32 and float16 represent these integers, and sums of their products, exactly."""
    return np.random.default_rng(sum(shape)).integers(-6, 7, shape).astype("float32")


def multiply(
    tile, arithmetic, a, b, y, alpha=1.0, beta=0.0, layouts=(IN_ROWS,) * 3, parts=1, groups=2, is_aligned=True
):
    """Multiply batches of matrices that have the given layouts; return the product and its kernels' names."""
    context = checker()
    a, b, y = (value.astype(ARITHMETICS[arithmetic]) for value in (a, b, y))
    x, v, z = (put(context, value, *layout) for value, layout in zip((a, b, y), layouts))
    of_z, batch = steps(z, y.shape[0]), y.shape[0]
    problem = Problem(batch, *y.shape[1:], a.shape[2], steps(x, batch), steps(v, batch), of_z, of_z, beta != 0)
    planned = plan(problem, arithmetic, tile, groups, parts, is_aligned)
    names = [launch.kernel for launch in planned.launches]
    (along,) = (along for along in LAYOUTS if kernel_name(tile.name, arithmetic, along) in names)
    kernels = compiled(context, tile, arithmetic, along)
    run(planned, kernels, context, {"a": x, "b": v, "y": z, "z": z}, alpha, beta)
    return to_host(z), names


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (65, 72, 136), (3, 50, 24)])
def test_products(arithmetic, m, n, k):
    a, b, y = whole(1, m, k), whole(1, k, n), whole(1, m, n)
    np.testing.assert_array_equal(multiply(SMALL, arithmetic, a, b, y)[0], a @ b)


# Whole tiles are stored in the same way for all orders of the matrices' axes, except that TF32 transposes some results.
@pytest.mark.thorough_cases(
    *(f"64-right{right}-left1-{arithmetic}" for right in (0, 1) for arithmetic in ARITHMETICS),
    "64-right1-left0-float16",
)
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("left", [IN_ROWS, IN_COLUMNS])
@pytest.mark.parametrize("right", [IN_ROWS, IN_COLUMNS])
@pytest.mark.parametrize("length", [24, 64])
def test_each_order_of_the_matrices(arithmetic, left, right, length):
    a, b, y = whole(1, length, 40), whole(1, 40, length), whole(1, length, length)
    got, names = multiply(SMALL, arithmetic, a, b, y, -0.5, 2.0 * (length == 24), (left, right, IN_ROWS))
    np.testing.assert_array_equal(got, -0.5 * (a @ b) + 2 * y * (length == 24))
    # In TF32, at least one matrix must be contiguous along the summed axis; otherwise, one matrix is packed.
    is_packed = arithmetic == "tf32" and left == IN_COLUMNS and right == IN_ROWS
    assert any("packed" in name for name in names) == is_packed


# Partial sums are stored in float32, whatever the arithmetic.
@pytest.mark.thorough_cases("50-tf32", "64-float16")
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("n", [64, 50])
def test_sums_in_parts(arithmetic, n):
    a, b, y = whole(2, 20, 200), whole(2, 200, n), whole(2, 20, n)
    got, names = multiply(SMALL, arithmetic, a, b, y, 0.5, 1.0, parts=2)
    np.testing.assert_array_equal(got, 0.5 * (a @ b) + y)
    assert names[-1] == "matmul_total"


@pytest.mark.parametrize("tile", [SMALL, TALL, SHARED])
def test_groups_compute_several_tiles(tile):
    a, b, y = whole(1, tile.rows + 8, 40), whole(1, 40, 72), whole(1, tile.rows + 8, 72)
    np.testing.assert_array_equal(multiply(tile, "tf32", a, b, y, groups=2)[0], a @ b)


def test_gaps_and_other_directions():
    a, b, y = whole(2, 20, 19), whole(2, 19, 17), whole(2, 20, 17)
    layouts = (((1, 0, 2), (1, 1, 2)), ((0, 2, 1), (1, -1, 1)), ((0, 1, 2), (1, -2, 3)))
    got, names = multiply(SMALL, "tf32", a, b, y, 1.0, 1.0, layouts)
    np.testing.assert_array_equal(got, a @ b + y)
    assert names[:2] == ["matmul_packed_tf32"] * 2


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_matrices_bound_later_may_be_unaligned(arithmetic):
    a, b, y = whole(1, 20, 40), whole(1, 40, 24), whole(1, 20, 24)
    context, dtype = checker(), ARITHMETICS[arithmetic]
    x, v, z = (put(context, value.astype(dtype), *IN_ROWS) for value in (np.pad(a, ((0, 1), (0, 0), (0, 0))), b, y))
    x = DeviceArray(
        context.queue, a.shape, x.dtype, data=x.base_data, offset=x.offset + x.dtype.itemsize, strides=x.strides
    )
    problem = Problem(1, 20, 24, 40, (800, 40, 1), (960, 24, 1), (480, 24, 1), (480, 24, 1), False)
    planned = plan(problem, arithmetic, SMALL, 2)
    (along,) = (along for along in LAYOUTS if kernel_name(SMALL.name, arithmetic, along) == planned.launches[-1].kernel)
    arrays = {"a": x, "b": v, "y": z, "z": z}
    run(planned, compiled(context, SMALL, arithmetic, along), context, arrays, 1.0, 0.0)
    moved = np.append(a.ravel()[1:], 0).reshape(a.shape)
    np.testing.assert_array_equal(to_host(z), moved @ b)


def test_unaligned_matrices_are_packed():
    a, b, y = whole(1, 20, 40), whole(1, 40, 24), whole(1, 20, 24)
    got, names = multiply(SMALL, "float16", a, b, y, is_aligned=False)
    np.testing.assert_array_equal(got, a @ b)
    assert names[:2] == ["matmul_packed_float16"] * 2


@pytest.mark.parametrize("of_a", [1, 3])
@pytest.mark.parametrize("of_b", [1, 3])
def test_batches_share_a_matrix(of_a, of_b):
    a, b, y = whole(of_a, 20, 16), whole(of_b, 16, 18), whole(3, 20, 18)
    np.testing.assert_array_equal(multiply(SMALL, "tf32", a, b, y)[0], a @ b + 0 * y)


def test_numbers_are_rounded_to_tf32():
    a, b = np.full((1, 20, 16), FINE), np.ones((1, 16, 18), "float32")
    assert (multiply(SMALL, "tf32", a, b, np.zeros((1, 20, 18)))[0] == 16).all()
    halves, _ = multiply(SMALL, "float16", a - 1 + 2**-9, b, np.zeros((1, 20, 18)))
    assert (halves == np.float16((a[0, 0, 0] - 1 + 2**-9) * 16)).all()


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_numbers_that_are_not_finite(arithmetic):
    a, b = whole(1, 20, 16), np.ones((1, 16, 18), "float32")
    a[0, 1, 3], a[0, 5, 15], a[0, 7, :2] = np.nan, -np.inf, (np.inf, -np.inf)
    got, _ = multiply(SMALL, arithmetic, a, b, np.zeros((1, 20, 18)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, a @ b)


@_SLOW
@settings(deadline=None, max_examples=examples(20))
@given(st.data())
def test_any_product(data):
    tile = data.draw(st.sampled_from([SMALL, TALL, SHARED]))
    arithmetic = data.draw(st.sampled_from(list(ARITHMETICS)), "arithmetic")
    lengths = st.sampled_from([1, 2, 7, 8, 16, 31, 64, 65, 130])
    m, n, k = (data.draw(lengths, name) for name in "mnk")
    batch, beta = data.draw(st.sampled_from([1, 3]), "batch"), data.draw(st.sampled_from([0.0, 1.0]), "beta")
    a, b = (whole(data.draw(st.sampled_from([1, batch])), *shape) for shape in ((m, k), (k, n)))
    y, signs = whole(batch, m, n), st.sampled_from([1, 1, 2, -1])
    layouts = [
        (data.draw(st.permutations([0, 1, 2]), "axes"), tuple(data.draw(signs, "step") for _ in range(3)))
        for _ in range(3)
    ]
    parts, groups = data.draw(st.sampled_from([1, 2]), "parts"), data.draw(st.sampled_from([1, 3]), "groups")
    got, _ = multiply(tile, arithmetic, a, b, y, 1.0, beta, layouts, parts, groups)
    np.testing.assert_array_equal(got, (a @ b + beta * y).astype(ARITHMETICS[arithmetic]))


def test_tiles_fit_a_gpu():
    most = hopper(checker().profile).most_local_bytes
    assert all(tile.local_bytes <= most for of_arithmetic in DEFAULTS.values() for tile in of_arithmetic)


def test_other_kernels_do_not_run_them_as_a_part():
    kernel = multiply_kernel(SMALL, "tf32", (True, True), ptx())
    assert not bodies_of(TranslationUnit(checker(), (kernel.code,), "a product")).kernels


# Choice of products


def hopper(profile):
    """Change a device's profile to that of an NVIDIA H100; return the new profile."""
    driver, quirks = replace(profile.driver, version="580.95"), replace(profile.quirks, takes_ptx=True)
    memory = {"global_memory_bytes": 80 << 30, "max_allocation_bytes": 20 << 30}
    as_gpu = replace(profile.as_kind("gpu"), compute_units=132, **memory)
    return replace(as_gpu, driver=driver, quirks=quirks, compute_capability=(9, 0))


def problem_of(m, n, k, batch=1):
    return Problem(batch, m, n, k, (m * k, k, 1), (k * n, n, 1), (m * n, n, 1), (m * n, n, 1), False)


@pytest.fixture
def h100(monkeypatch):
    """Return a context of a device that claims to be an H100."""
    context = Context("opencl")
    context.profile = hopper(context.profile)
    return context


def chosen(context, problem, arithmetic):
    """Return the kernel names of the cheapest plan with warpgroups for a product; None if there is no such plan."""
    asked = {"tf32": ("float32", "default"), "tf32x3": ("float32", "high"), "float16": ("float16", "default")}
    choices = warpgroups.choices(context, Request(problem, *asked[arithmetic], is_aligned=True))
    cheapest = min(choices, key=lambda choice: choice.seconds, default=None)
    return None if cheapest is None else [launch.kernel for launch in cheapest.plan.launches]


@pytest.mark.parametrize(
    ("sizes", "arithmetic", "kernels"),
    [
        ((4096, 4096, 4096), "tf32", ["128x256_4_2_tf32_nt"]),
        ((4096, 4096, 4096), "float16", ["128x256_4_2_float16_tn"]),
        ((2048, 2048, 2048, 8), "tf32", ["128x256_4_2_tf32_nt"]),
        ((1024, 1024, 1024), "float16", ["64x128_6_1_float16_tn"]),
        ((256, 256, 1 << 16), "float16", ["64x128_6_1_float16_tn", "matmul_total"]),
        ((4096, 4095, 4096), "float16", ["matmul_packed_float16", "128x256_4_2_float16_tt"]),
        ((4096, 4096, 4096), "tf32x3", None),
        ((128, 256, 512), "tf32", None),
        ((30000, 24, 64), "tf32", None),
        ((4096, 4096, 8), "tf32", None),
        ((1 << 17, (1 << 17) - 1, 1 << 15), "float16", None),  # the packed copy would take 8 GiB of the device's 80 GiB
    ],
)
def test_products_that_gain(h100, sizes, arithmetic, kernels):
    got = chosen(h100, problem_of(*sizes), arithmetic)
    assert got == (kernels and [name if "matmul" in name else f"warpgroups_{name}" for name in kernels])


def test_devices_without_the_instructions_use_others(h100):
    ours = h100.profile
    others = [
        replace(ours, compute_capability=(8, 0)),
        replace(ours, compute_capability=(10, 0)),
        replace(ours, driver=replace(ours.driver, version="570.1")),
        replace(ours, quirks=replace(ours.quirks, takes_ptx=False)),
    ]
    for h100.profile in others:
        assert chosen(h100, problem_of(4096, 4096, 4096), "tf32") is None


@pytest.fixture
def required(monkeypatch):
    """Yield a context that uses warpgroups wherever it can, and a list that receives the products that use them."""
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks, compute_capability=(8, 0)))
    options = ContextOptions(instructions=EMULATED, warpgroup_tiles="all", warpgroup_tile=astuple(SMALL))
    monkeypatch.setattr(context, "options", options)
    # Forget the kernels that were chosen for products, so that they are chosen again with the changed profile.
    monkeypatch.delitem(context.kept, families.__name__, raising=False)
    yield context, note_products(monkeypatch)
    context.kept.pop(families.__name__, None)


def kernels_of_products(computed):
    """Return the names of the kernels that were launched to compute products."""
    return [launch.kernel for product in computed for launch in product.plan.launches]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_product_by_warpgroups(required, dtype, order):
    context, computed = required
    a, b = whole(25, 20).astype(dtype), whole(20, 33).astype(dtype)
    got = product(context, a, b, "default", dtype, order)
    np.testing.assert_array_equal(got, a.astype("float32") @ b.astype("float32"))
    assert kernels_of_products(computed)[-1].startswith("warpgroups_64x64_2_1")


def test_without_memory_for_packed_matrices_others_compute(required, monkeypatch):
    context, computed = required
    scratch = launches.scratch

    def without_room(context, dtype, memory, *copies):
        if copies:
            raise MemoryError("no room")
        return scratch(context, dtype, memory)

    monkeypatch.setattr(launches, "scratch", without_room)
    a, b = whole(25, 20), whole(20, 33)
    for _ in range(2):
        np.testing.assert_array_equal(product(context, a, b, "default"), a @ b)
    assert any(each.plan.copies for each in computed)


def test_higher_precisions_use_others(required):
    context, computed = required
    a, b = np.full((25, 16), FINE), np.ones((16, 26), "float32")
    assert (product(context, a, b, "highest") == 16 * FINE).all()
    assert not any(name.startswith("warpgroups") for name in kernels_of_products(computed))


def test_kernels_that_do_not_build_are_not_taken(required, monkeypatch, caplog):
    context, computed = required
    monkeypatch.setattr(context, "options", replace(context.options, instructions=None))  # Oclgrind takes no PTX
    a, b = whole(25, 20), whole(20, 33)
    np.testing.assert_array_equal(product(context, a, b, "default"), a @ b)
    assert "Other kernels are used for a product by tf32, warpgroups_64x64_2_1" in caplog.text
    assert not any(name.startswith("warpgroups") for name in kernels_of_products(computed))


# TileTimes


@pytest.fixture
def measuring(required, tmp_path, monkeypatch):
    """Return a context of a device whose speed is to be measured."""
    context, _ = required
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    monkeypatch.setattr(tune, "SECONDS", 0.0)
    monkeypatch.setattr(tune, "TURNS", 1)
    monkeypatch.delitem(context.kept, tuning_table.__name__, raising=False)
    yield context
    context.kept.pop(tuning_table.__name__, None)


def own_tiles(context, monkeypatch):
    """Let a context choose among all tiles of an H100, instead of only one tile."""
    monkeypatch.setattr(context, "options", replace(context.options, warpgroup_tile=None))
    monkeypatch.setattr(context, "profile", hopper(context.profile))


def test_times_are_measured_kept_and_used(measuring, monkeypatch):
    # Times with an overhead of one second: of a product, of a product with twice the terms, of the first product again,
    # and of a product with two tiles per unit.
    times = iter([1 + 5e-6, 1 + 8e-6, 1 + 5e-6, 1 + 9e-6])
    monkeypatch.setattr(tune, "_ROUNDS", 2)
    monkeypatch.setattr(tune, "best_seconds", lambda context, compute: compute() or next(times))
    monkeypatch.setattr(
        warpgroups, "DEFAULTS", {"tf32": {SMALL: TileTimes(1.0, 1.0)}, "float16": {SMALL: TileTimes(1.0, 1.0)}}
    )
    found = tune.tune_warpgroups(measuring, "tf32", terms=32)
    np.testing.assert_allclose(found[SMALL], (3e-6, 1e-6), 1e-6)
    own_tiles(measuring, monkeypatch)
    assert warpgroups.times_of(measuring, "tf32") == found
    assert warpgroups.times_of(measuring, "float16") == warpgroups.DEFAULTS["float16"]
    measuring.kept.pop(tuning_table.__name__)
    np.testing.assert_allclose(warpgroups.times_of(measuring, "tf32")[SMALL], found[SMALL])
    tuning_table.record(measuring, {warpgroups.table_class("tf32"): {}})
    assert warpgroups.times_of(measuring, "tf32") == warpgroups.DEFAULTS["tf32"]


def test_what_computes_something_else_has_no_times(measuring, monkeypatch):
    monkeypatch.setattr(tune.TrialProduct, "is_correct", lambda *_: False)
    assert not tune.tune_warpgroups(measuring, "tf32", terms=32)


#: Wrong replacements of the statement that flips the phase whenever the ring of stages starts over.
WRONG = ("", "phase = 1;", "phase ^= 1;", "phase |= side == 0;")


@pytest.mark.thorough_cases(
    *(f"tf32-fill-{wrong}" for wrong in WRONG[:3]),
    *(f"tf32-multiply-{wrong}" for wrong in WRONG[1:]),
    *(f"float16-fill-{wrong}" for wrong in WRONG[1:]),
    *(f"float16-multiply-{wrong}" for wrong in WRONG[:3]),
)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("stage", ["fill", "multiply"])
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_a_kernel_that_awaits_a_wrong_phase_has_no_times(measuring, monkeypatch, arithmetic, stage, wrong):
    original, prefix = warpgroups.functions, "filled_" if stage == "fill" else ""

    def functions(name):
        code = dict(original(name))
        for function in [name for name in code if name.startswith(stage) and name.endswith("_stage")]:
            flip = f"{prefix}phase ^= {prefix}side == 0;"
            assert flip in code[function]
            code[function] = code[function].replace(
                flip, wrong.replace("phase", f"{prefix}phase").replace("side", f"{prefix}side")
            )
        return code

    monkeypatch.setattr(warpgroups, "functions", functions)
    monkeypatch.setattr(tune, "best_seconds", lambda *_: pytest.fail("the gate is open"))
    assert not tune.tune_warpgroups(measuring, arithmetic, terms=32)


def test_times_that_make_no_sense_are_not_kept(measuring, monkeypatch):
    times = iter([2.0, 1.0, 3.0, 3.0])
    monkeypatch.setattr(tune, "_ROUNDS", 2)
    monkeypatch.setattr(tune, "best_seconds", lambda context, compute: compute() or next(times))
    assert not tune.tune_warpgroups(measuring, "tf32", terms=32)


@pytest.mark.parametrize(("once", "is_kept"), [(2.0, True), (2.9, False), (1.1, False)])
def test_times_that_do_not_grow_evenly_are_not_kept(measuring, monkeypatch, once, is_kept):
    # The seconds of four products: with 1024 terms, with 2048 terms, with few terms, and with few terms and more tiles.
    times = iter([once, 3.0, 1.05, 1.2])
    monkeypatch.setattr(tune, "_ROUNDS", 2)
    monkeypatch.setattr(tune, "best_seconds", lambda *_: next(times))
    monkeypatch.setattr(tune, "_correct", lambda *_: lambda trial: None)
    monkeypatch.setattr(warpgroups, "DEFAULTS", {"tf32": {SMALL: TileTimes(1.0, 1.0)}})
    assert (SMALL in tune.tune_warpgroups(measuring, "tf32", terms=1024)) == is_kept


@pytest.mark.parametrize("damaged", [[], [1.0], [0.0, 1.0], ["no", "no"], [1.0, 2.0, 3.0]])
def test_damaged_times_are_those_of_no_tuning(measuring, monkeypatch, damaged):
    own_tiles(measuring, monkeypatch)
    name = next(iter(DEFAULTS["tf32"])).name
    tuning.save(tuning_table.key_of(measuring), {warpgroups.table_class("tf32"): {name: damaged}})
    assert warpgroups.times_of(measuring, "tf32") == DEFAULTS["tf32"]


def test_devices_without_the_instructions_have_no_times():
    assert not tune.tune_warpgroups(checker(), "tf32")


# On a GPU


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_all_lengths_up_to_twice_a_tile_on_a_gpu(arithmetic):
    context = Context("opencl")
    if not context.profile.has_warpgroup_products:
        pytest.skip("the device has no such instructions")
    dtype, rng, kernels = ARITHMETICS[arithmetic], np.random.default_rng(1), {}
    for number in range(300):
        tile = list(DEFAULTS[arithmetic])[number % len(DEFAULTS[arithmetic])]
        # Each stage of the ring is used up to three times.
        most_terms = 3 * tile.stages * warpgroups.terms_of(arithmetic, tile.depth) // 2
        batch, beta = 1 + number % 3, 0.5 * (number % 2)
        m, n, k = (int(rng.integers(1, 2 * length + 2)) for length in (tile.rows, tile.cols, most_terms))
        if number % 4:  # these matrices need not be packed
            m, n, k = (-(-length // 8) * 8 for length in (m, n, k))
        of_b = batch if number % 5 else 1
        a, b, y = (whole(*shape).astype(dtype) for shape in ((batch, m, k), (of_b, k, n), (batch, m, n)))
        orders = [(IN_ROWS, IN_COLUMNS)[side] for side in rng.integers(0, 2, 3)]
        x, v, z = (put(context, value, *order) for value, order in zip((a, b, y), orders))
        of_z = steps(z, batch)
        problem = Problem(batch, m, n, k, steps(x, batch), steps(v, batch), of_z, of_z, beta != 0)
        planned = plan(problem, arithmetic, tile, int(rng.integers(1, 20)), int(rng.integers(1, 4)))
        for kernel in kernels_of(planned, tile, arithmetic, context):
            if kernel not in kernels:
                kernels[kernel] = compile_kernels([kernel], context)
        own = {name: each for compiled in kernels.values() for name, each in compiled.items()}
        run(planned, own, context, {"a": x, "b": v, "y": z, "z": z}, 1.5, beta)
        a, b, y = (value.astype("float32") for value in (a, b, y))
        np.testing.assert_array_equal(to_host(z), (1.5 * (a @ b) + beta * y).astype(dtype))
