"""The host's ops that sort, choose the largest, and add up along an axis, by name."""

from theano.tensor.extra_ops import CumOp, SearchsortedOp
from theano.tensor.sort import ArgSortOp, SortOp, TopKOp

__all__ = ["ArgSortOp", "CumOp", "SearchsortedOp", "SortOp", "TopKOp"]
