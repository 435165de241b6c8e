"""Lets Theano compute in Python what it would compile C code for, while all optimizations that want a compiler stay.

Without a compiler (``cxx=``) Theano leaves its convolutions abstract, so the graph would be another one. With one, it
compiles each op that it folds, and each that it computes a test value for: minutes for a model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from theano.gof.graph import Apply
from theano.gof.op import Op

from profiles.interpret import works_only_in_c


@contextlib.contextmanager
def python_code() -> Iterator[None]:
    """Prefer Python code wherever an op has some that works."""
    make_thunk = Op.make_thunk

    def in_python(
        self: Op, node: Apply, storage: dict, computed: dict, no_recycling: list, impl: str | None = None
    ) -> Callable[[], Any]:
        chosen = impl or ("c" if works_only_in_c(self) else "py")
        return make_thunk(self, node, storage, computed, no_recycling, impl=chosen)

    with mock.patch.object(Op, "make_thunk", in_python):
        yield
