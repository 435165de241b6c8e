"""Corrects faults in Theano as soon as Theano is imported, even without the engine.

- If a rewriter raises an error, Theano's observer of new variables stays installed, and keeps all later graphs alive.
- Without C code, a `Composite` evaluates ``~True`` to -2, and computes a shared subexpression again for each use.
- Without a C compiler, Theano rejects convolutions that its ConvOp does not support, although Theano's Python code and
  devices support these convolutions.
- On a full disk, Theano waits for the compiledir's lock for minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from theano.gof import compilelock, graph
from theano.gof.graph import Variable
from theano.scalar.basic import Composite, Invert, ScalarOp
from theano.tensor.nnet import opt

from optdb.files import check_folder
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Constant, FunctionGraph, io_toposort
from optdb.host.api.patching import Patch, PatchGroup, Wrapper, around
from optdb.host.theano.importing.support import writing_compiledir


@contextmanager
def nodes_constructed() -> Iterator[list[Variable]]:
    """Yield a list that collects the variables created in the block."""
    made: list[Variable] = []
    observer = made.append
    Variable.append_construction_observer(observer)
    try:
        yield made
    finally:
        Variable.remove_construction_observer(observer)


def _invert(self: Invert, x: Any) -> Any:
    return not x if isinstance(x, bool) else ~x


def _init_py_impls(self: Composite) -> None:
    self._impls = [_step_by_step(self.fgraph, out) for out in self.fgraph.outputs]


def _impl_of(node: Apply) -> Callable[..., Any]:
    assert isinstance(node.op, ScalarOp)
    return node.op.impl


def _step_by_step(graph: FunctionGraph, out: Variable) -> Callable[[Sequence[Any]], Any]:
    """Return a function that computes the scalar `out`; it finds operands by index, not by looking up variables."""
    needed = io_toposort(graph.inputs, [out])
    constants = [var for node in needed for var in node.inputs if isinstance(var, Constant)]
    variables = [*graph.inputs, *constants, *(node.outputs[0] for node in needed)]
    indices = {var: index for index, var in enumerate(variables)}
    steps = [(_impl_of(node), [indices[var] for var in node.inputs]) for node in needed]
    constant_values, wanted = [var.data for var in constants], indices[out]

    def compute(inputs: Sequence[Any]) -> Any:
        values = [*inputs, *constant_values]
        for impl, operands in steps:
            values.append(impl(*[values[index] for index in operands]))
        return values[wanted]

    return compute


@around
def _with_a_compiler(transform: Callable[[Any], Any], node: Any) -> Any:
    return transform(node) if config.cxx else None


@around
def _checked(lock: Callable[..., None], tmp_dir: str, *args: Any, **kwargs: Any) -> None:
    compiledir = Path(tmp_dir).parent
    with writing_compiledir(compiledir):
        check_folder(compiledir)
    lock(tmp_dir, *args, **kwargs)


_LEGACY = (opt.local_conv2d_cpu, opt.local_conv2d_gradweight_cpu, opt.local_conv2d_gradinputs_cpu)

patches = PatchGroup(
    "Corrections of Theano",
    "from the import of Theano on",
    "nothing",
    [
        Patch(graph, "nodes_constructed", nodes_constructed, "a rewriter that raises does not keep variables alive"),
        Patch(Invert, "impl", _invert, "Python computes ~True as -2, which is true"),
        Patch(Composite, "init_py_impls", _init_py_impls, "no part of a Composite is computed twice in Python"),
        Wrapper(
            opt.local_abstractconv_check,
            "transform",
            _with_a_compiler,
            "a convolution that a device or Python can compute is not rejected",
        ),
        *(
            Wrapper(rewriter, "transform", _with_a_compiler, "ConvOp gains nothing without C code")
            for rewriter in _LEGACY
        ),
        Wrapper(compilelock, "lock", _checked, "on a full disk it would wait for a lock without owner, for minutes"),
    ],
)
