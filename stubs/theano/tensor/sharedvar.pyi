from _typeshed import Incomplete
from theano.compile.sharedvalue import SharedVariable
from theano.tensor.var import _tensor_py_operators

class TensorSharedVariable(_tensor_py_operators, SharedVariable): ...

def __getattr__(name: str) -> Incomplete: ...
