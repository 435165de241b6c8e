"""Access to four neighbouring elements at once, which is faster than one element per work item on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.codegen.elementwise import QUAD, QUADS, Operand

#: Maximum number of scalar operations per point for which an item computes four points.
MOST_SCALARS = 32


def is_aligned(const: int, factors: Sequence[int]) -> bool:
    """Return whether an index with these factors selects four aligned neighbours for each four points of a row."""
    *outer, last = factors
    return last == 1 and not any(number % QUAD for number in (const, *outer))


def read_quad(operand: Operand, pointer: str, is_last: bool) -> str:
    """Return statements that read an operand's elements; with `is_last`, only `count` of them may exist."""
    whole = f"{operand.name}_quad.v = *(const GLOBAL_MEM {QUADS[operand.size]} *)({pointer});"
    if not is_last:
        return f"{operand.declare_quad()}\n{whole}"
    each = f"for (int l = 0; l < count; ++l) {operand.name}_quad.s[l] = ({pointer})[l];"
    return f"{operand.declare_quad()}\nif (count == {QUAD}) {whole}\nelse {each}"


def write_quad(operand: Operand, pointer: str, is_last: bool) -> str:
    """Return statements that write an operand's elements; with `is_last`, only `count` of them may exist."""
    whole = f"*(GLOBAL_MEM {QUADS[operand.size]} *)({pointer}) = {operand.name}_quad.v;"
    if not is_last:
        return whole
    each = f"for (int l = 0; l < count; ++l) ({pointer})[l] = {operand.name}_quad.s[l];"
    return f"if (count == {QUAD}) {whole}\nelse {each}"
