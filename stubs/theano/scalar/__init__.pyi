from _typeshed import Incomplete
from theano.scalar import basic as basic
from theano.scalar import basic_scipy as basic_scipy
from theano.scalar.basic import *

def __getattr__(name: str) -> Incomplete: ...
