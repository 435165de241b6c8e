"""The host's linear algebra by LAPACK, by name."""

from theano.tensor.basic import ShapeError
from theano.tensor.nlinalg import (
    SVD,
    AllocDiag,
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
from theano.tensor.slinalg import Cholesky, CholeskyGrad, Eigvalsh, EigvalshGrad, Expm, ExpmGrad, Solve

#: All of them. They have no C code, and change none of their inputs.
LINEAR_ALGEBRA = (
    *(AllocDiag, Cholesky, CholeskyGrad, Det, Eig, Eigh, EighGrad, Eigvalsh, EigvalshGrad, Expm, ExpmGrad),
    *(MatrixInverse, MatrixPinv, QRFull, QRIncomplete, SVD, Solve, TensorInv, TensorSolve, lstsq),
)

__all__ = ["LINEAR_ALGEBRA", "ShapeError"]
