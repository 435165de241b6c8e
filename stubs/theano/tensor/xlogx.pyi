from _typeshed import Incomplete
from theano.scalar.basic import BinaryScalarOp, UnaryScalarOp

class XlogX(UnaryScalarOp): ...
class XlogY0(BinaryScalarOp): ...

scalar_xlogx: XlogX
scalar_xlogy0: XlogY0

def __getattr__(name: str) -> Incomplete: ...
