"""Observes and wraps the compilation of functions, and makes equivalents of compiled functions."""

from __future__ import annotations

import copy
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from theano.compile import function_module
from theano.compile.function_module import Function, FunctionMaker
from theano.gof.link import Container, PerformLinker

from optdb.collector import growing
from optdb.host.api.patching import Patch, PatchGroup, Wrapper, applied
from optdb.host.api.testvalues import without_test_values


class FunctionInTurn(Function):
    """A function that takes no lock (see `take_turns`); its caller ensures that only one thread at a time calls it."""

    # Theano's own method, before `take_turns` wraps it.
    __call__ = Function.__call__


def function_like(function: Function) -> Function:
    """Return a function that has the arguments of `function` but its own storage.

    The caller sets the function's ``fn``, a callable that returns the outputs; if ``fn.need_update_inputs`` is False,
    ``fn`` also applies the updates. The values of inputs other than shared variables are copied. The caller ensures
    that only one thread at a time calls the function.
    """
    inputs = [
        Container(old.type, [None if spec.shared else copy.copy(old.storage[0])], name=old.name)
        for old, spec in zip(function.input_storage, function.maker.inputs, strict=True)
    ]
    outputs = [Container(old.type, [None]) for old in function.output_storage]
    defaults = [_default(*default) for default in function.defaults]
    like = FunctionInTurn(
        *(None, inputs, outputs, function.indices, function.outputs, defaults),
        *(function.unpack_single, function.return_none, function.output_keys, function.maker),
        name=function.name,
    )
    like.trust_input = function.trust_input
    return like


def computed_by(function: Function, compute: Callable[..., Any]) -> Function:
    """Return a function that has the arguments and storage of `function`, but calls `compute` instead of ``fn``."""
    other = object.__new__(type(function))
    vars(other).update(vars(function), fn=compute)
    return other


def has_c_thunks(function: Function) -> bool:
    """Return False only if all nodes of a function run in Python."""
    linker = function.maker.linker
    return not isinstance(linker, PerformLinker) and getattr(linker, "c_thunks", None) is not False


def updates_of(function: Function) -> dict[int, int]:
    """Map each output of a function's graph that is an input's next value to the index of that input."""
    inputs = [number for number, spec in enumerate(function.maker.inputs) if spec.update is not None]
    first = len(function.maker.fgraph.outputs) - len(inputs)
    return {first + i: number for i, number in enumerate(inputs)}


def optimize(function: Function, backend: Callable[[Function], Any]) -> Any:
    """Compile a function again, with a backend.

    Parameters
    ----------
    function : theano.compile.function_module.Function
        The compiled function, which is not changed.
    backend : callable
        The backend, such as the result of `opencl_backend`.

    Returns
    -------
    object
        The object that `backend` returns: a `SimulatorOCL` for `opencl_backend`.

    Raises
    ------
    TypeError
        If `backend` is not a backend, for example the name of a device.
    """
    if not callable(backend):
        raise TypeError(
            f"a backend must be callable, not {backend!r}.\n"
            "The cure: f.optimize(optdb.opencl_backend(device='auto')), or the name of a device for 'auto'"
        )
    return backend(function)


optimize_method = PatchGroup(
    "Methods of compiled functions",
    "from the import of Theano on",
    "nothing",
    [Patch(Function, "optimize", optimize, "f.optimize(backend) is optdb.optimize(f, backend)")],
)


def _default(required: bool, refeed: bool, value: Any) -> tuple[bool, bool, Any]:
    """Return an input's entry in ``Function.defaults``; it keeps the value only if each call resets the input to it."""
    return required, refeed, value if refeed else None


@contextmanager
def watching(see: Callable[[Any], None]) -> Iterator[None]:
    """Call `see` with each function that is compiled in the block, including inner functions."""

    def showing(create: Callable[..., Function]) -> Callable[..., Function]:
        @functools.wraps(create)
        def create_and_show(self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
            function = create(self, *args, **kwargs)
            see(function)
            return function

        return create_and_show

    with applied(Wrapper(FunctionMaker, "create", showing, "each compiled function is reported to observers")):
        yield


def _in_turn(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def call_in_turn(self: Function, *args: Any, **kwargs: Any) -> Any:
        turn = getattr(self.fn, "turn", None)
        if turn is None:
            return call(self, *args, **kwargs)
        with turn():
            return call(self, *args, **kwargs)

    return call_in_turn


#: Serializes the calls of each function whose ``fn`` has a method ``turn``: a call holds the lock that ``turn``
#: returns.
take_turns = Wrapper(Function, "__call__", _in_turn, "threads that call functions wait for each other")


def wrap_compilation(surround: Callable[[], AbstractContextManager[None]]) -> None:
    """Link each function that is compiled from now on inside a context manager that `surround` returns."""

    def around(create: Callable[..., Function]) -> Callable[..., Function]:
        @functools.wraps(create)
        def create_within(self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
            with growing(), surround():
                return create(self, *args, **kwargs)

        return create_within

    patch = Wrapper(FunctionMaker, "create", around, "the kernels of a function are built as one program")
    PatchGroup("Compilation for a device", "from `import optdb.opencl` on", "nothing", [patch]).install()


class _CompilationLock:
    """A reentrant lock that is always free in a newly forked process."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:

        @functools.wraps(method)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return method(*args, **kwargs)

        return locked


_lock = _CompilationLock()
#: Allows one compilation at a time: Theano's graphs share constants, rewriters have state, and flags are global.
compilation_in_turn = PatchGroup(
    "Compilation in turn",
    "from the import of Theano on",
    "nothing",
    [
        Wrapper(FunctionMaker, name, _lock.around, "Theano cannot compile two functions at once")
        for name in ("__init__", "create")
    ],
)


def _without_test_values(insert: Callable[..., None]) -> Callable[..., None]:
    return functools.wraps(insert)(without_test_values()(insert))


#: Turns off test values while Theano inserts copies of results and updates, because variables on a device have no test
#: values.
copies_of_results = PatchGroup(
    "Copies of results",
    "from the import of Theano on",
    "nothing",
    [Wrapper(function_module, "insert_deepcopy", _without_test_values, "variables of a device have no test values")],
)
