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

#: Minimum number of elements of a tensor whose loads are counted.
_LEAST_ELEMENTS = 1 << 14
#: Maximum number of loads that are counted.
_MOST_LOADS = 12
_ELEMENTWISE = Mapped | ViewTensor | ReshapedTensor | Joined | Replaced


def tensors_to_store(roots: Iterable[Tensor], stored: Replacements, levels: dict[Tensor, int]) -> set[Tensor]:
    """Return the elementwise results that several kernels need and that each kernel would compute from many loads.

    `stored` has the tensors that are in memory, and `levels` the number of folds and operations before each tensor.
    Storing a tensor takes its loads and one store; then each kernel loads it once.
    """
    roots = list(roots)
    order = ordered(roots)
    if not any(map(_is_large, order)):
        return set()
    kernels = _kernels_of(roots, stored, levels)
    chosen: set[Tensor] = set()
    loads: dict[Tensor, frozenset[Tensor]] = {}
    for tensor in order:
        if not _is_large(tensor):
            continue
        found = resolve(tensor, stored)
        if not isinstance(found, _ELEMENTWISE):
            loads[tensor] = frozenset((found,))
            continue
        own = frozenset().union(*(loads[x] for x in operands_of(found) if x in loads))
        count, users = len(own), len(kernels.get(tensor, ()))
        if isinstance(tensor, Mapped) and users * count > count + 1 + users:
            chosen.add(tensor)
            own = frozenset((tensor,))
        loads[tensor] = own if len(own) <= _MOST_LOADS else frozenset((tensor,))
    return chosen


def _kernels_of(
    roots: Iterable[Tensor], stored: Replacements, levels: dict[Tensor, int]
) -> dict[Tensor, set[Hashable]]:
    """Map each large elementwise result to the kernels that would compute it; fused kernels count as one."""
    found: dict[Tensor, set[Hashable]] = {}
    stack: list[tuple[Tensor, Hashable]] = [(root, _kernel(root, levels)) for root in roots]
    seen: set[tuple[Tensor, Hashable]] = set()
    while stack:
        tensor, kernel = stack.pop()
        if (tensor, kernel) in seen:
            continue
        seen.add((tensor, kernel))
        if not isinstance(resolve(tensor, stored), _ELEMENTWISE):
            if resolve(tensor, stored) is not tensor:
                continue
            stack += [(x, _kernel_of_operand(tensor, x, levels)) for x in operands_of(tensor)]
            continue
        if isinstance(tensor, Mapped) and _is_large(tensor):
            found.setdefault(tensor, set()).add(kernel)
        stack += [(x, kernel) for x in operands_of(tensor)]
    return found


def _kernel(root: Tensor, levels: dict[Tensor, int]) -> Hashable:
    return "store", levels.get(root, 0), example_value(root.size)


def _kernel_of_operand(tensor: Tensor, operand: Tensor, levels: dict[Tensor, int]) -> Hashable:
    if isinstance(tensor, Folded):
        return "fold", tensor.fold, tensor.axes, levels.get(operand, 0)
    return _kernel(operand, levels)


def _is_large(tensor: Tensor) -> bool:
    return bool(example_value(tensor.size) >= _LEAST_ELEMENTS)
