"""The restricted form that programs in a file must have, so that they can be checked completely.

A program is preprocessed OpenCL C (``preprocessing``) without macros, includes, conditions, comments, strings or
trigraphs. A ``#`` is allowed only in a few pragmas; reserved names are allowed only if they are address spaces or
listed attributes. The compiler therefore sees exactly the tokens that are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from optdb.runtime.expressions import LONG16, POINTERS

#: Clang's maximum nesting depth of brackets; other compilers recurse without a limit.
_MAX_BRACKET_DEPTH = 250
_MAX_NAME_LENGTH = 1024
_MAX_ATTRIBUTE_TOKENS = 64

_STRANGE = re.compile(r"[^\n\x20-\x7e]|[\\\"'`@$]|\?\?|//|/\*|%:|<:|:>|<%|%>")
_DIRECTIVE = re.compile(
    r"#pragma (?:unroll(?: \d{1,4})?|OPENCL FP_CONTRACT (?:ON|OFF|DEFAULT)"
    r"|OPENCL EXTENSION cl_khr_\w{1,64} : enable)\Z",
    re.ASCII,
)
#: Matches whole preprocessing numbers, so that their letters are not taken for names.
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)|[^\s]", re.ASCII)
_RESERVED = re.compile(r"__|_[A-Z]")
_OWN_RESERVED = frozenset(
    ["__kernel", "__global", "__local", "__constant", "__private", "__const", "__restrict", "__attribute__"]
)
#: Words that could access something outside the program, including printf, which writes to standard output.
_REFUSED_WORDS = frozenset(["asm", "include", "include_next", "import", "embed", "defined", "typeof", "printf"])
_HANDLES = re.compile(r"\b(sampler_t|image[123]d\w*|pipe|queue_t|event_t|clk_event_t|reserve_id_t|ndrange_t)\b")
_ATTRIBUTES = (
    "reqd_work_group_size|work_group_size_hint|vec_type_hint|opencl_unroll_hint"
    "|aligned|packed|noinline|always_inline|unused|pure|const"
)
#: The start of an allowed attribute, as space-separated tokens.
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
#: Maps OpenCL C's number types for kernel parameters to the names that files use.
NUMBERS = {
    **{"char": "int8", "uchar": "uint8", "unsigned char": "uint8", "short": "int16", "ushort": "uint16"},
    **{"unsigned short": "uint16", "int": "int32", "uint": "uint32", "unsigned int": "uint32", "long": "int64"},
    **{"ulong": "uint64", "unsigned long": "uint64", "float": "float32", "double": "float64"},
    **{"long16": LONG16, "ulong16": LONG16},
}
#: If one of these tokens precedes a number type in a typedef, the number type is not the declared name.
_BEFORE_TYPE = frozenset(["typedef", "unsigned", "signed", *_QUALIFIERS, *_SPACES])


class SourceError(ValueError):
    """Raised if a program does not have the form that files require."""


def is_handle(kind: str) -> bool:
    """Return whether an OpenCL C type is a handle, which drivers do not check."""
    return _HANDLES.search(kind) is not None


def read_program(source: str) -> Mapping[str, tuple[str, ...]]:
    """Check an OpenCL C program and return the parameters of each of its kernels; raise SourceError if it is not valid.

    A parameter is 'global', 'constant', 'local', the dtype of a number, or 'long16'.
    """
    strange = _STRANGE.search(source)
    if strange is not None:
        line = source.count("\n", 0, strange.start()) + 1
        raise SourceError(f"has {strange.group()!r} in line {line}, which no exported program has")
    tokens = list(_tokens(source))
    _check_words(tokens)
    _check_brackets(tokens)
    _check_typedefs(tokens)
    spaced = " ".join(tokens)
    _check_attributes(spaced)
    return _kernels(spaced)


#: Maps opening brackets to closing brackets.
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def _tokens(source: str) -> Iterator[str]:
    for number, line in enumerate(source.split("\n"), 1):
        if "#" not in line:
            yield from (match.group() for match in _TOKEN.finditer(line))
        elif _DIRECTIVE.match(line) is None:
            raise SourceError(f"has a directive in line {number} that no exported program has, {line[:60]!r}")


def _check_words(tokens: Sequence[str]) -> None:
    for word in set(tokens):
        if len(word) > _MAX_NAME_LENGTH:
            raise SourceError(f"contains a name of {len(word)} letters")
        if word in _REFUSED_WORDS or _HANDLES.fullmatch(word):
            raise SourceError(f"contains {word!r}")
        if _RESERVED.match(word) and word not in _OWN_RESERVED:
            raise SourceError(f"contains {word[:60]!r}, a name reserved for the compiler")


def _check_brackets(tokens: Sequence[str]) -> None:
    ends: list[str] = []
    for token in tokens:
        if token in _BRACKETS:
            ends.append(_BRACKETS[token])
            if len(ends) > _MAX_BRACKET_DEPTH:
                raise SourceError(f"nests more than {_MAX_BRACKET_DEPTH} brackets")
        elif token in ")]}" and (not ends or ends.pop() != token):
            raise SourceError("has brackets that do not match")
    if ends:
        raise SourceError("has brackets that do not match")


def _check_attributes(spaced: str) -> None:
    """Reject attributes that are not listed or whose arguments are not names or small numbers."""
    for position in _positions(spaced, "__attribute__"):
        attribute = _ENDED_ATTRIBUTE.match(spaced, position)
        end = "" if attribute is None else attribute["end"]
        if end.isidentifier():
            raise SourceError(f"has the attribute {end[:60]!r}, which no exported program has")
        if attribute is None or end != ") )" or len(attribute.group().split()) > _MAX_ATTRIBUTE_TOKENS:
            raise SourceError("has an attribute of an unsupported form")


def _positions(spaced: str, words: str) -> list[int]:
    return [match.start() for match in re.finditer(rf"(?<!\S)(?:{words})(?!\S)", spaced)]


def _check_typedefs(tokens: Sequence[str]) -> None:
    """Reject redefinitions of the number types, which identify the kinds of kernel parameters."""
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
                raise SourceError(f"redefines the name {token!r}")
            inside = token != ";"


def _kernels(spaced: str) -> dict[str, tuple[str, ...]]:
    kernels: dict[str, tuple[str, ...]] = {}
    for position in _positions(spaced, "__kernel|kernel"):
        kernel = _KERNEL.match(spaced, position)
        if kernel is None:
            raise SourceError("has a kernel of an unsupported form: expected 'void' and its name")
        name, params = kernel["name"], [param.split() for param in kernel["params"].split(",")]
        if name in kernels:
            raise SourceError(f"declares the kernel {name!r} twice")
        kernels[name] = () if params in ([[]], [["void"]]) else tuple(_param(name, param) for param in params)
    return kernels


def _param(kernel: str, tokens: Sequence[str]) -> str:
    words = [token for token in tokens if token not in _QUALIFIERS]
    spaces = [_SPACES[word] for word in words if word in _SPACES]
    words = [word for word in words if word not in _SPACES]
    *kind, name = words or [""]
    is_pointer = len(kind) > 1 and kind[-1] == "*" and all(word.isidentifier() for word in (*kind[:-1], name))
    if is_pointer and len(spaces) == 1 and spaces[0] in POINTERS:
        return spaces[0]
    number = NUMBERS.get(" ".join(kind)) if not spaces else None
    if not name.isidentifier() or number is None:
        raise SourceError(
            f"has a kernel {kernel!r} that takes {' '.join(tokens)[:60]!r}, which no exported kernel does"
        )
    return number
