from typing import Any

from _typeshed import Incomplete
from theano.compile.function_module import Function as Function
from theano.compile.mode import Mode as Mode
from theano.compile.sharedvalue import shared as shared
from theano.configparser import TheanoConfigParser
from theano.configparser import change_flags as change_flags
from theano.gof import Apply as Apply
from theano.gof import FunctionGraph as FunctionGraph
from theano.gof import Op as Op
from theano.gof import Variable as Variable

__version__: str
config: TheanoConfigParser

def function(
    inputs: Any,
    outputs: Any = ...,
    mode: Any = ...,
    updates: Any = ...,
    givens: Any = ...,
    no_default_updates: Any = ...,
    accept_inplace: bool = ...,
    name: str | None = ...,
    rebuild_strict: bool = ...,
    allow_input_downcast: bool | None = ...,
    profile: Any = ...,
    on_unused_input: str | None = ...,
) -> Function: ...
def __getattr__(name: str) -> Incomplete: ...
