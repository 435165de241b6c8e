"""Creates variables and nodes in fewer steps than Theano.

For each variable, Theano calls four functions, reads two flags, and extracts a stack trace, although the trace is empty
while a function is compiled. This module's functions handle the plain case, and leave all other cases to Theano.
"""

from __future__ import annotations

import sys
from typing import Any

from theano.gof import utils
from theano.gof.graph import Apply, Variable
from theano.gof.op import PureOp
from theano.gof.utils import scratchpad
from theano.tensor.type import TensorType
from theano.tensor.var import TensorVariable

from optdb.host.api.config import parameter
from optdb.host.api.patching import Patch
from optdb.host.stack_traces import StackTraces

_stock_add_tag_trace = utils.add_tag_trace
_stock_call = TensorType.__call__
_stock_clone_node = Apply.clone
_stock_clone_variable = Variable.clone

_trace_limit = parameter("traceback.limit")
_compile_limit = parameter("traceback.compile_limit")
_warn_float64 = parameter("warn_float64")
_new = object.__new__
_observers = Variable.construction_observers


#: Parts of the paths of Theano's own files.
_OWN_FILES = ("tensor/", "compile/", "gof/", "scalar/basic.py", "sandbox/", "scan_module/", "sparse/", "typed_list/")
_traces = StackTraces(f"theano/{name}" for name in _OWN_FILES)


def add_tag_trace(thing: Any, user_line: int | None = None) -> Any:
    """Add a stack trace with at most `user_line` frames; the default is the flag ``traceback.limit``."""
    if _compile_limit.val > 0:
        return _stock_add_tag_trace(thing, user_line)
    limit = _trace_limit.val if user_line is None else user_line
    return _traces.add(thing, sys._getframe(1), limit)


def _variable(cls: type[Variable], type_: Any) -> Any:
    """Return an unnamed variable, like ``cls(type_)``; only valid if nothing observes constructor calls."""
    var = _new(cls)
    var.tag = _new(scratchpad)
    var.type = type_
    var.owner = None
    var.index = None
    var.name = None
    var.auto_name = f"auto_{next(Variable.__count__)}"
    return var


def make_tensor(self: TensorType, name: str | None = None) -> Any:
    """Return a new variable of a tensor type."""
    is_plain = (
        name is None
        and type(self) is TensorType
        and self.Variable is TensorVariable
        and _trace_limit.val == 0
        and _warn_float64.val == "ignore"
        and not _observers
    )
    if not is_plain:
        return _stock_call(self, name)
    var = _variable(TensorVariable, self)
    var.tag.trace = []
    return var


def clone_variable(self: Variable) -> Any:
    """Return a variable with the same type, name and tag, and without an owner."""
    is_plain = (
        type(self) is TensorVariable
        and type(self.tag) is scratchpad
        and _warn_float64.val == "ignore"
        and not _observers
    )
    if not is_plain:
        return _stock_clone_variable(self)
    var = _variable(TensorVariable, self.type)
    var.name = self.name
    var.tag = copy_tag(self.tag)
    return var


def new_node(op: Any, inputs: list[Variable], outputs: list[Variable]) -> Apply:
    """Return ``Apply(op, inputs, outputs)``; the outputs must be new, and the node owns both lists."""
    node = _new(Apply)
    node.op = op
    node.inputs = inputs
    node.tag = _new(scratchpad)
    for index, var in enumerate(outputs):
        var.owner = node
        var.index = index
    node.outputs = outputs
    return node


def clone_node(self: Apply) -> Apply:
    """Return a node with the same op, inputs and tag, and with new outputs."""
    if type(self) is not Apply or type(self.tag) is not scratchpad:
        return _stock_clone_node(self)
    node = new_node(self.op, list(self.inputs), [var.clone() for var in self.outputs])
    node.tag = copy_tag(self.tag)
    return node


def copy_tag(self: scratchpad) -> scratchpad:
    """Return a tag with the same attributes, like ``copy.copy`` but faster."""
    tag = _new(type(self))
    vars(tag).update(vars(self))
    return tag


#: Patches that remain installed between sessions, because user code that builds a graph spends a third of its time on
#: stack traces.
LASTING = [
    Patch(utils, "add_tag_trace", add_tag_trace, "each line of a trace is read once"),
    Patch(PureOp, "add_tag_trace", staticmethod(add_tag_trace), "each line of a trace is read once"),
]
PATCHES = [
    Patch(TensorType, "__call__", make_tensor, "a variable without a trace is created directly"),
    Patch(Variable, "clone", clone_variable, "a copy is created directly"),
    Patch(Apply, "clone", clone_node, "a copy is created directly"),
    Patch(scratchpad, "__copy__", copy_tag, "the tag of each cloned variable is copied"),
]
