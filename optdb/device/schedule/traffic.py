"""Finds tensors to store because kernels move fewer bytes if they load a tensor than if each kernel recomputes it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from optdb.device.iterations import operands_of, ordered
from optdb.device.tensors import (
    Folded,
    Joined,
    Mapped,
    Replaced,
    Replacements,
    ReshapedTensor,
    Tensor,
    ViewTensor,
    resolve,
)
from optdb.runtime.sizes import example_value

#: Maximum number of loads that are counted.
_MOST_LOADS = 12
_ELEMENTWISE = Mapped | ViewTensor | ReshapedTensor | Joined | Replaced


def tensors_to_store(
    roots: Iterable[Tensor], stored: Replacements, levels: dict[Tensor, int], least: int
) -> set[Tensor]:
    """Return the elementwise results that several kernels need and that each kernel would compute from many loads.

    `stored` has the tensors that are in memory, and `levels` the number of folds and operations before each tensor.
    Tensors with fewer than `least` elements do not count: they are in a cache.
    Storing a tensor takes its loads and one store; then each kernel loads it once. A root is stored in any case.
    """
    roots = list(roots)
    order = ordered(roots)
    large = {tensor for tensor in order if example_value(tensor.size) >= least}
    if not large:
        return set()
    loads = _loads([tensor for tensor in order if tensor in large], stored)
    #: Maps each tensor to the kernels that would compute it; kernels that may be fused count as one.
    kernels: dict[Tensor, set[Hashable]] = {tensor: set() for tensor in order}
    for root in roots:
        kernels[root].add(_kernel(root, levels))
    chosen: set[Tensor] = set()
    wanted = set(roots)
    for tensor in reversed(order):
        found = resolve(tensor, stored)
        if not isinstance(found, _ELEMENTWISE):
            for x in operands_of(tensor) if found is tensor else ():
                kernels[x].add(_kernel_of_operand(tensor, x, levels))
            continue
        users, count = kernels[tensor], len(loads.get(tensor, ()))
        if isinstance(tensor, Mapped) and tensor in large:
            moved = count + len(users) + (-1 if tensor in wanted else 1)
            if len(users) * count > moved:
                chosen.add(tensor)
                users = {_kernel(tensor, levels)}
        for x in operands_of(tensor):
            kernels[x] |= users
    return chosen


def _loads(order: Iterable[Tensor], stored: Replacements) -> dict[Tensor, frozenset[Tensor]]:
    """Map each of the given tensors to those in memory from which a kernel computes it."""
    loads: dict[Tensor, frozenset[Tensor]] = {}
    for tensor in order:
        own = frozenset((tensor,))
        if isinstance(resolve(tensor, stored), _ELEMENTWISE):
            below = frozenset[Tensor]().union(*(loads[x] for x in operands_of(tensor) if x in loads))
            own = below if len(below) <= _MOST_LOADS else own
        loads[tensor] = own
    return loads


def _kernel(root: Tensor, levels: dict[Tensor, int]) -> Hashable:
    return "store", levels.get(root, 0), example_value(root.size)


def _kernel_of_operand(tensor: Tensor, operand: Tensor, levels: dict[Tensor, int]) -> Hashable:
    if isinstance(tensor, Folded):
        return "fold", tensor.fold, tensor.axes, levels.get(operand, 0)
    return _kernel(operand, levels)
