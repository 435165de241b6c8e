"""Faster methods of the canonizers of sums and products; they recognize expressions that are already canonical.

Theano tries the canonizers several times on every sum and product. The methods in this module return the same results
as Theano's methods, but detect canonical expressions without array operations, and walk long chains without recursion.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np
from theano.tensor import cast
from theano.tensor.elemwise import DimShuffle
from theano.tensor.opt import (
    Canonizer,
    _fill_chain,
    local_add_canonizer,
    local_mul_canonizer,
    values_eq_approx_remove_inf_nan,
)

from optdb.host.api.config import logger
from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.patching import Patch

_stock_simplify_constants = Canonizer.simplify_constants

_MAIN, _INVERSE, _RECIPROCAL, _RANK, _OTHER = range(5)

#: Theano's simplifiers of products: one for ``x / abs(x)``, and one for the softmax. Without divisors, they do nothing.
_KNOWN_SIMPLIFIERS = ("X_over_absX", "softmax_simplifier")

#: Maps a canonizer's id to the canonizer (kept alive) and a dictionary from op id to the op and its role.
_parts: dict[int, tuple[Canonizer, dict[int, tuple[Any, int]]]] = {}
_settled: set[tuple[int, Constant, str]] = set()


def forget() -> None:
    """Clear the caches, which hold ops and constants."""
    _parts.clear()
    _settled.clear()


def _parts_of(canonizer: Canonizer) -> dict[int, tuple[Any, int]]:
    entry = _parts.get(id(canonizer))
    if entry is None:
        entry = _parts[id(canonizer)] = (canonizer, {})
    return entry[1]


def _part(canonizer: Canonizer, parts: dict[int, tuple[Any, int]], op: Any) -> int:
    """Return the role of `op` for the canonizer: one of its ops, a transparent DimShuffle, or none of these."""
    entry = parts.get(id(op))
    if entry is not None:
        return entry[1]
    ops = [canonizer.main, canonizer.inverse, canonizer.reciprocal]
    part = ops.index(op) if op in ops else _RANK if _completes_rank(op) else _OTHER
    parts[id(op)] = (op, part)
    return part


def _completes_rank(op: Any) -> bool:
    """Return whether `op` is a DimShuffle that only adds broadcastable dimensions on the left."""
    if not isinstance(op, DimShuffle):
        return False
    rank = len(op.input_broadcastable)
    return op.new_order == ("x",) * (len(op.new_order) - rank) + tuple(range(rank))


def get_num_denum(self: Canonizer, input: Variable) -> tuple[list[Variable], list[Variable]]:
    """Return the operands that `input` adds or multiplies, and the operands that it subtracts or divides by."""
    parts = _parts_of(self)
    if input.owner is None or _part(self, parts, input.owner.op) == _OTHER:
        return [input], []
    num: list[Variable] = []
    denum: list[Variable] = []
    # The operands to decompose, in reverse order; each with its own list (`num` or `denum`) and the other list.
    todo = [(input, num, denum)]
    while todo:
        var, same_side, opposite_side = todo.pop()
        owner = var.owner
        if owner is None:
            same_side.append(var)
            continue
        known = parts.get(id(owner.op))
        part = _part(self, parts, owner.op) if known is None else known[1]
        if part == _OTHER:
            same_side.append(var)
            continue
        operands = owner.inputs
        if part == _MAIN:
            todo.extend([(operand, same_side, opposite_side) for operand in reversed(operands)])
        elif part == _INVERSE:
            todo.append((operands[1], opposite_side, same_side))
            todo.append((operands[0], same_side, opposite_side))
        elif part == _RECIPROCAL:
            todo.append((operands[0], opposite_side, same_side))
        else:
            todo.append((operands[0], same_side, opposite_side))
    return num, denum


def knows_simplifiers(canonizer: Canonizer) -> bool:
    """Return whether all simplifiers of `canonizer` are Theano's own; these do nothing if there are no divisors."""
    for reason, simplifier in canonizer.external_simplifiers:
        if reason not in _KNOWN_SIMPLIFIERS or not simplifier.__module__.startswith("theano."):
            return False
    return True


def simplify(
    self: Canonizer, num: list[Variable], denum: list[Variable], out_type: Any
) -> tuple[list[Variable], list[Variable]]:
    """Cancel common entries, combine constants, and run the simplifiers; this may change both lists."""
    if denum:
        num, denum = self.simplify_factors(num, denum)
    num, denum = self.simplify_constants(num, denum, out_type=out_type)
    if denum or not knows_simplifiers(self):
        for _, simplifier in self.external_simplifiers:
            num, denum = simplifier(num, denum)
    return num, denum


def simplify_constants(
    self: Canonizer, orig_num: list[Variable], orig_denum: list[Variable], out_type: Any = None
) -> tuple[list[Variable], list[Variable]]:
    """Combine all constants; do nothing if there is no constant, or if the only constant would stay unchanged."""
    constants = [v for v in orig_num if _is_number(v)]
    leading = constants[0] if len(constants) == 1 and constants[0] is orig_num[0] else None
    settled = isinstance(leading, Constant) and (id(self), leading, out_type.dtype) in _settled
    nothing = not constants and (self.use_reciprocal or orig_num)
    if (settled or nothing) and not any(map(_is_number, orig_denum)):
        return orig_num, orig_denum
    num, denum = _stock_simplify_constants(self, orig_num, orig_denum, out_type)
    if num is orig_num and isinstance(leading, Constant):
        _settled.add((id(self), leading, out_type.dtype))
    return num, denum


def _is_number(v: Any) -> bool:
    """Return whether `v` is a scalar constant or a number."""
    if isinstance(v, Constant):
        return Canonizer.get_constant(v) is not None
    return not isinstance(v, Variable)


def transform(self: Canonizer, node: Apply) -> Any:
    """Return the canonical form of the sum or product that ends with `node`; False if it is already canonical.

    Return None if a later node continues the sum or product.
    """
    parts = _parts_of(self)
    if _part(self, parts, node.op) in (_RANK, _OTHER):
        return False
    out = node.outputs[0]
    if not hasattr(out, "clients"):
        return None
    for client, _ in out.clients:
        if _goes_on(self, parts, client):
            return None  # not False: see `canonizers_lasting_refusals`
    orig_num, orig_denum = self.get_num_denum(out)
    num, denum = self.simplify(list(orig_num), list(orig_denum), out.type)
    if _same(orig_num, num) and _same(orig_denum, denum):
        return False
    new = self.merge_num_denum(num, denum)
    if new.type.dtype != out.type.dtype:
        new = cast(new, out.type.dtype)
    if new.type != out.type:
        new = _fill_chain(new, node.inputs)[0]
    if new.type != out.type:
        logger.warning("CANONIZE FAILED: new, out = %s, %s types %s, %s", new, out, new.type, out.type)
        return False
    new.tag.values_eq_approx = values_eq_approx_remove_inf_nan
    return [new]


def _goes_on(canonizer: Canonizer, parts: dict[int, tuple[Any, int]], client: Apply | str) -> bool:
    """Return whether a client of the result continues the expression; Theano then canonizes the client instead."""
    while not isinstance(client, str):
        op = client.op
        part = _part(canonizer, parts, op)
        if part < _RANK:
            return True
        users = client.outputs[0].clients
        if not isinstance(op, DimShuffle) or len(users) != 1:
            return False
        client = users[0][0]
    return False


def _same(before: list[Any], after: list[Any]) -> bool:
    if len(before) != len(after):
        return False
    return all(map(is_, before, after)) or all(bool(np.all(x == y)) for x, y in zip(before, after, strict=True))


def canonizers_lasting_refusals() -> tuple[bool | None, ...]:
    """Return the results after which canonizers decline a node until an ancestor changes; () if there are none."""
    return (False,) if Canonizer.transform is transform else ()


def has_unknown_simplifiers() -> bool:
    """Return whether sums or products have simplifiers other than Theano's."""
    return not (knows_simplifiers(local_add_canonizer) and knows_simplifiers(local_mul_canonizer))


PATCHES = [
    Patch(Canonizer, "get_num_denum", get_num_denum, "shared parts of a product are traversed once"),
    Patch(Canonizer, "simplify", simplify, "nodes that cannot change are skipped"),
    Patch(Canonizer, "simplify_constants", simplify_constants, "constants are folded without a graph"),
    Patch(Canonizer, "transform", transform, "a product that cannot change is not decomposed"),
]
