from _typeshed import Incomplete
from theano.scalar.basic import Scalar as Scalar
from theano.tensor.basic import (
    NotScalarConstantError as NotScalarConstantError,
)
from theano.tensor.basic import (
    as_tensor_variable as as_tensor_variable,
)
from theano.tensor.basic import (
    constant as constant,
)
from theano.tensor.basic import (
    patternbroadcast as patternbroadcast,
)
from theano.tensor.type import TensorType as TensorType
from theano.tensor.var import TensorConstant as TensorConstant
from theano.tensor.var import TensorVariable as TensorVariable

def __getattr__(name: str) -> Incomplete: ...
