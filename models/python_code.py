"""Lets Theano run nodes in Python instead of compiling them, but still apply optimizations that need a compiler.

Without a compiler (``cxx=``), Theano leaves convolutions abstract, so the optimized graph would differ. With a
compiler, Theano compiles each op that it uses to fold constants or to compute test values, which takes minutes per
model.
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
    """Within the block, run each op that has working Python code in Python."""
    make_thunk = Op.make_thunk

    def in_python(
        self: Op, node: Apply, storage: dict, computed: dict, no_recycling: list, impl: str | None = None
    ) -> Callable[[], Any]:
        chosen = impl or ("c" if works_only_in_c(self) else "py")
        return make_thunk(self, node, storage, computed, no_recycling, impl=chosen)

    with mock.patch.object(Op, "make_thunk", in_python):
        yield
