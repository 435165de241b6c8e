"""The ``optdb.*`` flags, declared as data.

``optdb.host.theano.importing.flags`` registers the flags in Theano. Users set a flag in ``THEANO_FLAGS`` or in section
``optdb`` of ``.theanorc``, like Theano's own flags.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optdb.unknown_names import nearest

#: The accepted spellings of each boolean; the first one is displayed. Theano accepts the same spellings.
BOOL = (("True", True), ("False", False), ("true", True), ("false", False), ("1", True), ("0", False))


class FlagError(ValueError):
    """Raised if a flag does not exist or does not accept a value."""


class UnknownMode(FlagError):
    """Raised if no mode has a given name."""


@dataclass(frozen=True)
class Flag:
    """One flag: its name, its values and its documentation.

    Parameters
    ----------
    name : str
        The full name, with its section.
    default : object
        The value if the user sets none.
    doc : str
        The flag's effect, in one or two sentences, as shown by ``print(theano.config)``.
    spellings : tuple of (str, object)
        Each accepted text, and its value.
    check : callable, optional
        For a flag whose accepted texts cannot be listed: returns the value of a text, or
        raises ValueError with the reason why the flag does not accept it.
    takes : str
        A description of the accepted texts, ready to print.
    reads : bool
        Whether the flag's value is the result of `check` instead of the text.
    live : bool
        Whether the user may change the flag after Theano is imported.
    later : str
        For a flag that is not live, the call to use instead of changing the flag after Theano is imported.
    """

    name: str
    default: Any
    doc: str
    spellings: tuple[tuple[str, Any], ...] = BOOL
    live: bool = True
    check: Callable[[str], object] | None = None
    takes: str = ""
    reads: bool = False
    later: str = ""

    def cannot_change(self, value: object) -> FlagError:
        """Return the error for a value that is assigned after Theano is imported."""
        cure = f"call {self.later}" if self.later else f"start again with THEANO_FLAGS={self.name}={value}"
        return FlagError(f"{self.name} is read once, when Theano is imported.\nThe cure: {cure}")

    @property
    def allowed(self) -> str:
        """The accepted values, each in its first spelling, ready to print."""
        if self.check is not None:
            return self.takes
        shown: dict[Any, str] = {}
        for text, value in self.spellings:
            shown.setdefault(value, text)
        return " or ".join(shown.values())

    def parse(self, value: object) -> Any:
        """Convert the user's text to the flag's value; raise FlagError if the flag does not accept the text."""
        if self.check is None:
            for spelling, meaning in self.spellings:
                if spelling == str(value):
                    return meaning
            raise FlagError(f"{self.name}={value}: {self.name} is {self.allowed}")
        text = str(value).strip()
        try:
            read = self.check(text)
        except ValueError as error:
            raise FlagError(f"{self.name}={text}: {error}") from None
        return read if self.reads else text


#: Matches a device given as a platform number and a device number, such as ``opencl0:1``. Any other text is searched
#: for in devices' names.
_NUMBERED = re.compile(r"opencl\d+:\d+(\s*\[\d+/\d+\])?")
_ALMOST_NUMBERED = re.compile(r"opencl\d*:?\d*$")
#: Matches a device's name in Theano's own GPU back-end, such as ``cuda0``.
_NUMBERED_BY_THEANO = re.compile(r"(cuda|gpu)\d+$")
_A_DEVICE = (
    "a device is opencl, opencl<platform>:<device>, gpu, a driver (pocl, nvidia, ...), or part of a device's name"
)


def device_spec(text: str) -> str:
    """Return the text without surrounding whitespace; raise ValueError if it cannot name a device."""
    text = text.strip()
    if not text or "->" in text or ";" in text:
        raise ValueError(_A_DEVICE)
    bare = text.partition("[")[0].strip()
    if bare != "opencl" and _ALMOST_NUMBERED.match(bare) and not _NUMBERED.fullmatch(text):
        raise ValueError("a numbered device is opencl<platform>:<device>, such as opencl0:0")
    if _NUMBERED_BY_THEANO.match(bare):
        raise ValueError(
            f"{bare} is a device name of Theano's GPU back-end; write nvidia or gpu for the best such device, or a "
            "number, opencl<platform>:<device>. `python -m optdb devices` lists the devices"
        )
    return text


def context_pairs(text: str) -> list[tuple[str, str]]:
    """Read the flag optdb.contexts, such as ``dev0->opencl0:0;dev1->opencl0:1``.

    Return pairs of a context's name and its device; raise ValueError if the text is malformed.
    """
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, arrow, device = map(str.strip, part.partition("->"))
        if not arrow or not name or not device:
            raise ValueError(
                f"{part!r} is not name->device; write THEANO_FLAGS='optdb.contexts=dev0->opencl0:0;dev1->opencl0:1'"
            )
        if name == "cpu":
            raise ValueError("cpu is the host, not a device")
        if name in pairs:
            raise ValueError(f"{name} is given twice")
        pairs[name] = device_spec(device)
    return list(pairs.items())


def megabytes(text: str) -> int:
    """Read a size; raise ValueError if the text is not a whole number, 0 or above."""
    if not text.isdecimal():
        raise ValueError("a size is an integer number of megabytes, such as 512, or 0 to disable the cache")
    return int(text)


def fraction(text: str) -> float:
    """Read a fraction; raise ValueError if the text is not a number above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ValueError("the value is a fraction above 0 and at most 1, such as 0.5")
    return value


#: Maps each topic to a description of what its names select; None if the topic takes no names.
TOPICS: Mapping[str, str | None] = {
    "rewrites": "rules or ops",
    "phases": None,
    "lifts": "ops or lifters",
    "launches": "kernels",
    "compilers": None,
    "shared": None,
}
#: The topics that the value True selects.
_USUAL_TOPICS = ("rewrites", "phases", "shared")
#: The accepted values of the flag, ready to print.
_TRACE_TAKES = "True, False, or topics joined by +: " + ", ".join(
    f"{name}[:{of}]" if of else name for name, of in TOPICS.items()
)


def trace_value(text: str) -> bool | str:
    """Return the value of the flag optdb.trace: a boolean, or the topics as written; see `traced_topics`."""
    if text in dict(BOOL):
        return dict(BOOL)[text]
    traced_topics(text)
    return text


def traced_topics(value: bool | str) -> dict[str, tuple[str, ...]]:
    """Return the topics that a value of the flag optdb.trace selects, with patterns for the names to trace.

    A topic without patterns is traced as a whole. Raise ValueError if a topic does not exist, or if names are given for
    a topic that takes no names.
    """
    if isinstance(value, bool):
        return dict.fromkeys(_USUAL_TOPICS, ()) if value else {}
    selection: dict[str, tuple[str, ...]] = {}
    for part in re.split("[+,]", value):
        topic, colon, names = (piece.strip() for piece in part.partition(":"))
        if topic not in TOPICS:
            near = nearest(topic, [*TOPICS, "True", "False"])
            guess = "." if near is None else f"; did you mean {near}?"
            raise ValueError(f"there is no topic {topic!r}{guess} The flag takes {_TRACE_TAKES}")
        patterns = tuple(filter(None, map(str.strip, names.split("|"))))
        if colon and TOPICS[topic] is None:
            raise ValueError(f"{topic} takes no names; write {topic} alone")
        if colon and not patterns:
            raise ValueError(f"names of {TOPICS[topic]} follow {topic}:, joined by |; for all of them, write {topic}")
        everything = selection.get(topic) == () or not patterns
        selection[topic] = () if everything else (*selection.get(topic, ()), *patterns)
    return selection


FLAGS: tuple[Flag, ...] = (
    Flag(
        "optdb.topo",
        False,
        "Run Theano's phases with optdb's engine from the import of Theano on. Later, optdb.enable() and "
        "optdb.disable() switch it.",
        live=False,
        later="optdb.enable() or optdb.disable()",
    ),
    Flag(
        "optdb.op_cache",
        False,
        "Constructing an op returns the existing equal one, from the import of Theano on. Later, "
        "optdb.cache.install() and optdb.cache.uninstall() switch it.",
        live=False,
        later="optdb.cache.install() or optdb.cache.uninstall()",
    ),
    Flag(
        "optdb.shapes",
        True,
        "Rewriters can use symbolic shapes (Theano's ShapeFeature). Without it optdb compiles sooner, and lengths "
        "that follow from the inputs are computed from arrays.",
    ),
    Flag(
        "optdb.clinker",
        "auto",
        "Build the C code of functions in batches, and reuse built modules without starting a compiler: while the "
        "engine is on (auto), always (True), or never (False: Theano's own C linker).",
        spellings=(("auto", "auto"), *BOOL),
        live=False,
    ),
    Flag(
        "optdb.tiered",
        False,
        "theano.function returns when the graph is optimized, without waiting for compilers: nodes compute in Python "
        "until their C code is built. The flag is read when a function is compiled; it needs optdb's C linker.",
    ),
    Flag(
        "optdb.trace",
        False,
        "Print what happens, as it happens: rewrites of the engine, results of its phases, lifts to a device, kernel "
        "launches, compilers with their seconds, and shared variables that differ on host and device. True is "
        "rewrites+phases+shared.",
        check=trace_value,
        takes=_TRACE_TAKES,
        reads=True,
    ),
    Flag(
        "optdb.device",
        "cpu",
        "The device that computes graphs and stores the arrays of theano.shared.",
        live=False,
        check=device_spec,
        takes="cpu, opencl, opencl<platform>:<device>, gpu, a driver (pocl, nvidia, intel, amd, oclgrind), part of a "
        "device's name, or a name in optdb.contexts",
    ),
    Flag(
        "optdb.contexts",
        "",
        "Names of devices, used as targets of transfers and of theano.shared.",
        live=False,
        check=context_pairs,
        takes="name->device;name->device;...",
    ),
    Flag(
        "optdb.kernel_cache_dir",
        "",
        "The folder of built OpenCL programs and of tuning results; by default in the user's cache folder.",
        live=False,
        check=str,
        takes="a folder",
    ),
    Flag(
        "optdb.kernel_cache_size",
        512,
        "The size of the folder of built OpenCL programs, in megabytes. The least recently used programs are "
        "removed first; 0 disables the cache.",
        live=False,
        check=megabytes,
        takes="a number of megabytes",
        reads=True,
    ),
    Flag(
        "optdb.plans",
        True,
        "A function on a device repeats the recorded commands of an earlier call with inputs of the same shapes. The "
        "flag is read when a function is compiled.",
    ),
    Flag(
        "optdb.fuser",
        "groups",
        "What chooses the kernels of fused ops on a device: groups of ops with the same axes (groups), or the "
        "scheduler of lazy tensors (lazy). The flag is read when a function is compiled.",
        spellings=(("groups", "groups"), ("lazy", "lazy")),
    ),
    Flag(
        "optdb.merge_launches",
        "auto",
        "Plans merge small launches on devices where a launch costs more than a small kernel. The merged kernel is "
        "compiled once the launches have taken as long as compiling it (auto), with the plan (always), or not at "
        "all (never). The flag is read when a plan is made.",
        spellings=(("auto", "auto"), ("always", "always"), ("never", "never")),
    ),
    Flag(
        "optdb.persistent_launches",
        "auto",
        "Plans run chains of small commands as one persistent launch with grid barriers: on devices whose profile "
        "says so (auto); on all devices that support grid barriers, and by a single group on processors (always); "
        "or not at all (never). For debugging, split runs each phase between two barriers as a separate launch, "
        "whose commands run in any order. The flag is read when a plan is made.",
        spellings=(("auto", "auto"), ("always", "always"), ("never", "never"), ("split", "split")),
    ),
    Flag(
        "optdb.matmul_precision",
        "highest",
        "How a device multiplies float32 matrices: in float32 (highest), or, on tensor cores that optdb can use, as "
        "sums of two TF32 numbers (high) or rounded to TF32 (default), as in JAX. Both also use tensor cores for "
        "float16 products, and default uses them for convolutions. The flag is read when a function is compiled; "
        "exported files use highest.",
        spellings=(("highest", "highest"), ("high", "high"), ("default", "default")),
    ),
    Flag(
        "optdb.device_memory_fraction",
        1.0,
        "The fraction of a device's memory that the values of one function may use: some drivers report more memory "
        "than is usable.",
        check=fraction,
        takes="a fraction above 0 and at most 1",
        reads=True,
    ),
)

#: Values from the command line, by flag name; when Theano is imported, they override the user's values.
FORCED: dict[str, Any] = {}

#: Maps each flag that names a device of Theano's own GPU back-end to the corresponding flag of optdb.
_FLAG_FOR = {"device": "optdb.device", "init_gpu_device": "optdb.device", "contexts": "optdb.contexts"}
#: Maps each prefix of device names in Theano's own GPU back-end to the corresponding device of optdb.
_DEVICE_FOR = {"cuda": "nvidia", "gpu": "gpu", "opencl": "opencl"}


def _here(device: re.Match[str]) -> str:
    """Return optdb's name for a device of Theano's GPU back-end; numbered OpenCL devices keep their names."""
    name = device[0]
    if _NUMBERED.fullmatch(name):
        return name
    return next((own for prefix, own in _DEVICE_FOR.items() if name.startswith(prefix)), name)


def check_gpu_backend(name: str, value: str) -> None:
    """Raise FlagError if a Theano flag names a device of Theano's GPU back-end, unless its library is installed.

    The flag's `name` is 'device', 'init_gpu_device' or 'contexts'.
    """
    meant = bool(value) if name == "contexts" else value.startswith(tuple(_DEVICE_FOR))
    if not meant or importlib.util.find_spec("pygpu") is not None:
        return
    wanted = re.sub(r"(?<=->)[^;]*" if name == "contexts" else "^.*", _here, value)
    setting = f"{_FLAG_FOR[name]}={wanted}"
    if re.search("[<>;|&]", setting):
        setting = f"'{setting}'"
    raise FlagError(
        f"{name}={value}: this flag is for Theano's own GPU back-end, whose library (pygpu) is not installed.\n"
        f"The cure: set optdb's flag instead, THEANO_FLAGS={setting}; `python -m optdb devices` lists the devices"
    )


def unknown_mode(name: object, modes: Iterable[str], flag: str = "") -> UnknownMode:
    """Return the error for an unknown mode's name; `flag` is the flag that was set to this name, if any."""
    modes = sorted(modes)
    setting = f"{flag}={name}" if flag else name
    near = nearest(str(name).upper(), modes)
    guess = "" if near is None else f"; did you mean {near}?"
    return UnknownMode(f"{setting}: no such mode{guess}\nThe modes are {', '.join(modes)}")


def unknown(name: str, declared: Iterable[str]) -> FlagError:
    """Return the error for a flag's name that is not in `declared`."""
    if name.removeprefix(SECTION) in _ENGINE_SWITCHES:
        return FlagError(f"{name}: no such flag; optdb.topo=True turns the engine on. optdb.topo is {FLAGS[0].allowed}")
    declared = sorted(declared)
    hint = _guess_flag(name, declared) or f"the flags are {', '.join(declared)}"
    return FlagError(f"{name}: no such flag; {hint}")


def misspelt_section(name: str) -> str:
    """Return a suggestion for a flag whose section is missing or misspelt, such as ``opdb.topo``; '' otherwise."""
    names = [flag.name for flag in FLAGS]
    section, dot, rest = name.partition(".")
    if not dot:
        return f"did you mean {SECTION}{name}?" if f"{SECTION}{name}" in names else ""
    return _guess_flag(SECTION + rest, names) if nearest(f"{section}.", [SECTION]) else ""


#: The prefix of the flags' names, which is the name of their section.
SECTION = "optdb."
#: Names that users might guess for the flag that turns the engine on.
_ENGINE_SWITCHES = ("enable", "enabled", "disable", "engine", "on")


def _guess_flag(name: str, names: Iterable[str]) -> str:
    """Suggest the flag with the most similar name, ignoring the section; return '' if none is similar."""
    near = nearest(name.removeprefix(SECTION), [flag.removeprefix(SECTION) for flag in names])
    return "" if near is None else f"did you mean {SECTION}{near}?"
