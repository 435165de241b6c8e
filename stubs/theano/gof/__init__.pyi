from _typeshed import Incomplete
from theano.gof.cc import CLinker as CLinker
from theano.gof.cc import OpWiseCLinker as OpWiseCLinker
from theano.gof.fg import (
    FunctionGraph as FunctionGraph,
)
from theano.gof.fg import (
    InconsistencyError as InconsistencyError,
)
from theano.gof.fg import (
    MissingInputError as MissingInputError,
)
from theano.gof.graph import Apply as Apply
from theano.gof.graph import Constant as Constant
from theano.gof.graph import Variable as Variable
from theano.gof.link import Container as Container
from theano.gof.link import Linker as Linker
from theano.gof.link import LocalLinker as LocalLinker
from theano.gof.op import COp as COp
from theano.gof.op import Op as Op
from theano.gof.op import PureOp as PureOp
from theano.gof.opt import (
    EquilibriumOptimizer as EquilibriumOptimizer,
)
from theano.gof.opt import (
    LocalOptGroup as LocalOptGroup,
)
from theano.gof.opt import (
    LocalOptimizer as LocalOptimizer,
)
from theano.gof.opt import (
    MergeOptimizer as MergeOptimizer,
)
from theano.gof.opt import (
    NavigatorOptimizer as NavigatorOptimizer,
)
from theano.gof.opt import (
    Optimizer as Optimizer,
)
from theano.gof.opt import (
    PatternSub as PatternSub,
)
from theano.gof.opt import (
    SeqOptimizer as SeqOptimizer,
)
from theano.gof.opt import (
    TopoOptimizer as TopoOptimizer,
)
from theano.gof.opt import (
    local_optimizer as local_optimizer,
)
from theano.gof.optdb import (
    DB as DB,
)
from theano.gof.optdb import (
    EquilibriumDB as EquilibriumDB,
)
from theano.gof.optdb import (
    LocalGroupDB as LocalGroupDB,
)
from theano.gof.optdb import (
    ProxyDB as ProxyDB,
)
from theano.gof.optdb import (
    Query as Query,
)
from theano.gof.optdb import (
    SequenceDB as SequenceDB,
)
from theano.gof.optdb import (
    TopoDB as TopoDB,
)
from theano.gof.type import Generic as Generic
from theano.gof.type import Type as Type
from theano.gof.type import generic as generic
from theano.gof.vm import VM_Linker as VM_Linker

def __getattr__(name: str) -> Incomplete: ...
