"""OpenCL programs, built once per process and cached on disk; build errors show the source with line numbers.

NVIDIA's OpenCL compiler rejects PTX instructions that need an architecture-specific target such as 9.0a. Kernels
therefore contain these instructions as comments in inline PTX, such as
``asm volatile("//@ wgmma.fence.sync.aligned;");``, and the compiler keeps the comments. In the compiled PTX,
`with_instructions` turns the comments into instructions and changes the target.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from optdb import trace_log
from optdb.runtime import binaries, declarations
from optdb.runtime.library import build_quietly, cl

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_logger = logging.getLogger(__name__)

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b", re.MULTILINE)
#: Matches the text that PyOpenCL adds around the compiler's log in an error.
_LOG = re.compile(r"Build on <.*?>:\s*(.*?)\s*(?:\(options: .*)?\Z", re.DOTALL)

#: The programs built for each context, keyed by source and options, and dropped with the context.
_built: WeakKeyDictionary[Context, dict[tuple[str, tuple[str, ...]], cl.Program]] = WeakKeyDictionary()

#: Whether a context's programs declare the built-ins that they use, as determined when the first program is built.
_DECLARED: WeakKeyDictionary[Context, bool] = WeakKeyDictionary()


class BuildError(RuntimeError):
    """An OpenCL compiler's error, with the compiler's log and the source with line numbers."""

    def __init__(self, message: str, log: str = "", source: str = "") -> None:
        super().__init__(message)
        self.log = log  #: The compiler's log.
        self.source = source  #: The source as passed to the compiler.


def build(
    context: Context, source: str, options: Iterable[str] = (), name: str = "the program", own_lines: int = 0
) -> cl.Program:
    """Build a program for a context's device, or return the program if it was already built.

    Each option is one string, as in ``["-DWIDTH=4"]``. A BuildError names the program `name`, and omits the first
    `own_lines` lines of the source.
    """
    key = (source, tuple(options))
    built = _built.setdefault(context, {})
    if key not in built:
        built[key] = make(context, *key, name, own_lines)
    return built[key]


def source_of(context: Context, program: cl.Program) -> str:
    """Return a program's source; '' if it is unknown."""
    loaded = context.kept.get(__name__, {}).get(program.int_ptr)
    if loaded is not None:
        return cast("str", loaded[1])
    return declarations.without_declarations(cast("str", program.get_info(cl.program_info.SOURCE)))


def make(
    context: Context, source: str, options: Iterable[str] = (), name: str = "the program", own_lines: int = 0
) -> cl.Program:
    """Load a program from disk or build it; unlike `build`, do not reuse a program built earlier in this process."""
    options = tuple(options)
    folder = binaries.for_device(context.device)
    # The key of a binary does not cover included files.
    if folder is None or ("include" in source and _INCLUDE.search(source)):
        return _compile(context, source, options, name, own_lines)
    key = binaries.key_of(context.device, source, options)
    program = _load(context, folder, key, options)
    if program is None:
        program = _compile(context, source, options, name, own_lines)
        _keep(program, folder, key)
        return program
    _note_source(context, program, source)
    return program


def _note_source(context: Context, program: cl.Program, source: str) -> None:
    """Record the source of a program, because a program built from a binary lacks it."""
    # Keep the program alive, so that its handle is not reused.
    context.kept.setdefault(__name__, {})[program.int_ptr] = program, source


def _compile(context: Context, source: str, options: tuple[str, ...], name: str, own_lines: int) -> cl.Program:
    try:
        with trace_log.compiler_run("OpenCL compiler", lambda: f"{name}, for {context.profile.name}"):
            program = _compiled(context, source, options, name)
            if not context.profile.quirks.takes_ptx or f'"{MARK}' not in source:
                return program
            # Turn the comments that contain instructions into code.
            binary = with_instructions(_binary_of(program))
            program = cl.Program(context.cl_context, [context.device], [binary])
            program = _built_quietly(program, options, name)
    except (cl.Error, ValueError) as error:
        log = _log(error)
        suffix = f" with {' '.join(options)}" if options else ""
        refusal = f"{name} does not build on {context.profile.name}{suffix}:\n{log}\n\n{numbered(source, own_lines)}"
        raise BuildError(refusal, log, source) from None
    _note_source(context, program, source)
    return program


def _compiled(context: Context, source: str, options: tuple[str, ...], name: str) -> cl.Program:
    if context.profile.quirks.parses_large_header and _DECLARED.get(context, True):
        try:
            declared = declarations.declared(source, context.profile.float64)
            program = cl.Program(context.cl_context, declared)
            program = _built_quietly(program, (*options, declarations.GUARD), name)
        except cl.Error as error:
            _logger.debug("building %s again, with all declarations: %s", name, error)
        else:
            _DECLARED[context] = True
            return program
    program = _built_quietly(cl.Program(context.cl_context, source), options, name)
    # Do not try declarations again, because later programs would then be built twice.
    _DECLARED.setdefault(context, False)
    return program


def _built_quietly(program: cl.Program, options: Iterable[str], name: str) -> cl.Program:
    # Bypass PyOpenCL's own cache, which would store a second copy of the binaries.
    program = build_quietly(program, options)
    for device in program.devices:
        log: str = program.get_build_info(device, cl.program_build_info.LOG)  # type: ignore[no-untyped-call]  # PyOpenCL's
        messages = log.strip()
        if messages:
            _logger.info("%s was built on %s with messages of the compiler:\n%s", name, device.name.strip(), messages)
    return program


def _load(context: Context, kept: binaries.Binaries, key: str, options: tuple[str, ...]) -> cl.Program | None:
    binary = kept.load(key)
    if binary is None:
        return None
    try:
        return _built_quietly(cl.Program(context.cl_context, [context.device], [binary]), options, "a cached program")
    except cl.Error as error:
        _logger.info("the driver rejected a cached program, which is built again: %s", error)
        kept.discard(key)
        return None


def _keep(program: cl.Program, kept: binaries.Binaries, key: str) -> None:
    try:
        binary = _binary_of(program)
    except cl.Error as error:
        _logger.info("a program cannot be cached: %s", error)
        return
    if binary:
        kept.save(key, binary)


def _binary_of(program: cl.Program) -> bytes:
    (binary,) = cast("list[bytes]", program.get_info(cl.program_info.BINARIES))
    return binary


def numbered(source: str, own_lines: int = 0) -> str:
    """Return the source with line numbers, without the first `own_lines` lines."""
    lines = source.splitlines()
    return "\n".join(f"{number:4}  {line}".rstrip() for number, line in enumerate(lines, 1) if number > own_lines)


def _log(error: Exception) -> str:
    text = str(error)
    match = _LOG.search(text)
    return match[1] if match else text


#: The prefix of a comment that contains an instruction.
MARK = "//@ "

_TARGET = re.compile(r"^(\.target\s+sm_\d+)\b(?!a)", re.MULTILINE)


def with_instructions(binary: bytes) -> bytes:
    """Turn the comments in PTX that begin with `MARK` into instructions, and set a target that supports them.

    Raise ValueError if the binary is not PTX or contains no comments that begin with `MARK`.
    """
    try:
        text = binary.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the driver's binary is not PTX: {error}") from None
    if MARK not in text:
        raise ValueError(f"the driver's PTX lacks the comments that begin with {MARK.strip()}")
    return _TARGET.sub(r"\1a", text).replace(MARK, "").encode()
