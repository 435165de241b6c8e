from _typeshed import Incomplete
from theano.gof.fg import FunctionGraph
from theano.gof.graph import Apply, Variable
from theano.gof.toolbox import Bookkeeper
from theano.misc.ordered_set import OrderedSet

class DestroyHandler(Bookkeeper):
    # None while the handler is attached to no graph.
    fgraph: FunctionGraph
    destroyers: OrderedSet
    root_destroyer: dict[Variable, Apply]
    view_i: dict[Variable, Variable]
    view_o: dict[Variable, Incomplete]
    def __getattr__(self, name: str) -> Incomplete: ...
    def __setattr__(self, name: str, value: object) -> None: ...

def __getattr__(name: str) -> Incomplete: ...
