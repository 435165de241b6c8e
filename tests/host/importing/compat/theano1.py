"""What Theano infers with NumPy 1.23, a line of ``theano1.txt`` for each entry of `inferred`, and how that was made.

``python -m tests.host.importing.compat.theano1`` writes it anew, where that version is installed.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

TABLE = Path(__file__).with_name("theano1.txt")
TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
NUMBERS = [0, 1, -1, 127, 128, 255, 256, -129, 32768, 65536, 2**31, 2**40, 0.0, 0.1, 0.5, 70000.0, 1e30, 1e300, True]


def inferred() -> dict[str, str]:
    """Return the types, and folded values, of a thousand expressions."""
    import theano
    import theano.tensor as tt

    def type_of(make: object) -> str:
        try:
            return str(make().dtype)
        except Exception as error:
            return type(error).__name__

    def folded(make: object) -> str:
        try:
            value = theano.function([], make(), mode="FAST_COMPILE")()
        except Exception as error:
            return type(error).__name__
        return f"{value.dtype} {value.astype(complex).tolist()}"

    table = {}
    for policy, float_x in [("custom", "float64"), ("custom", "float32"), ("numpy+floatX", "float32")]:
        theano.config.cast_policy, theano.config.floatX = policy, float_x
        head = f"{policy} {float_x}"
        for number in NUMBERS:
            table[f"{head} constant({number!r})"] = type_of(lambda number=number: tt.constant(number))
            for dtype in TYPES:
                vector = tt.vector(dtype=dtype)
                table[f"{head} {dtype} + {number!r}"] = type_of(lambda v=vector, n=number: v + n)
                table[f"{head} {dtype} / {number!r}"] = type_of(lambda v=vector, n=number: v / n)
        for first in TYPES:
            for second in TYPES:
                table[f"{head} upcast({first}, {second})"] = theano.scalar.upcast(first, second)
    theano.config.cast_policy, theano.config.floatX = "custom", "float64"
    for dtype in TYPES:
        for number in (0.1, 3, -1, 300):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scalar = np.array([number]).astype(dtype)[0]
                for name, make in {
                    "x + n": lambda s=scalar, n=number: tt.constant(s) + n,
                    "x * n": lambda s=scalar, n=number: tt.constant(s) * n,
                    "n - x": lambda s=scalar, n=number: n - tt.constant(s),
                    "sqr": lambda s=scalar: tt.sqr(tt.constant(s)),
                    "maximum": lambda s=scalar, n=number: tt.maximum(tt.constant(s), n),
                }.items():
                    table[f"{name}, x {dtype}, n {number}"] = folded(make)
    return table


if __name__ == "__main__":
    import optdb  # noqa: F401

    TABLE.write_text("\n".join(inferred().values()) + "\n")
