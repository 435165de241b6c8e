"""Products of packed matrices: all indices, with emulated instructions, and the conditions for their use."""

from __future__ import annotations

import functools
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.gemm import families, launches, tensor_cores, tune, tuning_table, warpgroups
from optdb.codegen.gemm.families import Request
from optdb.codegen.gemm.launches import run
from optdb.codegen.gemm.problem import Problem, steps
from optdb.codegen.gemm.warpgroups import BLOCK, PackedBlock, pack_kernel, packed_kernel, plan
from optdb.codegen.kernels import compile_kernels
from optdb.codegen.kernels.bodies import bodies_of
from optdb.codegen.kernels.programs import TranslationUnit
from optdb.runtime import binaries, tuning
from optdb.runtime.arrays import to_host
from optdb.runtime.context import Context
from optdb.runtime.context_options import ContextOptions
from tests.codegen.computed import note_products
from tests.codegen.test_matmul import put
from tests.codegen.test_tensor_cores import FINE, ORDERS, checker, product
from tests.effort import examples
from tests.opencl_device import runtime_context

_SLOW = pytest.mark.slow
#: Small enough for Oclgrind, the memory checker, to run several of them.
SMALL = PackedBlock(64, 16, 8, 3, 1)
#: Two groups of 128 items, each of which multiplies two times 64 rows.
TALL = PackedBlock(256, 24, 16, 2, 2)
ARITHMETICS = {"tf32": "float32", "float16": "float16"}
IN_ROWS, IN_COLUMNS = ORDERS.values()


@functools.cache
def compiled(context, block, arithmetic):
    return compile_kernels([pack_kernel(arithmetic), packed_kernel(block, arithmetic, "emulated")], context)


def whole(*shape):
    """Return integers that TF32 and float16 represent exactly, as well as sums of their products."""
    return np.random.default_rng(sum(shape)).integers(-6, 7, shape).astype("float32")


def multiply(block, arithmetic, a, b, y, alpha=1.0, beta=0.0, layouts=(IN_ROWS,) * 3, context=None):
    """Return the product of batches of matrices with given orders of axes in memory."""
    context = context or checker()
    a, b, y = (value.astype(ARITHMETICS[arithmetic]) for value in (a, b, y))
    x, v, z = (put(context, value, *layout) for value, layout in zip((a, b, y), layouts))
    of_z, batch = steps(z, y.shape[0]), y.shape[0]
    problem = Problem(batch, *y.shape[1:], a.shape[2], steps(x, batch), steps(v, batch), of_z, of_z, beta != 0)
    kernels = compiled(context, block, arithmetic)
    run(plan(problem, arithmetic, block), kernels, context, {"a": x, "b": v, "y": z, "z": z}, alpha, beta, "float32")
    return to_host(z)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 16, 8), (65, 17, 41), (3, 50, 24)])
def test_products(arithmetic, m, n, k):
    a, b, y = whole(1, m, k), whole(1, k, n), whole(1, m, n)
    np.testing.assert_array_equal(multiply(SMALL, arithmetic, a, b, y), a @ b)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("left", [IN_ROWS, IN_COLUMNS])
@pytest.mark.parametrize("right", [IN_ROWS, IN_COLUMNS])
def test_each_order_of_the_matrices(arithmetic, left, right):
    a, b, y = whole(1, 20, 32), whole(1, 32, 18), whole(1, 20, 18)
    got = multiply(SMALL, arithmetic, a, b, y, -0.5, 2.0, (left, right, IN_ROWS))
    np.testing.assert_array_equal(got, -0.5 * (a @ b) + 2 * y)


def test_gaps_and_other_directions():
    a, b, y = whole(2, 20, 19), whole(2, 19, 17), whole(2, 20, 17)
    layouts = (((1, 0, 2), (1, 1, 2)), ((0, 2, 1), (1, -1, 1)), ((0, 1, 2), (1, -2, 3)))
    np.testing.assert_array_equal(multiply(SMALL, "tf32", a, b, y, 1.0, 1.0, layouts), a @ b + y)


@pytest.mark.parametrize("of_a", [1, 3])
@pytest.mark.parametrize("of_b", [1, 3])
def test_batches_share_a_matrix(of_a, of_b):
    a, b, y = whole(of_a, 20, 16), whole(of_b, 16, 18), whole(3, 20, 18)
    np.testing.assert_array_equal(multiply(SMALL, "tf32", a, b, y), a @ b + 0 * y)


def test_numbers_are_rounded_to_tf32():
    a, b = np.full((1, 20, 16), FINE), np.ones((1, 16, 18), "float32")
    assert (multiply(SMALL, "tf32", a, b, np.zeros((1, 20, 18))) == 16).all()
    halves = multiply(SMALL, "float16", a - 1 + 2**-9, b, np.zeros((1, 20, 18)))
    assert (halves == np.float16((a[0, 0, 0] - 1 + 2**-9) * 16)).all()


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_numbers_that_are_not_finite(arithmetic):
    a, b = whole(1, 20, 16), np.ones((1, 16, 18), "float32")
    a[0, 1, 3], a[0, 5, 15], a[0, 7, :2] = np.nan, -np.inf, (np.inf, -np.inf)
    got = multiply(SMALL, arithmetic, a, b, np.zeros((1, 20, 18)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, a @ b)


@_SLOW
@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_any_product(data):
    block = data.draw(st.sampled_from([SMALL, TALL, PackedBlock(64, 32, 16, 3, 1), PackedBlock(128, 8, 8, 4, 2)]))
    arithmetic = data.draw(st.sampled_from(list(ARITHMETICS)), "arithmetic")
    lengths = st.sampled_from([1, 2, 7, 8, 16, 17, 31, 64, 65, 130, 257])
    m, n, k = (data.draw(lengths, name) for name in "mnk")
    batch, beta = data.draw(st.sampled_from([1, 3]), "batch"), data.draw(st.sampled_from([0.0, 1.0]), "beta")
    a, b = (whole(data.draw(st.sampled_from([1, batch])), *shape) for shape in ((m, k), (k, n)))
    y, signs = whole(batch, m, n), st.sampled_from([1, 1, 2, -1])
    layouts = [
        (data.draw(st.permutations([0, 1, 2]), "axes"), tuple(data.draw(signs, "step") for _ in range(3)))
        for _ in range(3)
    ]
    context = runtime_context()
    got = multiply(block, arithmetic, a, b, y, 1.0, beta, layouts, context)
    np.testing.assert_array_equal(got, (a @ b + beta * y).astype(ARITHMETICS[arithmetic]))


def test_the_block_fits_a_gpu():
    assert BLOCK.local_bytes <= hopper(checker().profile).most_local_bytes


def test_other_kernels_do_not_run_them_as_a_part():
    kernel = packed_kernel(SMALL, "tf32", "ptx")
    assert not bodies_of(TranslationUnit(checker(), (kernel.code,), "a product")).kernels


# Choice of products


def hopper(profile):
    """Return a device's profile, changed to that of an NVIDIA H100."""
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


def packs(context, problem, arithmetic):
    """Tell whether the cheapest choice for a product packs its matrices."""
    asked = {"tf32": ("float32", "default"), "tf32x3": ("float32", "high"), "float16": ("float16", "default")}
    choices = tensor_cores.choices(context, Request(problem, *asked[arithmetic]))
    cheapest = min(choices, key=lambda choice: choice.seconds, default=None)
    return cheapest is not None and bool(cheapest.plan.copies)


@pytest.mark.parametrize(
    ("sizes", "arithmetic", "is_packed"),
    [
        ((4096, 4096, 4096), "tf32", True),
        ((4096, 4096, 4096), "float16", True),
        ((2048, 2048, 2048, 8), "tf32", True),
        ((3200, 10000, 512), "tf32", True),
        ((4096, 4096, 4096), "tf32x3", False),
        ((1024, 1024, 1024), "tf32", False),
        ((128, 256, 1 << 20), "tf32", False),
        ((30000, 256, 64), "tf32", False),
        ((1 << 17, 1 << 17, 1 << 14), "tf32", False),  # both copies would take 17 GB
    ],
)
def test_products_that_gain(h100, sizes, arithmetic, is_packed):
    assert packs(h100, problem_of(*sizes), arithmetic) == is_packed


def test_devices_without_the_instructions_pack_nothing(h100):
    ours = h100.profile
    others = [
        replace(ours, compute_capability=(8, 0)),
        replace(ours, compute_capability=(10, 0)),
        replace(ours, driver=replace(ours.driver, version="570.1")),
        replace(ours, quirks=replace(ours.quirks, takes_ptx=False)),
    ]
    for h100.profile in others:
        assert not packs(h100, problem_of(4096, 4096, 4096), "tf32")


@pytest.fixture
def packing(monkeypatch):
    """Return a context that packs the matrices of all possible products, and a list of its launches."""
    context = checker()
    quirks = replace(context.profile.quirks, takes_ptx=True)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks, compute_capability=(8, 0)))
    options = ContextOptions(instructions="emulated", packed_tiles="all", packed_tile=astuple(SMALL))
    monkeypatch.setattr(context, "options", options)
    # Forget the kernels of products, so that they are chosen by the profile.
    monkeypatch.delitem(context.kept, families.__name__, raising=False)
    yield context, note_products(monkeypatch)
    context.kept.pop(families.__name__, None)


def kernels_of(computed):
    """Return the names of the kernels that products launched."""
    return [launch.kernel for product in computed for launch in product.plan.launches]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_product_by_packed_matrices(packing, dtype, order):
    context, computed = packing
    a, b = whole(25, 20).astype(dtype), whole(20, 33).astype(dtype)
    got = product(context, a, b, "default", dtype, order)
    np.testing.assert_array_equal(got, a.astype("float32") @ b.astype("float32"))
    assert [name.partition("_")[0] for name in kernels_of(computed)] == ["matmul", "matmul", "packed"]


def test_without_memory_for_packed_matrices_others_compute(packing, monkeypatch):
    context, computed = packing
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


def test_higher_precisions_pack_nothing(packing):
    context, computed = packing
    a, b = np.full((25, 16), FINE), np.ones((16, 26), "float32")
    assert (product(context, a, b, "highest") == 16 * FINE).all()
    assert not any(name.startswith("packed") for name in kernels_of(computed))


def test_kernels_that_do_not_build_are_not_taken(packing, monkeypatch, caplog):
    context, computed = packing
    monkeypatch.setattr(context, "options", replace(context.options, instructions="ptx"))  # Oclgrind takes no PTX
    a, b = whole(25, 20), whole(20, 33)
    np.testing.assert_array_equal(product(context, a, b, "default"), a @ b)
    assert "Other kernels are used for a product of packed matrices" in caplog.text
    assert not any(name.startswith("packed") for name in kernels_of(computed))


# Rates


@pytest.fixture
def measuring(packing, tmp_path, monkeypatch):
    """Return a context of a device whose speed is to be measured."""
    context, _ = packing
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    monkeypatch.setattr(tune, "SECONDS", 0.0)
    monkeypatch.delitem(context.kept, tuning_table.__name__, raising=False)
    yield context
    context.kept.pop(tuning_table.__name__, None)


def test_a_speed_is_measured_kept_and_used(measuring, monkeypatch):
    # Seconds of packing alone and of the whole product, for a short product and a long one; a launch takes 1 second.
    times = iter([1 + 2e-6, 1 + 5e-6, 1 + 4e-6, 1 + 10e-6])
    monkeypatch.setattr(tune, "best_seconds", lambda context, compute: compute() or next(times))
    speed = tune.tune_packed(measuring, "tf32", terms=16)
    operations, nbytes = 2 * SMALL.rows * SMALL.cols * 16, 2 * 4 * (SMALL.rows + SMALL.cols) * 16
    np.testing.assert_allclose(speed, (1e-12 * operations / 3e-6, 1e-9 * nbytes / 2e-6), 1e-6)
    assert warpgroups.speed_of(measuring, "tf32") == speed
    assert warpgroups.speed_of(measuring, "float16") == warpgroups.DEFAULTS["float16"]
    measuring.kept.pop(tuning_table.__name__)
    np.testing.assert_allclose(warpgroups.speed_of(measuring, "tf32"), speed)
    tuning_table.record(measuring, {warpgroups.packed_class("tf32"): {}})
    assert warpgroups.speed_of(measuring, "tf32") == warpgroups.DEFAULTS["tf32"]


def test_what_computes_something_else_has_no_speed(measuring, monkeypatch):
    monkeypatch.setattr(tune.TrialProduct, "is_correct", lambda *_: False)
    assert tune.tune_packed(measuring, "tf32", terms=16) is None


#: As many stages as on an H100: the first pass around the ring has more terms than three stages.
RING = PackedBlock(64, 16, 8, 4, 1)
FLIP = "phase ^= side == 0;"


@pytest.mark.thorough_cases("float16-phase = 1;", "float16-phase |= side == 0;", "tf32-", "tf32-phase ^= 1;")
@pytest.mark.parametrize("wrong", ["", "phase = 1;", "phase ^= 1;", "phase |= side == 0;"])
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_a_kernel_that_awaits_a_wrong_phase_has_no_speed(measuring, monkeypatch, arithmetic, wrong):
    original = warpgroups.functions

    def functions(name):
        code = original(name)
        if "MATMUL" not in code:
            return code
        assert FLIP in code["MATMUL"]
        return {**code, "MATMUL": code["MATMUL"].replace(FLIP, wrong)}

    monkeypatch.setattr(measuring, "options", replace(measuring.options, packed_tile=astuple(RING)))
    monkeypatch.setattr(warpgroups, "functions", functions)
    monkeypatch.setattr(tune, "best_seconds", lambda *_: pytest.fail("the gate is open"))
    assert tune.tune_packed(measuring, arithmetic, terms=16) is None


def test_times_that_make_no_sense_are_not_kept(measuring, monkeypatch):
    times = iter([1.0, 2.0, 1.0, 3.0])
    monkeypatch.setattr(tune, "best_seconds", lambda context, compute: compute() or next(times))
    assert tune.tune_packed(measuring, "tf32", terms=16) is None
    assert warpgroups.speed_of(measuring, "tf32") == warpgroups.DEFAULTS["tf32"]


@pytest.mark.parametrize("damaged", [[], [1.0], [0.0, 1.0], ["no", "no"], [1.0, 2.0, 3.0]])
def test_damaged_speeds_are_those_of_no_tuning(measuring, damaged):
    tuning.save(tuning_table.key_of(measuring), {warpgroups.packed_class("tf32"): {SMALL.name: damaged}})
    assert warpgroups.speed_of(measuring, "tf32") == warpgroups.DEFAULTS["tf32"]


def test_devices_without_the_instructions_have_no_speed():
    assert tune.tune_packed(checker(), "tf32") is None


# On a GPU


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_all_lengths_up_to_twice_a_tile_on_a_gpu(arithmetic):
    context = Context("opencl")
    if not context.profile.has_warpgroup_products:
        pytest.skip("the device has no such instructions")
    block, rng = BLOCK, np.random.default_rng(1)
    kernels = compile_kernels([pack_kernel(arithmetic), packed_kernel(block, arithmetic, "ptx")], context)
    dtype = ARITHMETICS[arithmetic]
    # Each stage is used up to three times.
    most_terms = 3 * block.stages * warpgroups.terms_of(arithmetic, block.depth) // 2
    for number in range(200):
        batch, beta = 1 + number % 3, 0.5 * (number % 2)
        m, n, k = (int(rng.integers(1, 2 * length + 2)) for length in (block.rows, block.cols, most_terms))
        of_b = batch if number % 5 else 1
        a, b, y = (whole(*shape).astype(dtype) for shape in ((batch, m, k), (of_b, k, n), (batch, m, n)))
        orders = [(IN_ROWS, IN_COLUMNS)[side] for side in rng.integers(0, 2, 3)]
        x, v, z = (put(context, value, *order) for value, order in zip((a, b, y), orders))
        of_z = steps(z, batch)
        problem = Problem(batch, m, n, k, steps(x, batch), steps(v, batch), of_z, of_z, beta != 0)
        run(plan(problem, arithmetic, block), kernels, context, {"a": x, "b": v, "y": z, "z": z}, 1.5, beta, "float32")
        a, b, y = (value.astype("float32") for value in (a, b, y))
        np.testing.assert_array_equal(to_host(z), (1.5 * (a @ b) + beta * y).astype(dtype))
