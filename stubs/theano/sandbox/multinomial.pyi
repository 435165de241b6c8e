from _typeshed import Incomplete
from theano.gof.op import Op

class MultinomialFromUniform(Op):
    odtype: str
    def __init__(self, odtype: str) -> None: ...

class ChoiceFromUniform(MultinomialFromUniform):
    replace: Incomplete
    def __init__(self, odtype: str, replace: Incomplete = ..., *args: Incomplete, **kwargs: Incomplete) -> None: ...

class MultinomialWOReplacementFromUniform(ChoiceFromUniform):
    def __init__(self, *args: Incomplete, **kwargs: Incomplete) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
