"""The switches of an example: their values, which values exclude each other, and how the switches are set."""

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
    """Return the field of a switch with these values; the first one is the default."""
    return field(default=values[0], metadata={"values": values})


def _python() -> str:
    numpy = ".".join(np.__version__.split(".")[:2])
    return f"{'.'.join(platform.python_version_tuple()[:2])} with NumPy {numpy}"


@dataclass(frozen=True)
class Process:
    """Switches of a whole process: Theano reads them when it is imported."""

    compiler: str = _switch("none", "g++")
    clinker: str = _switch("auto", "True", "False")
    engine_at_import: str = _switch("off", "on")
    op_cache_at_import: str = _switch("off", "on")
    kernel_cache: str = _switch("kept", "off")
    #: Which lists of commands are enqueued by one call of C code: lists that repeat often, or ("smallest", "with GIL")
    #: all lists that repeat. With "with GIL", these calls keep the GIL.
    command_batches: str = _switch("usual", "smallest", "with GIL")
    #: The kind of device that kernels are written for, see `fuzzing.profiles.KERNELS`.
    kernels: str = _switch(*KERNELS)
    #: Whether the device is treated as one whose memory is separate from the host's memory.
    memory: str = _switch(*MEMORIES)
    #: Which products on a GPU read four numbers at a time: products with few tiles, or all aligned products.
    quad_tiles: str = _switch("few", "all")

    def begin(self, device: str) -> None:
        """Set the switches that are not flags; `device` is the device of this process's functions."""
        if self.command_batches != "usual":
            use_smallest_batches(device, keeps_gil=self.command_batches == "with GIL")
        replace_options(device, quad_tiles=self.quad_tiles)
        replace_profile(device, self.kernels, self.memory)

    def flags(self) -> dict[str, str]:
        """Return the flags of the process by name, for THEANO_FLAGS."""
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
    """Switches that both functions of an example share."""

    #: Whether ops are created under the op cache.
    op_cache_for_graph: str = _switch(*ON_OFF[::-1])
    float_dtype: str = _switch("float32", "float64", "float16")
    test_values: str = _switch("off", "ignore", "warn", "raise")
    #: The mode of test values while rewriters run.
    test_values_of_rewriters: str = _switch("off", "ignore", "warn", "raise")
    #: The location of shared variables.
    shared: str = _switch("host", "device")
    #: When a variable's next value may overwrite its current value: at the end, or as soon as no later node reads the
    #: current value.
    next_values: str = _switch("at the end", "early")
    #: When the functions are compiled.
    compiled: str = _switch("before calls", "at first call")


@dataclass(frozen=True)
class Compilation:
    """Switches of one function."""

    way: str = _switch("function", "simulator", "pickled simulator", "loop", "file")
    mode: str = _switch("fast_run", "fast_compile", "TOPO", "OPENCL", "lifted")
    linker: str = _switch("py", "c|py", "vm", "cvm", "opencl")
    #: What was done to the function before its first call.
    origin: str = _switch("compiled", "copied", "swapped", "pickled", "cloudpickled")
    engine: str = _switch(*ON_OFF[::-1])
    op_cache: str = _switch(*ON_OFF[::-1])
    shapes: str = _switch(*ON_OFF)
    plans: str = _switch(*ON_OFF)
    merge_launches: str = _switch("auto", "always", "never")
    persistent_launches: str = _switch("auto", "always", "split", "never")
    #: What enqueues the first commands of a call: the plan, or a `Script` that the caller creates.
    first_commands: str = _switch("plan", "script")
    matmul_precision: str = _switch("highest", "high", "default")
    memory_fraction: str = _switch("1", "0.5")
    allow_gc: str = _switch(*ON_OFF)
    #: When a tiered function gets its C code: at any time, before the first call, or between the first two calls.
    tiered: str = _switch("off", "on", "before calls", "after a call")

    def flags(self) -> dict[str, Any]:
        """Return the flags under which the function is compiled and called."""
        return {
            "optdb.shapes": self.shapes == "on",
            "optdb.plans": self.plans == "on",
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
    #: The Python that runs the process; this is not drawn.
    python: str = field(default_factory=_python)

    def of(self, number: int) -> Compilation:
        """Return the switches of a function."""
        return (self.first, self.second)[number]

    def common(self) -> dict[str, str]:
        """Return the values of the switches that both functions share, by the name of the switch."""
        parts = dataclasses.asdict(self.process) | dataclasses.asdict(self.surroundings)
        return {"python": self.python, **parts}

    def differing(self) -> dict[str, dict[str, object]]:
        """Return, for each part, the switches whose values differ from the defaults."""
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
    """Return the switches of a part, with the values of each."""
    return {switch.name: switch.metadata["values"] for switch in dataclasses.fields(part)}


@dataclass(frozen=True)
class Exclusion:
    """Values of two switches that exclude each other: no function has one of `first` and one of `second`."""

    first: tuple[str, tuple[str, ...]]
    second: tuple[str, tuple[str, ...]]
    reason: str

    def holds(self, one: tuple[str, str], other: tuple[str, str]) -> bool:
        """Return whether two values, in either order, are one of the excluded combinations."""
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

#: Flags of optdb, and the switches that set them.
FLAGS: dict[str, str] = {
    "optdb.topo": "engine_at_import",
    "optdb.op_cache": "op_cache_at_import",
    "optdb.shapes": "shapes",
    "optdb.clinker": "clinker",
    "optdb.device": "mode",
    "optdb.contexts": "shared",
    "optdb.kernel_cache_size": "kernel_cache",
    "optdb.plans": "plans",
    "optdb.merge_launches": "merge_launches",
    "optdb.persistent_launches": "persistent_launches",
    "optdb.matmul_precision": "matmul_precision",
    "optdb.device_memory_fraction": "memory_fraction",
    "optdb.tiered": "tiered",
}

#: Flags of optdb that are not switches, with the reason.
NOT_DRAWN: dict[str, str] = {
    "optdb.trace": "it only prints",
    "optdb.kernel_cache_dir": "the choice of folder does not matter",
}


def exclusion(one: tuple[str, str], others: Mapping[str, str] | Collection[tuple[str, str]]) -> Exclusion | None:
    """Return the first rule that excludes a value in combination with one of `others`, or None."""
    pairs = others.items() if isinstance(others, Mapping) else others
    return next((rule for rule in EXCLUDED for other in pairs if rule.holds(one, other)), None)


@contextlib.contextmanager
def in_force(op_cache: bool = False, on: bool = False, flags: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Set the op cache, the engine and flags within the block; then restore the previous state."""
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
