from _typeshed import Incomplete
from theano.compile.function_module import Function as Function
from theano.compile.function_module import FunctionMaker as FunctionMaker
from theano.compile.io import In as In
from theano.compile.io import Out as Out
from theano.compile.io import SymbolicInput as SymbolicInput
from theano.compile.io import SymbolicOutput as SymbolicOutput
from theano.compile.mode import Mode as Mode
from theano.compile.mode import get_default_mode as get_default_mode
from theano.compile.mode import get_mode as get_mode
from theano.compile.mode import optdb as optdb
from theano.compile.sharedvalue import SharedVariable as SharedVariable
from theano.compile.sharedvalue import shared as shared

def __getattr__(name: str) -> Incomplete: ...
