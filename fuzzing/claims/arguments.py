"""Odd arguments: arrays whose memory layout, length or dtype is unusual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ALIGNED", "KINDS", "Argument", "argument"]

#: The number that fills the caller's memory around the values of an array.
_GUARD = 99


@dataclass(frozen=True)
class Argument:
    """An argument that the caller passes, and the memory that the call must not change."""

    value: Any
    memory: np.ndarray
    before: bytes

    @classmethod
    def of(cls, value: Any, memory: np.ndarray | None = None) -> Argument:
        """Return the argument for a value that is stored in `memory`, by default in memory of its own."""
        memory = np.asarray(value) if memory is None else memory
        return cls(value, memory, memory.tobytes())

    @property
    def is_unchanged(self) -> bool:
        """Whether the memory has the same content as when the argument was made."""
        return self.memory.tobytes() == self.before


class _Subclass(np.ndarray):
    """An array class that a user has derived from NumPy's."""


def _surrounded(value: np.ndarray) -> Argument:
    memory = np.full(value.size + 2, _GUARD, value.dtype)
    memory[1:-1] = value.ravel()
    return Argument.of(memory[1:-1].reshape(value.shape), memory)


def _strided(value: np.ndarray) -> Argument:
    if not value.ndim:
        return _surrounded(value)
    memory = np.full(tuple(2 * length + 1 for length in value.shape), _GUARD, value.dtype)
    part = memory[tuple(slice(1, None, 2) for _ in value.shape)]
    part[...] = value
    return Argument.of(part, memory)


def _reversed(value: np.ndarray) -> Argument:
    if not value.ndim:
        return Argument.of(value)
    backwards = tuple(slice(None, None, -1) for _ in value.shape)
    memory = np.ascontiguousarray(value[backwards])
    return Argument.of(memory[backwards], memory)


def _misaligned(value: np.ndarray) -> Argument:
    memory = np.frombuffer(bytearray(b"\x07" + value.tobytes() + b"\x07"), np.uint8)
    return Argument.of(np.frombuffer(memory.data, value.dtype, value.size, offset=1).reshape(value.shape), memory)


def _read_only(value: np.ndarray) -> Argument:
    value = value.copy()
    value.flags.writeable = False
    return Argument.of(value)


def _broadcast(value: np.ndarray) -> Argument:
    memory = value[..., :1].copy() if value.ndim else value.copy()
    if not memory.size:
        return Argument.of(value)
    return Argument.of(np.broadcast_to(memory, value.shape), memory)


def _as_matrix(value: np.ndarray) -> Argument:
    return Argument.of(np.matrix(value)) if value.ndim == 2 and value.size else Argument.of(value)


def _cast(dtype: str) -> Callable[[np.ndarray], Argument]:
    return lambda value: Argument.of(value.astype(dtype))


def _empty(dtype: str) -> Callable[[np.ndarray], Argument]:
    """Return a function that converts an empty array to another dtype, and keeps other arrays."""
    return lambda value: Argument.of(value if value.size else value.astype(dtype))


def _longer(value: np.ndarray) -> Argument:
    return Argument.of(np.concatenate([value, value, np.ones((1, *value.shape[1:]), value.dtype)]))


#: Kinds by name.
KINDS: dict[str, Callable[[np.ndarray], Argument]] = {
    "plain": lambda value: Argument.of(value.copy()),
    "surrounded": _surrounded,
    "strided": _strided,
    "reversed": _reversed,
    "fortran": lambda value: Argument.of(np.asfortranarray(value)),
    "misaligned": _misaligned,
    "read_only": _read_only,
    "big_endian": lambda value: Argument.of(value.astype(value.dtype.newbyteorder(">"))),
    "big_endian_strided": lambda value: _strided(value.astype(value.dtype.newbyteorder(">"))),
    "misaligned_big_endian": lambda value: _misaligned(value.astype(value.dtype.newbyteorder(">"))),
    "matrix": _as_matrix,
    "masked": lambda value: Argument.of(np.ma.masked_array(value)),
    "subclass": lambda value: Argument.of(value.copy().view(_Subclass)),
    "list": lambda value: Argument.of(value.tolist()),
    "number": lambda value: Argument.of(value[()].item() if value.size == 1 and not value.ndim else value),
    "numpy_number": lambda value: Argument.of(value[()]),
    "int8": _cast("int8"),
    "float16": _cast("float16"),
    "bool": _cast("bool"),
    "empty_of_int64": _empty("int64"),
    "empty_of_complex": _empty("complex64"),
    "empty_of_objects": _empty("object"),
    # The following kinds change the values, or have a dtype that is rejected.
    "broadcast": _broadcast,
    "float64": _cast("float64"),
    "masked_out": lambda value: Argument.of(np.ma.masked_array(value, mask=np.ones(value.shape, bool))),
    "longer": lambda value: Argument.of(value) if not value.ndim else _longer(value),
    "empty": lambda value: Argument.of(value[:0] if value.ndim else value),
    "more_axes": lambda value: Argument.of(value[None]),
    "fewer_axes": lambda value: Argument.of(value[0] if value.ndim and len(value) else value),
    "nothing": lambda value: Argument(None, value, value.tobytes()),
}


#: Maps each kind that exported files accept but Theano rejects to a kind with equal values that Theano accepts.
ALIGNED = {"misaligned": "plain", "misaligned_big_endian": "big_endian"}


def argument(kind: str, value: np.ndarray) -> Argument:
    """Return the argument of the given `kind` (a key of `KINDS`) that is made from `value`, a C-contiguous array."""
    return KINDS[kind](value)
