"""Which refusals of Theano's rewriters last until an ancestor of the node changes.

The engine looks at every node again before it takes a graph for finished: a rewriter that has declined a node may
apply since something else has changed.  Most of Theano's look at nothing but the node, the variables and ops that it is
computed from, their types, and the values of constants: what compilers call its backward slice.  They decline again
until one of these changes.  Others ask who uses a variable, or what the ShapeFeature knows by now, and are not named
here; a rewriter of somebody else's is not known, and is not either.

What is said here of each was found by reading it in Theano 1.0.5, which does not change any more.  It is about refusals
alone: a rewriter that builds its replacement from inferred lengths may well have declined for what it saw before.  A
PatternSub with ``get_nodes`` begins at a node's users; those without look upwards.  A test asks each rewriter that the
engine leaves out, all the same.
"""

from __future__ import annotations

from theano.tensor import opt, opt_uncanonicalize
from theano.tensor.nnet import nnet, sigm

from optdb.host.algebra import canonizers_lasting_refusals, has_unknown_simplifiers
from optdb.host.rewriters import LocalOptimizer

_OF_TENSORS = (
    "local_0_dot_x",
    "local_abs_lift",
    "local_abs_merge",
    "local_add_specialize",
    "local_adv_sub1_adv_inc_sub1",
    "local_alloc_unary",
    "local_cast_cast",
    "local_div_switch_sink",
    "local_div_to_inv",
    "local_elemwise_alloc",
    "local_elemwise_sub_zeros",
    "local_expm1",
    "local_fill_sink",
    "local_fill_to_alloc",
    "local_flatten_lift",
    "local_func_inv",
    "local_incsubtensor_of_zeros",
    "local_incsubtensor_of_zeros_to_setsubtensor",
    "local_intdiv_by_one",
    "local_inv_canon",
    "local_join_1",
    "local_join_empty",
    "local_join_make_vector",
    "local_lift_transpose_through_dot",
    "local_log1p",
    "local_log_add",
    "local_merge_alloc",
    "local_merge_switch_same_cond",
    "local_mul_specialize",
    "local_mul_switch_sink",
    "local_mul_to_sqr",
    "local_mul_zero",
    "local_neg_neg",
    "local_neg_to_mul",
    "local_one_minus_erf",
    "local_one_minus_erf2",
    "local_opt_alloc",
    "local_pow_canonicalize",
    "local_pow_specialize",
    "local_pow_specialize_device",
    "local_reduce_broadcastable",
    "local_reduce_join",
    "local_reshape_lift",
    "local_reshape_to_dimshuffle",
    "local_scalar_tensor_scalar",
    "local_set_to_inc_subtensor",
    "local_setsubtensor_of_constants",
    "local_subtensor_inc_subtensor",
    "local_subtensor_make_vector",
    "local_subtensor_merge",
    "local_subtensor_of_alloc",
    "local_subtensor_remove_broadcastable_index",
    "local_sum_prod_all_to_none",
    "local_sum_prod_div_dimshuffle",
    "local_sum_prod_mul_by_scalar",
    "local_sumsqr2dot",
    "local_tensor_scalar_tensor",
    "local_upcast_elemwise_constant_inputs",
    "local_useless_alloc",
    "local_useless_dimshuffle_in_reshape",
    "local_useless_elemwise",
    "local_useless_elemwise_comparison",
    "local_useless_fill",
    "local_useless_inc_subtensor_alloc",
    "local_useless_rebroadcast",
    "local_useless_reduce",
    "local_useless_slice",
    "local_useless_split",
    "local_useless_switch",
    "local_useless_tile",
    "local_view_op",
    "local_zero_div",
)
_OF_UNCANONICALIZE = (
    "local_alloc_dimshuffle",
    "local_dimshuffle_alloc",
    "local_dimshuffle_subtensor",
    "local_max_to_min",
    "local_reshape_dimshuffle",
)
_OF_NETWORKS = ("local_logsoftmax", "local_logsoftmax_grad", "local_softmax_with_bias")
_OF_SIGMOIDS = (
    "local_exp_over_1_plus_exp",
    "local_inv_1_plus_exp",
    "local_sigm_times_exp",
    "logsigm_to_softplus",
)

_lasting: frozenset[LocalOptimizer] = frozenset(
    getattr(module, name)
    for module, names in (
        (opt, _OF_TENSORS),
        (opt_uncanonicalize, _OF_UNCANONICALIZE),
        (nnet, _OF_NETWORKS),
        (sigm, _OF_SIGMOIDS),
    )
    for name in names
)

_CANONIZING = (opt.local_add_canonizer, opt.local_mul_canonizer, opt.local_greedy_distributor)


def lasting_refusals(rewriter: LocalOptimizer) -> tuple[bool | None, ...]:
    """Return those of ``(None, False)`` that `rewriter` answers again until an ancestor of the node changes."""
    if rewriter in _lasting:
        return (None, False)
    if rewriter in _CANONIZING and not has_unknown_simplifiers():
        return (None, False) if rewriter is opt.local_greedy_distributor else canonizers_lasting_refusals()
    return ()
