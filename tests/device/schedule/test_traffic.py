"""Tensors are stored if that moves fewer bytes than computing them in each kernel that needs them."""

from __future__ import annotations

from optdb.device.expressions import applied, folded
from optdb.device.schedule.traffic import tensors_to_store
from optdb.device.tensors import ArgumentTensor


def chosen(roots, least=1):
    levels: dict = {}
    return tensors_to_store(roots, {}, levels, least)


def arguments(count):
    return [ArgumentTensor((100, 200), "float32") for _ in range(count)]


def sums(x):
    return [folded("Add", x, [0], "float32"), folded("Add", x, [1], "float32"), folded("Maximum", x, [0], "float32")]


def test_a_sum_of_arrays_that_three_kernels_need():
    a, b, c = arguments(3)
    x = applied("Add", "float32", applied("Add", "float32", a, b), c)
    assert chosen(sums(x)) == {x}


def test_kernels_recompute_what_takes_one_load_and_small_tensors():
    (a,) = arguments(1)
    x = applied("Exp", "float32", a)
    assert not chosen(sums(x))
    a, b, c = arguments(3)
    x = applied("Add", "float32", applied("Add", "float32", a, b), c)
    assert not chosen(sums(x), least=1 << 20) and not chosen(sums(x)[:2])


def test_a_result_is_stored_anyway_so_two_kernels_are_enough():
    a, b = arguments(2)
    x = applied("Add", "float32", a, b)
    assert not chosen(sums(x)[:2])
    assert chosen([x, *sums(x)[:1]]) == {x}


def test_operands_of_a_stored_tensor_have_its_kernel_alone():
    a, b, c, d = arguments(4)
    inner = applied("Add", "float32", applied("Mul", "float32", a, b), c)
    x = applied("Mul", "float32", inner, d)
    assert chosen([x, *sums(x)]) == {x}
