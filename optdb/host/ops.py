"""The tensor ops of the host that have counterparts on a device, by name."""

from theano.compile.ops import Rebroadcast, Shape, Shape_i, SpecifyShape
from theano.misc.frozendict import frozendict
from theano.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    Argmax,
    Dot,
    Eye,
    Join,
    MaxAndArgmax,
    Reshape,
    Split,
    Tri,
)
from theano.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm, Gemv, Ger
from theano.tensor.blas_c import CGemv, CGer
from theano.tensor.blas_scipy import ScipyGer
from theano.tensor.elemwise import All, Any, CAReduce, CAReduceDtype, DimShuffle, Elemwise, Prod, Sum
from theano.tensor.extra_ops import CpuContiguous
from theano.tensor.nnet.nnet import (
    CrossentropySoftmax1HotWithBiasDx,
    CrossentropySoftmaxArgmax1HotWithBias,
    LogSoftmax,
    Softmax,
    SoftmaxGrad,
    SoftmaxWithBias,
)
from theano.tensor.subtensor import (
    AdvancedBooleanIncSubtensor,
    AdvancedBooleanSubtensor,
    AdvancedIncSubtensor,
    AdvancedIncSubtensor1,
    AdvancedSubtensor,
    AdvancedSubtensor1,
    IncSubtensor,
    Subtensor,
    get_idx_list,
)
from theano.tensor.type_other import SliceType

__all__ = [
    "ARange",
    "AdvancedBooleanIncSubtensor",
    "AdvancedBooleanSubtensor",
    "AdvancedIncSubtensor",
    "AdvancedIncSubtensor1",
    "AdvancedSubtensor",
    "AdvancedSubtensor1",
    "All",
    "Alloc",
    "AllocEmpty",
    "Any",
    "Argmax",
    "BatchedDot",
    "CAReduce",
    "CAReduceDtype",
    "CGemv",
    "CGer",
    "CpuContiguous",
    "CrossentropySoftmax1HotWithBiasDx",
    "CrossentropySoftmaxArgmax1HotWithBias",
    "DimShuffle",
    "Dot",
    "Dot22",
    "Dot22Scalar",
    "Elemwise",
    "Eye",
    "Gemm",
    "Gemv",
    "Ger",
    "IncSubtensor",
    "Join",
    "LogSoftmax",
    "MaxAndArgmax",
    "Prod",
    "Rebroadcast",
    "Reshape",
    "ScipyGer",
    "Shape",
    "Shape_i",
    "SliceType",
    "Softmax",
    "SoftmaxGrad",
    "SoftmaxWithBias",
    "SpecifyShape",
    "Split",
    "Subtensor",
    "Sum",
    "Tri",
    "frozendict",
    "get_idx_list",
]
