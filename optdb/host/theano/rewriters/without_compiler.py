"""What Theano's rewriters do to convolutions where there is no C compiler.

Theano then refuses each convolution that its legacy ConvOp does not take: padded, strided, dilated, grouped ones, and
all in three dimensions. But the abstract ops compute in Python themselves, and a device has kernels for them, so
they stay in the graph. They stay in place of ConvOp, too: it computes in Python just as slowly, warns that it is
deprecated, and is not lifted where it is a gradient. With a compiler nothing changes.
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
    """Leave convolutions as they are where there is no C compiler, from now on."""
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
