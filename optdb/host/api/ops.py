"""The host's ops, by name: ops with device counterparts, and ops that stay on the host."""

from __future__ import annotations

from theano.compile.ops import Rebroadcast, Shape, Shape_i, SpecifyShape
from theano.gof.graph import Variable
from theano.gradient import DisconnectedType, grad_undefined
from theano.misc.frozendict import frozendict
from theano.printing import Print
from theano.sandbox.multinomial import ChoiceFromUniform, MultinomialFromUniform, MultinomialWOReplacementFromUniform
from theano.sandbox.rng_mrg import mrg_uniform, mrg_uniform_base
from theano.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    Argmax,
    Dot,
    ExtractDiag,
    Eye,
    Flatten,
    Join,
    MaxAndArgmax,
    Reshape,
    ScalarFromTensor,
    ShapeError,
    Split,
    TensorFromScalar,
    Tile,
    Tri,
)
from theano.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm, Gemv, Ger
from theano.tensor.blas_c import CGemv, CGer
from theano.tensor.blas_scipy import ScipyGer
from theano.tensor.elemwise import All, Any, CAReduce, CAReduceDtype, DimShuffle, Elemwise, Prod, ProdWithoutZeros, Sum
from theano.tensor.extra_ops import (
    CpuContiguous,
    CumOp,
    DiffOp,
    FillDiagonal,
    FillDiagonalOffset,
    RepeatOp,
    SearchsortedOp,
)
from theano.tensor.fft import IRFFTOp, RFFTOp
from theano.tensor.nlinalg import (
    SVD,
    Det,
    Eig,
    Eigh,
    EighGrad,
    MatrixInverse,
    MatrixPinv,
    QRFull,
    QRIncomplete,
    TensorInv,
    TensorSolve,
    lstsq,
)
from theano.tensor.nlinalg import AllocDiag as VectorAllocDiag
from theano.tensor.nnet.abstract_conv import (
    AbstractConv,
    AbstractConv2d,
    AbstractConv2d_gradInputs,
    AbstractConv2d_gradWeights,
    AbstractConv3d,
    AbstractConv3d_gradInputs,
    AbstractConv3d_gradWeights,
    BaseAbstractConv,
)
from theano.tensor.nnet.abstract_conv import AbstractConv_gradInputs as AbstractConvGradInputs
from theano.tensor.nnet.abstract_conv import AbstractConv_gradWeights as AbstractConvGradWeights
from theano.tensor.nnet.blocksparse import SparseBlockGemv, SparseBlockOuter
from theano.tensor.nnet.bn import AbstractBatchNormInference, AbstractBatchNormTrain, AbstractBatchNormTrainGrad
from theano.tensor.nnet.neighbours import Images2Neibs
from theano.tensor.nnet.nnet import (
    CrossentropyCategorical1Hot,
    CrossentropyCategorical1HotGrad,
    CrossentropySoftmax1HotWithBiasDx,
    CrossentropySoftmaxArgmax1HotWithBias,
    LogSoftmax,
    Prepend_scalar_constant_to_each_row,
    Prepend_scalar_to_each_row,
    Softmax,
    SoftmaxGrad,
    SoftmaxWithBias,
)
from theano.tensor.opt import Assert, MakeVector
from theano.tensor.raw_random import RandomFunction
from theano.tensor.signal.pool import AveragePoolGrad, DownsampleFactorMaxGradGrad, MaxPoolGrad, MaxPoolRop, Pool
from theano.tensor.slinalg import Cholesky, CholeskyGrad, Eigvalsh, EigvalshGrad, Expm, ExpmGrad, Solve
from theano.tensor.sort import ArgSortOp, SortOp, TopKOp
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

#: LAPACK's linear algebra; these ops have no C code and overwrite no inputs.
LINEAR_ALGEBRA = (
    *(VectorAllocDiag, Cholesky, CholeskyGrad, Det, Eig, Eigh, EighGrad, Eigvalsh, EigvalshGrad, Expm, ExpmGrad),
    *(MatrixInverse, MatrixPinv, QRFull, QRIncomplete, SVD, Solve, TensorInv, TensorSolve, lstsq),
)


def disconnected() -> Variable:
    """Return the gradient of an input that does not affect the result."""
    gradient: Variable = DisconnectedType()()
    return gradient
