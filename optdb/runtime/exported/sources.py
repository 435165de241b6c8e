"""The form of programs in a file, so narrow that a check of it can be complete.

A program is fully preprocessed OpenCL C (``preprocessing`` brings kernels into this form when they are exported).
There are no macros, includes or conditions, no comments, texts, backslashes or trigraphs.
A ``#`` begins a line that is one of a few pragmas. Names that belong to the compiler (``__builtin_trap``, ``_Pragma``)
are those of address spaces and of a few attributes. So the tokens that are checked here are those that a compiler sees.

`read_program` checks a text, in linear time, and returns the parameters of each kernel's declaration: drivers trust
the arguments that are set, and not all of them report the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from optdb.runtime.operands import LONG16, POINTERS

#: Clang refuses more brackets within each other; others recurse.
_MAX_BRACKET_DEPTH = 250
_MAX_NAME_LENGTH = 1024
_MAX_ATTRIBUTE_TOKENS = 64

_STRANGE = re.compile(r"[^\n\x20-\x7e]|[\\\"'`@$]|\?\?|//|/\*|%:|<:|:>|<%|%>")
_DIRECTIVE = re.compile(
    r"#pragma (?:unroll(?: \d{1,4})?|OPENCL FP_CONTRACT (?:ON|OFF|DEFAULT)"
    r"|OPENCL EXTENSION cl_khr_\w{1,64} : enable)\Z",
    re.ASCII,
)
#: Numbers are scanned as a preprocessor does, so that no name is taken for a part of one, nor the other way round.
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)|[^\s]", re.ASCII)
_RESERVED = re.compile(r"__|_[A-Z]")
_OWN_RESERVED = frozenset(
    ["__kernel", "__global", "__local", "__constant", "__private", "__const", "__restrict", "__attribute__"]
)
#: What could leave the program, and printf, which writes to the standard output of the process.
_REFUSED_WORDS = frozenset(["asm", "include", "include_next", "import", "embed", "defined", "typeof", "printf"])
_HANDLES = re.compile(r"\b(sampler_t|image[123]d\w*|pipe|queue_t|event_t|clk_event_t|reserve_id_t|ndrange_t)\b")
_ATTRIBUTES = (
    "reqd_work_group_size|work_group_size_hint|vec_type_hint|opencl_unroll_hint"
    "|aligned|packed|noinline|always_inline|unused|pure|const"
)
#: How an attribute of a file begins, as tokens with spaces between: names of a list, with names and small numbers.
_ATTRIBUTE = rf"__attribute__ \( \( (?:(?:{_ATTRIBUTES}|,) |\( (?:(?:,|\d{{1,5}}|[a-z]\w{{0,15}}) )*\) )*"
_WHOLE_ATTRIBUTES = rf"(?:{_ATTRIBUTE}\) \) )*"
_ENDED_ATTRIBUTE = re.compile(rf"{_ATTRIBUTE}(?P<end>\) \)|\S+)", re.ASCII)
_KERNEL = re.compile(
    rf"(?:__kernel|kernel) {_WHOLE_ATTRIBUTES}void {_WHOLE_ATTRIBUTES}"
    r"(?!__attribute__ )(?P<name>[A-Za-z_]\w*) \( (?P<params>[^)]*)\)",
    re.ASCII,
)

_SPACES = {f"{mark}{space}": space for mark in ("", "__") for space in (*POINTERS, "private")}
_QUALIFIERS = frozenset(["const", "restrict", "volatile", "__const", "__restrict"])
#: The numbers that kernels take, as OpenCL C and as the file calls them.
NUMBERS = {
    **{"char": "int8", "uchar": "uint8", "unsigned char": "uint8", "short": "int16", "ushort": "uint16"},
    **{"unsigned short": "uint16", "int": "int32", "uint": "uint32", "unsigned int": "uint32", "long": "int64"},
    **{"ulong": "uint64", "unsigned long": "uint64", "float": "float32", "double": "float64"},
    **{"long16": LONG16, "ulong16": LONG16},
}
#: What may stand ahead of the type of a number in a typedef: it is no name that is declared there.
_BEFORE_TYPE = frozenset(["typedef", "unsigned", "signed", *_QUALIFIERS, *_SPACES])


class SourceError(ValueError):
    """A program is not in the form of a file's programs. The message names the place and the fault."""


def is_handle(kind: str) -> bool:
    """Tell whether a type of OpenCL C is one that drivers take by an address that they trust."""
    return _HANDLES.search(kind) is not None


def read_program(source: str) -> Mapping[str, tuple[str, ...]]:
    """Check a program in OpenCL C, and return the parameters of each of its kernels.

    A parameter is 'global', 'constant', 'local', the dtype of a number, or 'long16'. Raise a SourceError if the
    program is not in the form of this module's description.
    """
    strange = _STRANGE.search(source)
    if strange is not None:
        line = source.count("\n", 0, strange.start()) + 1
        raise SourceError(f"has {strange.group()!r} in line {line}, which no program of a file has")
    tokens = list(_tokens(source))
    _check_words(tokens)
    _check_brackets(tokens)
    _check_typedefs(tokens)
    spaced = " ".join(tokens)
    _check_attributes(spaced)
    return _kernels(spaced)


def _tokens(source: str) -> Iterator[str]:
    for number, line in enumerate(source.split("\n"), 1):
        if "#" not in line:
            yield from (match.group() for match in _TOKEN.finditer(line))
        elif _DIRECTIVE.match(line) is None:
            raise SourceError(f"has a directive in line {number} that no program of a file has, {line[:60]!r}")


def _check_words(tokens: Sequence[str]) -> None:
    for word in set(tokens):
        if len(word) > _MAX_NAME_LENGTH:
            raise SourceError(f"has a name of {len(word)} letters in it")
        if word in _REFUSED_WORDS or _HANDLES.fullmatch(word):
            raise SourceError(f"has {word!r} in it")
        if _RESERVED.match(word) and word not in _OWN_RESERVED:
            raise SourceError(f"has {word[:60]!r} in it, a name of the compiler's own")


def _check_brackets(tokens: Sequence[str]) -> None:
    depth = 0
    for token in tokens:
        if token in "([{":
            depth += 1
            if depth > _MAX_BRACKET_DEPTH:
                raise SourceError(f"has more than {_MAX_BRACKET_DEPTH} brackets within each other")
        elif token in ")]}":
            depth -= 1
    if depth:
        raise SourceError("has brackets that do not match")


def _check_attributes(spaced: str) -> None:
    """Refuse attributes but those of a list, which are given names and small numbers."""
    for position in _positions(spaced, "__attribute__"):
        attribute = _ENDED_ATTRIBUTE.match(spaced, position)
        end = "" if attribute is None else attribute["end"]
        if end.isidentifier():
            raise SourceError(f"has the attribute {end[:60]!r}, which no program of a file has")
        if attribute is None or end != ") )" or len(attribute.group().split()) > _MAX_ATTRIBUTE_TOKENS:
            raise SourceError("has an attribute of another form than those of a file")


def _positions(spaced: str, words: str) -> list[int]:
    """Return the positions at which some words begin."""
    return [match.start() for match in re.finditer(rf"(?<!\S)(?:{words})(?!\S)", spaced)]


def _check_typedefs(tokens: Sequence[str]) -> None:
    """Refuse other meanings for the types of numbers, by which kernels are seen to take these."""
    inside = False
    depth = 0
    for before, token, following in zip(("", *tokens), tokens, (*tokens[1:], "")):
        if token == "typedef":
            inside, depth = True, 0
        elif token in "{}":
            depth += 1 if token == "{" else -1
        elif inside and not depth:
            named = following == "*" or (following.isidentifier() and following != "__attribute__")
            if token in NUMBERS and not (named and before in _BEFORE_TYPE):
                raise SourceError(f"gives the name {token!r} another meaning")
            inside = token != ";"


def _kernels(spaced: str) -> dict[str, tuple[str, ...]]:
    """Return the parameters of each kernel that is declared by ``kernel void name(...)``."""
    kernels: dict[str, tuple[str, ...]] = {}
    for position in _positions(spaced, "__kernel|kernel"):
        kernel = _KERNEL.match(spaced, position)
        if kernel is None:
            raise SourceError("has a kernel of another form than those of a file: 'void' and its name are to follow")
        name, params = kernel["name"], [param.split() for param in kernel["params"].split(",")]
        if name in kernels:
            raise SourceError(f"declares the kernel {name!r} twice")
        kernels[name] = () if params in ([[]], [["void"]]) else tuple(_param(name, param) for param in params)
    return kernels


def _param(kernel: str, tokens: Sequence[str]) -> str:
    """Return the kind of one parameter of a kernel."""
    words = [token for token in tokens if token not in _QUALIFIERS]
    spaces = [_SPACES[word] for word in words if word in _SPACES]
    words = [word for word in words if word not in _SPACES]
    *kind, name = words or [""]
    is_pointer = len(kind) > 1 and kind[-1] == "*" and all(word.isidentifier() for word in (*kind[:-1], name))
    if is_pointer and len(spaces) == 1 and spaces[0] in POINTERS:
        return spaces[0]
    number = NUMBERS.get(" ".join(kind)) if not spaces else None
    if not name.isidentifier() or number is None:
        raise SourceError(f"has a kernel {kernel!r} that takes {' '.join(tokens)[:60]!r}, which none of a file does")
    return number
