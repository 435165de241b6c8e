"""Defines ops whose C code is never built in advance, and compiles functions of these ops with tiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import theano
import theano.tensor as tt
from hypothesis import strategies as st
from theano.gof import Apply, Op
from theano.gof.utils import MethodNotDefined

import optdb

__all__ = ["LENGTH", "LINKERS", "WAYS", "Adds", "Spec", "compiled", "specs", "variables"]

#: Number of elements of the shared variables.
LENGTH = 3
LINKERS = ("cvm", "cvm_nogc", "vm", "vm_nogc")
#: The ways to enable tiers for a function. With ``no compiler``, the function is compiled as if Theano had found no
#: compiler; ``on`` changes no setting.
WAYS = ("mode", "context", "enabled and disabled", "on", "no compiler")
#: The kinds of an op's C code. Ops of kind ``apart`` have their own compiler flags, and are therefore compiled
#: separately; ``python`` ops have no C code.
KINDS = ("builds", "builds", "apart", "fails", "python")


class Adds(Op):
    """Adds two vectors; its C code is unique and has no version, so each process builds it."""

    __props__ = ("name", "kind", "in_place")

    def __init__(self, name: str, kind: str, in_place: bool = False) -> None:
        self.name, self.kind, self.in_place = name, kind, in_place
        if in_place:
            self.destroy_map = {0: [0]}

    def make_node(self, *terms: Any) -> Apply:
        """Return a node that adds two vectors."""
        variables = [tt.as_tensor_variable(term) for term in terms]
        return Apply(self, variables, [variables[0].type()])

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], outputs: Sequence[list[Any]]) -> None:
        """Add with NumPy."""
        first, second = inputs
        if self.in_place:
            first += second
        outputs[0][0] = first if self.in_place else first + second

    def c_code_cache_version(self) -> tuple[()]:
        """Return no version."""
        return ()

    def c_compile_args(self) -> list[str]:
        """Return the compiler flags of the op's C code."""
        return ["-DAPART"] if self.kind == "apart" else []

    def c_code(self, node: Apply, name: str, inputs: Sequence[str], outputs: Sequence[str], sub: dict[str, str]) -> str:
        """Return the C code."""
        if self.kind == "python":
            raise MethodNotDefined("c_code")
        if self.kind == "fails":
            return f"no C code {self.name};"
        (a, b), (z,) = inputs, outputs
        empty = f"(PyArrayObject*) PyArray_EMPTY(1, PyArray_DIMS({a}), NPY_FLOAT64, 0)"
        begin = f"Py_INCREF({a}); Py_XDECREF({z}); {z} = {a};" if self.in_place else f"Py_XDECREF({z}); {z} = {empty};"
        return f"""
            /* {self.name} */
            {begin}
            for (npy_intp i = 0; i < PyArray_SIZE({z}); ++i) {{
                double sum = *(double*) PyArray_GETPTR1({a}, i) + *(double*) PyArray_GETPTR1({b}, i);
                *(double*) PyArray_GETPTR1({z}, i) = sum;
            }}
        """


@dataclass(frozen=True)
class Spec:
    """A function that doubles an argument with ops of some kinds, and adds another one to two shared variables."""

    linker: str
    doubling: tuple[str, ...]
    adding: tuple[str, str]
    in_place: bool
    has_scan: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all ops in the function."""
        return (*self.doubling, *self.adding, *(["builds"] if self.has_scan else []))

    @property
    def factor(self) -> int:
        """The factor by which the function multiplies its argument."""
        return 2 ** (len(self.doubling) + 2 * self.has_scan)


def specs() -> st.SearchStrategy[Spec]:
    """Return a strategy that draws functions."""
    kind = st.sampled_from(KINDS)
    return st.builds(
        Spec,
        linker=st.sampled_from(LINKERS),
        doubling=st.lists(kind, max_size=2).map(tuple),
        adding=st.tuples(kind, kind),
        in_place=st.booleans(),
        has_scan=st.sampled_from([False] * 7 + [True]),
    )


def variables() -> list[Any]:
    """Return the two shared variables of a run, which must always have equal values."""
    return [theano.shared(np.zeros(LENGTH), name) for name in "ab"]


def compiled(spec: Spec, shared: list[Any], way: str, name: str) -> Any:
    """Compile a function that returns a multiple of its first argument, and the variables' current values."""
    doubled, added = tt.dvector("doubled"), tt.dvector("added")
    result = doubled
    for position, kind in enumerate(spec.doubling):
        result = Adds(f"{name}, doubling {position}", kind)(result, result)
    if spec.has_scan:
        inner = Adds(f"{name}, inner", "builds")
        result = theano.scan(lambda last: inner(last, last), outputs_info=result, n_steps=2)[0][-1]
    updates = [
        (var, Adds(f"{name}, adding to {var.name}", kind, spec.in_place)(var, added))
        for var, kind in zip(shared, spec.adding, strict=True)
    ]
    mode = theano.Mode(spec.linker, None)
    with _turned_on(way):
        mode = optdb.mode(mode, tiered=True) if way in ("mode", "no compiler") else mode
        return theano.function([doubled, added], [result, *shared], updates=updates, mode=mode, accept_inplace=True)


@contextmanager
def _turned_on(way: str) -> Iterator[None]:
    if way == "context":
        with optdb.enable(tiered=True):
            yield
    elif way == "enabled and disabled":
        was_tiered = theano.config.optdb.tiered
        optdb.enable(tiered=True)
        yield
        optdb.disable()
        theano.config.optdb.tiered = was_tiered
    elif way == "no compiler":
        with theano.configparser.change_flags(cxx=""):
            yield
    else:
        yield
