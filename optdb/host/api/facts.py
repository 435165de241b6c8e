"""Facts about Theano's rewriters, one row for each rewriter; the facts let the engine skip futile attempts.

The facts hold for Theano 1.0.5, whose development has ended, and come from reading the rewriters. Tests run each
rewriter on nodes that it must decline according to its row. A rewriter without a row is tried on every node of the ops
that it tracks, and again before a graph is considered finished.

- ``tracks``: many rewriters track all ops, or all Elemwise ops, and then test for one scalar op. ``tracks`` is this
  test, which runs once for each op instead of once for each node.
- ``guard``: a cheap necessary condition (see `optdb.host.theano.rewriters.guards`).
- ``lasting``: the results, None or False, after which the rewriter declines the node until an ancestor of the node
  changes. Before the engine considers a graph finished, it visits every node again, because a rewriter that declined a
  node may apply after a change elsewhere. Most of Theano's rewriters only read the node's ancestors, their types, and
  the values of constants. After such a rewriter has declined a node, only a change of an ancestor can make it apply.
  Other rewriters read the users of a variable or the ShapeFeature; a PatternSub with ``get_nodes`` begins at a node's
  users. Results are lasting even if the rewriter reads inferred lengths, as long as it reads them only to build its
  replacements.
- ``before``: a rewriter that the row's rewriter must precede. Because Theano tries rewriters in the order of
  registration, some rewriters move a node before other rewriters find that the node is zero. For example, after a
  product with zero has been moved into the branches of a switch, it may no longer be recognized as zero, and the
  switch's condition is computed unnecessarily.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from theano import scalar
from theano.compile.ops import Shape_i, ViewOp
from theano.gof.opt import PatternSub
from theano.tensor import opt, opt_uncanonicalize
from theano.tensor.elemwise import Elemwise
from theano.tensor.nnet import nnet, sigm

from optdb.host.api.graph import PureOp
from optdb.host.api.replacements import Facts, Refusals
from optdb.host.api.rewriters import LocalOptimizer
from optdb.host.theano.rewriters import guards
from optdb.host.theano.rewriters.guards import INVERTIBLE
from optdb.host.theano.speedups.algebra import canonizers_lasting_refusals, has_unknown_simplifiers
from optdb.host.theano.speedups.passes import has_scan, is_scan_pass

ANY: Refusals = (None, False)


def _of(*classes: type) -> Callable[[PureOp], bool]:
    return lambda op: isinstance(op, classes)


def _elementwise(*classes: type) -> Callable[[PureOp], bool]:
    return lambda op: isinstance(op, Elemwise) and isinstance(op.scalar_op, classes)


def _named(*names: str) -> Iterator[type]:
    return (getattr(scalar.basic, name) for name in names)


#: Values of a scalar op's attribute ``output_types_preference`` with which casting the inputs first does not change the
#: result.
_UPCASTING = (scalar.upgrade_to_float, scalar.upcast_out)


def _upcasts(op: PureOp) -> bool:
    return isinstance(op, Elemwise) and getattr(op.scalar_op, "output_types_preference", None) in _UPCASTING


def _of_canonizer() -> Refusals:
    return () if has_unknown_simplifiers() else canonizers_lasting_refusals()


def _of_distributor() -> Refusals:
    return () if has_unknown_simplifiers() else ANY


#: Maps a module to rewriters of which one fact is known: after declining a node, they decline it until an ancestor
#: changes.
_LASTING = {
    opt: (
        *("local_0_dot_x", "local_abs_lift", "local_abs_merge", "local_adv_sub1_adv_inc_sub1", "local_alloc_unary"),
        *("local_div_switch_sink", "local_div_to_inv", "local_fill_to_alloc", "local_flatten_lift"),
        *("local_incsubtensor_of_zeros", "local_incsubtensor_of_zeros_to_setsubtensor", "local_intdiv_by_one"),
        *("local_inv_canon", "local_join_1", "local_join_empty", "local_join_make_vector"),
        *("local_lift_transpose_through_dot", "local_log1p", "local_log_add", "local_merge_alloc"),
        *("local_mul_specialize", "local_mul_to_sqr", "local_neg_neg", "local_neg_to_mul", "local_one_minus_erf"),
        *("local_one_minus_erf2", "local_opt_alloc", "local_pow_canonicalize", "local_pow_specialize"),
        *("local_pow_specialize_device", "local_reduce_broadcastable", "local_reduce_join", "local_reshape_lift"),
        *("local_scalar_tensor_scalar", "local_set_to_inc_subtensor", "local_setsubtensor_of_constants"),
        *("local_subtensor_inc_subtensor", "local_subtensor_make_vector", "local_subtensor_merge"),
        *("local_subtensor_of_alloc", "local_subtensor_remove_broadcastable_index", "local_sum_prod_all_to_none"),
        *("local_sum_prod_div_dimshuffle", "local_sumsqr2dot", "local_tensor_scalar_tensor", "local_useless_alloc"),
        *("local_useless_dimshuffle_in_reshape", "local_useless_fill", "local_useless_inc_subtensor_alloc"),
        *("local_useless_rebroadcast", "local_useless_reduce", "local_useless_slice", "local_useless_split"),
        "local_useless_tile",
    ),
    opt_uncanonicalize: (
        *("local_alloc_dimshuffle", "local_dimshuffle_alloc", "local_dimshuffle_subtensor", "local_max_to_min"),
        "local_reshape_dimshuffle",
    ),
    nnet: ("local_logsoftmax_grad", "local_softmax_with_bias"),
    sigm: ("local_exp_over_1_plus_exp", "local_inv_1_plus_exp", "logsigm_to_softplus"),
}

FACTS: dict[LocalOptimizer, Facts] = {
    **{getattr(module, name): Facts(lasting=ANY) for module, names in _LASTING.items() for name in names},
    opt.local_add_canonizer: Facts(lasting=_of_canonizer),
    opt.local_add_specialize: Facts(guard=guards.has_zero_operand, lasting=ANY),
    opt.local_cast_cast: Facts(tracks=_elementwise(scalar.Cast), lasting=ANY),
    opt.local_elemwise_alloc: Facts(guard=guards.has_alloc, lasting=ANY),
    opt.local_elemwise_sub_zeros: Facts(tracks=_elementwise(scalar.Sub), lasting=ANY),
    opt.local_expm1: Facts(tracks=_elementwise(scalar.Sub), lasting=ANY),
    opt.local_fill_sink: Facts(guard=guards.has_fill, lasting=ANY),
    opt.local_func_inv: Facts(tracks=_elementwise(*INVERTIBLE), guard=guards.begins_with_invertible, lasting=ANY),
    opt.local_greedy_distributor: Facts(guard=guards.may_distribute, lasting=_of_distributor),
    opt.local_merge_switch_same_cond: Facts(
        tracks=_elementwise(scalar.basic.BinaryScalarOp, scalar.Add, scalar.Mul),
        guard=guards.begins_with_switch,
        lasting=ANY,
    ),
    opt.local_mul_canonizer: Facts(lasting=_of_canonizer),
    opt.local_mul_switch_sink: Facts(guard=guards.has_switch_with_zero, lasting=ANY),
    opt.local_mul_zero: Facts(guard=guards.has_zero_operand, lasting=ANY, before=opt.local_mul_switch_sink),
    opt.local_reshape_to_dimshuffle: Facts(guard=guards.may_have_length_one, lasting=ANY),
    opt.local_sum_prod_mul_by_scalar: Facts(guard=guards.is_no_product_of_some_axes, lasting=ANY),
    opt.local_track_shape_i: Facts(tracks=_of(Shape_i)),
    opt.local_upcast_elemwise_constant_inputs: Facts(
        tracks=_upcasts, guard=guards.has_constant_of_another_dtype, lasting=ANY
    ),
    opt.local_useless_composite: Facts(tracks=_elementwise(scalar.Composite)),
    opt.local_useless_elemwise: Facts(
        tracks=_elementwise(*_named("EQ", "NEQ", "Mul", "Add", "Identity", "AND", "OR", "XOR")),
        guard=guards.may_be_useless,
        lasting=ANY,
    ),
    opt.local_useless_elemwise_comparison: Facts(
        tracks=_elementwise(*_named("LT", "GT", "LE", "GE", "EQ", "Minimum", "Maximum")),
        guard=guards.compares_length,
        lasting=ANY,
    ),
    opt.local_useless_subtensor: Facts(guard=guards.may_take_all),
    opt.local_useless_switch: Facts(tracks=_elementwise(scalar.Switch), guard=guards.is_decided_switch, lasting=ANY),
    opt.local_view_op: Facts(tracks=_of(ViewOp), lasting=ANY),
    opt.local_zero_div: Facts(lasting=ANY, before=opt.local_div_switch_sink),
    nnet.local_logsoftmax: Facts(tracks=_elementwise(scalar.Log), lasting=ANY),
    sigm.local_sigm_times_exp: Facts(guard=guards.has_sigmoid_as_factor, lasting=ANY),
}

_NOTHING = Facts()
_BEFORE = {rewriter: facts.before for rewriter, facts in FACTS.items() if facts.before is not None}
_FIRST_IDS = frozenset(map(id, _BEFORE))


@functools.lru_cache(maxsize=4096)
def facts_of(rewriter: LocalOptimizer) -> Facts:
    """Return the facts about a rewriter: its row in `FACTS`. A PatternSub has a guard derived from its pattern."""
    if type(rewriter) is PatternSub:
        return Facts(guard=guards.of_pattern(rewriter), lasting=FACTS.get(rewriter, _NOTHING).lasting)
    return FACTS.get(rewriter, _NOTHING)


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` in order, but move a rewriter with ``before`` ahead of the rewriter that ``before`` names."""
    ordered = list(rewriters)
    if _FIRST_IDS.isdisjoint(map(id, ordered)):
        return ordered
    for first, second in _BEFORE.items():
        if first in ordered and second in ordered[: ordered.index(first)]:
            ordered.remove(first)
            ordered.insert(ordered.index(second), first)
    return ordered
