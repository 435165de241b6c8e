"""Tuning finds block shapes with correct results and stores them; later products use them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optdb.codegen.gemm import blocks, tune, tuning_table
from optdb.codegen.gemm.blocks import GroupBlock, ItemBlock, table_class
from optdb.codegen.gemm.problem import CLASSES, classify
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.kernels import BUFFER, Kernel, compile_kernels
from optdb.runtime import binaries, clblast, tuning
from optdb.runtime.arrays import DeviceArray, empty, from_host, to_host
from optdb.runtime.context import Context

BEST, WORST, WRONG = ItemBlock(4, 16, 4), ItemBlock(2, 4, 2), ItemBlock(8, 16, 8)
ON_GPU = GroupBlock(32, 32, 8, 2, 2), GroupBlock(16, 16, 8, 2, 2)


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A context of an untuned processor, for which tuning stores its results in a test folder."""
    monkeypatch.setattr(binaries, "_current", binaries.Binaries(tmp_path))
    context = Context("opencl")
    context.profile = context.profile.as_kind("cpu")
    return context


@pytest.fixture
def quick(monkeypatch):
    """Make tuning quick: few candidates, little time, and small products, however many units the device has."""
    sizes = {"square": (300, 300, 8), "small": (100, 100, 8), "tiny": (30, 30, 8)}
    sizes |= {"flat": (5, 60, 8), "narrow": (60, 5, 8)}
    monkeypatch.setattr(tune, "typical", lambda name, units: [sizes[name]])
    monkeypatch.setattr(tune, "SECONDS", 0.002)

    def candidates(context, dtype):
        return [BEST, WORST] if context.profile.device_kind == "cpu" else list(ON_GPU)

    monkeypatch.setattr(blocks, "candidates", candidates)
    monkeypatch.setattr(blocks, "defaults", lambda *args: dict.fromkeys(CLASSES, candidates(*args)[-1]))


def multiply(context, m=33, k=20, n=40):
    a, b = (np.random.default_rng(0).uniform(-1, 1, shape).astype("float32") for shape in ((m, k), (k, n)))
    z = empty(context, (m, n), "float32")
    kernels = compile_kernels(matmul_kernels("float32", context), context)
    matmul(kernels, context, from_host(context, a), from_host(context, b), z)
    np.testing.assert_allclose(to_host(z), np.dot(a, b), atol=1e-5)
    return set(kernels)


@pytest.mark.slow
def test_the_best_are_kept_and_used(context, quick, monkeypatch):
    seconds = {BEST.name: 1.0, WORST.name: 2.0}
    monkeypatch.setattr(tune, "times", lambda choices, products: {name: seconds[name] for name in choices})
    results = tune.tune(context, "float32", library=False)
    assert [result.name for result in results] == list(CLASSES)
    assert all((result.block, result.default) == (BEST, WORST) for result in results)
    assert all(result.speed == 2 * result.default_speed > 0 for result in results)
    assert blocks.chosen(context, "float32") == dict.fromkeys(CLASSES, BEST)
    assert BEST.name in multiply(context)
    later = Context("opencl")
    later.profile = later.profile.as_kind("cpu")
    assert blocks.chosen(later, "float32") == dict.fromkeys(CLASSES, BEST)
    assert blocks.chosen(later, "float64") == dict.fromkeys(CLASSES, WORST)


def test_the_default_stays_unless_another_is_clearly_faster(context, quick, monkeypatch):
    seconds = {BEST.name: 1.0, WORST.name: 1.01}
    monkeypatch.setattr(tune, "times", lambda choices, products: {name: seconds[name] for name in choices})
    assert all(result.block == WORST for result in tune.tune(context, "float32", library=False))


def test_candidates_that_compute_something_else_are_left_out(context, quick, monkeypatch):
    monkeypatch.setattr(blocks, "candidates", lambda context, dtype: [BEST, WRONG])
    kernels = tune.kernels_of

    def with_a_mistake(wanted, dtype, context):
        made = kernels(wanted, dtype, context)
        if WRONG not in wanted:
            return made
        return [
            Kernel(kernel.code.replace("alpha * acc", "2 * alpha * acc"), kernel.name, kernel.params) for kernel in made
        ]

    monkeypatch.setattr(tune, "kernels_of", with_a_mistake)
    assert set(tune.correct_choices(context, "float32", {BEST, WRONG}, library=False)) == {BEST.name}


def test_candidates_that_do_not_build_are_left_out(context, quick, monkeypatch, caplog):
    broken = Kernel("KERNEL void matmul_8x16(GLOBAL_MEM float *a) { a[0] = never_declared; }", "matmul_8x16", [BUFFER])
    of_block = tune.kernels_of
    monkeypatch.setattr(tune, "kernels_of", lambda found, *args: [broken] if WRONG in found else of_block(found, *args))
    assert list(tune.correct_choices(context, "float32", {BEST, WRONG}, library=False)) == [BEST.name]
    assert "the candidate matmul_8x16 is skipped, because a kernel does not build" in caplog.text
    with pytest.raises(RuntimeError, match="no candidate multiplies matrices of float32"):
        tune.correct_choices(context, "float32", {WRONG}, library=False)


@pytest.mark.parametrize("units", [1, 2, 64, 132, 500])
def test_typical_products_are_of_their_class(units):
    for name in CLASSES:
        for m, n, _ in tune.typical(name, units):
            assert classify(1, m, n, units) == name, (m, n)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"matmul_9x9": [1.0], "CLBlast": [1e-9]},
        {"matmul_8x16": []},
        {"matmul_8x16": [0.0]},
        {"matmul_8x16": ["1"], "CLBlast": None},
        3,
    ],
)
def test_what_the_device_cannot_use_is_left_out(context, found):
    tuning.save(tuning_table.key_of(context), {table_class("float32", name): found for name in CLASSES})
    assert blocks.chosen(context, "float32") == blocks.defaults(context, "float32")
    assert not blocks.tuned(context, "float32").library


def test_tiles_too_large_for_a_device_are_left_out(context):
    context.profile = replace(context.profile.as_kind("gpu"), local_memory_bytes=16384)
    large = GroupBlock(128, 128, 16, 8, 8)
    assert large.local_bytes("float32") > 16384
    tuning_table.record(context, {table_class("float32", name): {large.name: [1e-9]} for name in CLASSES})
    assert blocks.chosen(context, "float32") == blocks.defaults(context, "float32")


def test_dtypes_and_kinds_of_devices_share_a_table_but_no_rows(context):
    tuning_table.record(context, {table_class("float32", "tiny"): {"one": [1.0]}, "other": {"two": [2.0, 3.0]}})
    tuning_table.record(context, {table_class("float64", "tiny"): {"three": [1.0]}, "other": {}})
    later = Context("opencl")
    later.profile = context.profile
    for each in (context, later):
        assert tuning_table.measured(each, table_class("float32", "tiny")) == {"one": [1.0]}
        assert tuning_table.measured(each, table_class("float64", "tiny")) == {"three": [1.0]}
        assert tuning_table.measured(each, "other") == {}
    later.profile = later.profile.as_kind("gpu")
    assert tuning_table.measured(later, table_class("float32", "tiny")) == {}


# CLBlast

needs_clblast = pytest.mark.skipif(clblast.find() is None, reason="CLBlast is not installed")


def turned(context, value):
    there = from_host(context, np.ascontiguousarray(value.T))
    strides = there.strides[::-1]
    return DeviceArray(context.queue, value.shape, value.dtype, data=there.base_data, strides=strides)


@needs_clblast
@pytest.mark.slow  # the first product of CLBlast takes many seconds
@pytest.mark.parametrize("shape", [(5, 7, 9), (33, 1, 4), (1, 5, 6)])
@pytest.mark.parametrize("turn", [(), (0,), (1,), (0, 1)])
def test_clblast_computes_what_numpy_does(context, shape, turn):
    m, k, n = shape
    a, b, z = (np.random.default_rng(0).uniform(-1, 1, s).astype("float32") for s in ((m, k), (k, n), (m, n)))
    x, y = (turned(context, v) if i in turn else from_host(context, v) for i, v in enumerate((a, b)))
    out = from_host(context, z)
    assert clblast.multiply(context.queue, x, y, out, 2.0, 0.5)
    np.testing.assert_allclose(to_host(out), 2 * np.dot(a, b) + 0.5 * z, atol=1e-5)


@needs_clblast
def test_clblast_is_used_where_it_was_found_faster_and_can(context, quick, monkeypatch):
    seconds = {blocks.LIBRARY: 0.5}
    monkeypatch.setattr(tune, "times", lambda choices, products: {name: seconds.get(name, 1.0) for name in choices})
    tune.tune(context, "float32")
    assert blocks.tuned(context, "float32").library == set(CLASSES)
    asked = []
    monkeypatch.setattr(clblast, "multiply", lambda *args: asked.append(args) or False)
    multiply(context)  # products that CLBlast rejects are still computed
    assert len(asked) == 1


def test_clblast_is_not_asked_for_what_it_cannot(context):
    a, z = empty(context, (4, 6), "float32"), empty(context, (4, 4), "float32")
    gaps = DeviceArray(context.queue, (6, 2), "float32", data=a.base_data, strides=(8, 12))
    assert not clblast.multiply(context.queue, a, gaps, empty(context, (4, 2), "float32"))
    assert not clblast.multiply(
        context.queue, a, turned(context, np.zeros((6, 4), "float32")), turned(context, to_host(z))
    )
    halves = empty(context, (4, 4), "float16")
    assert not clblast.multiply(context.queue, halves, halves, halves)
