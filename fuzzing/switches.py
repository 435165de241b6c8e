"""Defines the switches of an example, their values, and which values exclude each other; sets the switches."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import theano

import optdb
from fuzzing.profiles import KERNELS, MEMORIES, replace_options, replace_profile, use_smallest_batches
from optdb.topo import plug as engine

__all__ = [
    "EXCLUDED",
    "FLAGS",
    "NOT_DRAWN",
    "Compilation",
    "Exclusion",
    "Process",
    "Surroundings",
    "Switches",
    "exclusion",
    "in_force",
    "values_of",
]

ON_OFF = ("on", "off")


def _switch(*values: str) -> Any:
    """Return a dataclass field for a switch with these values; the first value is the default."""
    return field(default=values[0], metadata={"values": values})


def _python() -> str:
    numpy = ".".join(np.__version__.split(".")[:2])
    return f"{'.'.join(platform.python_version_tuple()[:2])} with NumPy {numpy}"


@dataclass(frozen=True)
class Process:
    """The switches of a process, most of which are flags that Theano reads when it is imported."""

    compiler: str = _switch("none", "g++")
    clinker: str = _switch("auto", "True", "False")
    engine_at_import: str = _switch("off", "on")
    op_cache_at_import: str = _switch("off", "on")
    kernel_cache: str = _switch("kept", "off")
    #: Which lists of commands a single call of C code enqueues. With "usual", these are lists that repeat often; with
    #: "smallest" and "with GIL", all lists that repeat. With "with GIL", the C code does not release the GIL.
    command_batches: str = _switch("usual", "smallest", "with GIL")
    #: The kind of device for which kernels are generated; see `fuzzing.profiles.KERNELS`.
    kernels: str = _switch(*KERNELS)
    #: Whether the device's memory is treated as separate from the host's memory.
    memory: str = _switch(*MEMORIES)
    #: Which matrix products on a GPU read four numbers at a time: only products with few tiles, or all aligned
    #: products.
    quad_tiles: str = _switch("few", "all")

    def begin(self, device: str) -> None:
        """Apply the switches that are not flags of Theano; `device` is the device of this process's functions."""
        if self.command_batches != "usual":
            use_smallest_batches(device, keeps_gil=self.command_batches == "with GIL")
        replace_options(device, quad_tiles=self.quad_tiles)
        replace_profile(device, self.kernels, self.memory)

    def flags(self) -> dict[str, str]:
        """Return the names and values of the flags for THEANO_FLAGS."""
        words = {"on": "True", "off": "False"}
        flags = {
            "optdb.clinker": self.clinker,
            "optdb.topo": words[self.engine_at_import],
            "optdb.op_cache": words[self.op_cache_at_import],
            "optdb.kernel_cache_size": "512" if self.kernel_cache == "kept" else "0",
        }
        return {**flags, "cxx": ""} if self.compiler == "none" else flags


@dataclass(frozen=True)
class Surroundings:
    """The switches that both functions of an example share."""

    #: Whether the op cache is enabled while the graph is built.
    op_cache_for_graph: str = _switch(*ON_OFF[::-1])
    float_dtype: str = _switch("float32", "float64", "float16")
    test_values: str = _switch("off", "ignore", "warn", "raise")
    #: The mode of test values while rewriters run.
    test_values_of_rewriters: str = _switch("off", "ignore", "warn", "raise")
    #: The location of shared variables.
    shared: str = _switch("host", "device")
    #: When the next value of a shared variable may overwrite the current value: at the end of a call, or as soon as no
    #: later node reads the current value.
    next_values: str = _switch("at the end", "early")
    #: Whether both functions are compiled before all calls, or each function at its first call.
    compiled: str = _switch("before calls", "at first call")


@dataclass(frozen=True)
class Compilation:
    """Switches of one function."""

    way: str = _switch("function", "simulator", "pickled simulator", "loop", "file")
    mode: str = _switch("fast_run", "fast_compile", "TOPO", "OPENCL", "lifted")
    linker: str = _switch("py", "c|py", "vm", "cvm", "opencl")
    #: Whether the function was copied or pickled before its first call.
    origin: str = _switch("compiled", "copied", "swapped", "pickled", "cloudpickled")
    engine: str = _switch(*ON_OFF[::-1])
    op_cache: str = _switch(*ON_OFF[::-1])
    shapes: str = _switch(*ON_OFF)
    plans: str = _switch(*ON_OFF)
    fuser: str = _switch("groups", "lazy")
    merge_launches: str = _switch("auto", "always", "never")
    persistent_launches: str = _switch("auto", "always", "split", "never")
    #: What enqueues the first commands of a call: the plan itself, or a `Script` that the caller creates.
    first_commands: str = _switch("plan", "script")
    matmul_precision: str = _switch("highest", "high", "default")
    memory_fraction: str = _switch("1", "0.5")
    allow_gc: str = _switch(*ON_OFF)
    #: Whether the function is tiered, and when it gets its C code: at any time ("on"), before the first call, or
    #: between the first two calls.
    tiered: str = _switch("off", "on", "before calls", "after a call")

    def flags(self) -> dict[str, Any]:
        """Return the flags that are set while the function is compiled and called."""
        return {
            "optdb.shapes": self.shapes == "on",
            "optdb.plans": self.plans == "on",
            "optdb.fuser": self.fuser,
            "optdb.merge_launches": self.merge_launches,
            "optdb.persistent_launches": self.persistent_launches,
            "optdb.matmul_precision": self.matmul_precision,
            "optdb.device_memory_fraction": float(self.memory_fraction),
            "allow_gc": self.allow_gc == "on",
            "optdb.tiered": self.tiered != "off",
        }


@dataclass(frozen=True)
class Switches:
    """The switches of an example with two functions."""

    process: Process = Process()
    surroundings: Surroundings = Surroundings()
    first: Compilation = Compilation()
    second: Compilation = Compilation()
    #: The version of Python that runs the process; it is not drawn.
    python: str = field(default_factory=_python)

    def of(self, number: int) -> Compilation:
        """Return the switches of a function."""
        return (self.first, self.second)[number]

    def common(self) -> dict[str, str]:
        """Return the names and values of the switches that both functions share."""
        parts = dataclasses.asdict(self.process) | dataclasses.asdict(self.surroundings)
        return {"python": self.python, **parts}

    def differing(self) -> dict[str, dict[str, object]]:
        """Return the switches whose values differ from the defaults, in a dictionary by the fields of this class."""
        return {
            part.name: {
                name: value
                for name, value in dataclasses.asdict(getattr(self, part.name)).items()
                if value != values_of(type(getattr(self, part.name)))[name][0]
            }
            for part in dataclasses.fields(self)
            if part.name != "python"
        }

    def script(self) -> str:
        """Return the switches as Python code."""
        parts = {"process": Process, "surroundings": Surroundings, "first": Compilation, "second": Compilation}
        arguments = {
            name: ", ".join(f"{switch}={value!r}" for switch, value in self.differing()[name].items()) for name in parts
        }
        return "\n".join(
            ["Switches(", *[f"    {name}={cls.__name__}({arguments[name]})," for name, cls in parts.items()], ")"]
        )


def values_of(part: type) -> dict[str, tuple[str, ...]]:
    """Return the switches of a dataclass such as `Process`, each with its possible values."""
    return {switch.name: switch.metadata["values"] for switch in dataclasses.fields(part)}


@dataclass(frozen=True)
class Exclusion:
    """A rule that excludes the combination of one of the values `first` and one of the values `second`."""

    first: tuple[str, tuple[str, ...]]
    second: tuple[str, tuple[str, ...]]
    reason: str

    def holds(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Return whether the rule excludes the combination of two values, in either order."""
        return any(
            a[0] == self.first[0] and a[1] in self.first[1] and b[0] == self.second[0] and b[1] in self.second[1]
            for a, b in ((one, other), (other, one))
        )


EXCLUDED: tuple[Exclusion, ...] = (
    Exclusion(("mode", ("OPENCL",)), ("linker", ("py", "c|py", "vm", "cvm")), "mode OPENCL has its own linker"),
    Exclusion(
        ("origin", ("copied", "swapped")),
        ("linker", ("c|py",)),
        "Theano's Function.copy does not support this linker",
    ),
    Exclusion(("way", ("file",)), ("plans", ("off",)), "an exported file contains a plan"),
    Exclusion(
        ("kernels", ("gpu", "copying gpu", "warpgroup gpu")),
        ("persistent_launches", ("always", "split")),
        "PoCL 3.1 hangs or writes out of bounds when work groups of a GPU's size have barriers in nested loops",
    ),
    Exclusion(
        ("kernels", ("copying gpu",)),
        ("matmul_precision", ("high", "default")),
        "GPUs with asynchronous copies have tensor cores, and PoCL 3.1 crashes when it compiles emulated "
        "tensor-core kernels",
    ),
    Exclusion(
        ("test_values", ("off",)),
        ("test_values_of_rewriters", ("warn", "raise")),
        "without test values of inputs, rewriters compute no test values",
    ),
    Exclusion(
        ("test_values_of_rewriters", ("ignore", "warn", "raise")),
        ("compiled", ("at first call",)),
        "a shared variable may have a new shape then, and Theano rejects replacements of variables that depend on it",
    ),
)

#: Maps a flag of optdb to the switch that sets it.
FLAGS: dict[str, str] = {
    "optdb.topo": "engine_at_import",
    "optdb.op_cache": "op_cache_at_import",
    "optdb.shapes": "shapes",
    "optdb.clinker": "clinker",
    "optdb.device": "mode",
    "optdb.contexts": "shared",
    "optdb.kernel_cache_size": "kernel_cache",
    "optdb.plans": "plans",
    "optdb.fuser": "fuser",
    "optdb.merge_launches": "merge_launches",
    "optdb.persistent_launches": "persistent_launches",
    "optdb.matmul_precision": "matmul_precision",
    "optdb.device_memory_fraction": "memory_fraction",
    "optdb.tiered": "tiered",
}

#: For each flag of optdb that no switch sets, the reason.
NOT_DRAWN: dict[str, str] = {
    "optdb.trace": "it only prints",
    "optdb.kernel_cache_dir": "the choice of folder does not matter",
}


def exclusion(one: tuple[str, str], others: Mapping[str, str] | Collection[tuple[str, str]]) -> Exclusion | None:
    """Return the first rule that excludes the combination of a value and one of `others`, or None."""
    pairs = others.items() if isinstance(others, Mapping) else others
    return next((rule for rule in EXCLUDED for other in pairs if rule.holds(one, other)), None)


@contextlib.contextmanager
def in_force(op_cache: bool = False, on: bool = False, flags: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Enable or disable the op cache and the engine, and set flags; restore the previous state after the block."""
    before = optdb.cache.is_installed(), engine.is_enabled()
    _put(op_cache, on)
    try:
        with theano.change_flags(**(flags or {})):
            yield
    finally:
        _put(*before)


def _put(op_cache: bool, on: bool) -> None:
    if op_cache != optdb.cache.is_installed():
        (optdb.cache.install if op_cache else optdb.cache.uninstall)()
    if on != engine.is_enabled():
        (optdb.enable if on else optdb.disable)()
