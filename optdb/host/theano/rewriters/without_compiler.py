"""Changes to Theano's rewriters of convolutions if there is no C compiler.

Theano then rejects each convolution that its legacy ConvOp does not support: padded, strided, dilated, grouped, and
three-dimensional ones. But the abstract ops can compute in Python, and a device has kernels for them, so
they stay in the graph. They are also kept instead of ConvOp, which is just as slow in Python, warns that it is
deprecated, and is not lifted if it is a gradient. With a compiler nothing changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from theano.tensor.nnet import opt

from optdb.host.api.config import config
from optdb.host.api.patching import PatchGroup, Wrapper

__all__ = ["keep_convolutions"]


def keep_convolutions() -> None:
    """Leave convolutions unchanged from now on if there is no C compiler."""
    _patches.install()


def _with_a_compiler(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(transform)
    def transform_for_compiler(node: Any) -> Any:
        return transform(node) if config.cxx else None

    return transform_for_compiler


_LEGACY = (opt.local_conv2d_cpu, opt.local_conv2d_gradweight_cpu, opt.local_conv2d_gradinputs_cpu)

_patches = PatchGroup(
    "Convolutions without a C compiler",
    "from the import of Theano on",
    "nothing",
    [
        Wrapper(
            opt.local_abstractconv_check,
            "transform",
            _with_a_compiler,
            "a convolution that a device or Python can compute is not refused",
        ),
        *(
            Wrapper(rewriter, "transform", _with_a_compiler, "ConvOp gains nothing without C code")
            for rewriter in _LEGACY
        ),
    ],
)
