"""Rewrites kernel sources: isolates the sources in one program from each other, and outlines kernel bodies.

Many sources define the same names, such as ``matmul`` or the macro ``T``. :func:`isolate` finds the names that a source
defines, and :meth:`Isolated.between` renames them. PoCL compiles a kernel's body three times: :func:`outlined` moves
the body of an `OUTLINED_KERNEL` into a function that is not inlined, which halves compile time. A source that the
simple scanner cannot parse is built on its own, or left unchanged.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optdb.codegen.kernels.prelude import PRELUDE

_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TEXT = r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'"
_NAME = r"[A-Za-z_]\w*"

#: The tokens that determine where functions begin and end; other text is skipped.
STRUCTURE = re.compile(
    rf"(?P<idle>{_COMMENT}|{_TEXT})"
    r"|^[ \t]*\#(?P<directive>(?:\\\n|[^\n])*)"
    r"|(?P<bracket>[][(){}])"
    r"|(?P<strange>[\\\"'#]|/\*)",
    re.DOTALL | re.MULTILINE,
)
_OUTER = re.compile(rf"{_NAME}|\(\)|\[\]|\{{\}}|\S")
_ATTRIBUTE = re.compile(r"\b__attribute__\b\s*(?:\(\))?")
_IDLE = re.compile(f"{_COMMENT}|{_TEXT}", re.DOTALL)
_WORD = re.compile(rf"(?<![\w.]){_NAME}")
_MEMBER = re.compile(rf"(?:\.|->)\s*({_NAME})")
_DIRECTIVE = re.compile(r"\s*(\w*)\s*(.*)", re.DOTALL)
_PRAGMA = re.compile(r"(OPENCL\s+FP_CONTRACT\s+\w+|OPENCL\s+EXTENSION\s+\w+\s*:\s*enable|unroll\b[^\n]*)\s*\Z")

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}

#: Resets the setting of floating-point contraction, which the previous source may have changed.
_AS_BEFORE = "#pragma OPENCL FP_CONTRACT DEFAULT\n"


class _NotUnderstood(Exception):
    """Raised if a source contains a construct that the scanner cannot parse."""


@dataclass(frozen=True)
class Isolated:
    """A source and the names that it defines."""

    code: str
    names: frozenset[str]  #: Functions, types and variables.
    macros: frozenset[str]  #: Macros.

    def between(self, ending: str) -> str:
        """Return the source between directives that append a suffix to each name that the source defines."""
        names = sorted(self.names)
        before = [f"#define {name} {name}{ending}\n" for name in names]
        behind = [f"#undef {name}\n" for name in (*names, *sorted(self.macros))]
        return "".join([_AS_BEFORE, *before, self.code, "\n", *behind])


def isolate(code: str) -> Isolated | None:
    """Find the names that a source defines after the prelude; return None if the source must be built on its own."""
    try:
        names, macros, asked = _defined(code)
    except _NotUnderstood:
        return None
    # A source must not define names that it tests for or that the prelude defines.
    if names & macros or (names | macros) & (asked | _words()):
        return None
    # Renaming a function would also rename a member with the same name, such as a vector component.
    if not names.isdisjoint(_MEMBER.findall(code)):
        return None
    return Isolated(code, names, macros)


def _defined(code: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the declared names, the defined macros, and the macros that the code tests before it defines them."""
    outer, directives = _structure(code)
    return frozenset(_declared(_OUTER.findall(_ATTRIBUTE.sub(" ", outer)))), *_macros(directives)


def _structure(code: str) -> tuple[str, list[str]]:
    outer: list[str] = []
    directives: list[str] = []
    open_: list[str] = []
    end = 0
    for match in STRUCTURE.finditer(code):
        if not open_:
            outer.append(code[end : match.start()])
        end = match.end()
        if match.lastgroup == "bracket":
            bracket = match["bracket"]
            if bracket in _CLOSED_BY:
                open_.append(bracket)
                continue
            opening = open_.pop() if open_ else ""
            if _CLOSED_BY.get(opening) != bracket:
                raise _NotUnderstood
            if not open_:
                outer.append(f"{opening}{bracket}")
        elif match.lastgroup == "directive":
            directives.append(match["directive"])
        elif match.lastgroup == "strange":  # an unterminated comment or string, or a line continuation
            raise _NotUnderstood
        elif not open_:
            outer.append(" ")
    if open_:
        raise _NotUnderstood
    return "".join([*outer, code[end:]]), directives


def _macros(directives: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    macros: set[str] = set()
    asked: set[str] = set()
    depth = 0
    for directive in directives:
        match = _DIRECTIVE.match(_IDLE.sub(" ", directive))
        assert match is not None  # the pattern matches any text
        word, rest = match.groups()
        names = _WORD.findall(rest)
        if "/*" in rest or '"' in rest or "'" in rest:  # a comment or string that ends on a later line
            raise _NotUnderstood
        if (word == "define" and names) or (word == "undef" and len(names) == 1):
            macros.add(names[0])  # undefining a prelude macro is also rejected
        elif word in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            depth += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
            asked.update(name for name in names if name not in macros)
        elif not (word == "pragma" and _PRAGMA.match(rest)):
            raise _NotUnderstood
        if depth < 0:
            raise _NotUnderstood
    if depth:
        raise _NotUnderstood
    return frozenset(macros), frozenset(asked)


def _declared(items: Iterable[str]) -> set[str]:
    names: set[str] = set()
    head: list[str] = []
    for item in items:
        if item == ";":
            names.update(_of_declaration(head))
            head = []
        elif item == "{}" and head[-1:] == ["()"]:
            names.add(_of_function(head))
            head = []
        else:
            head.append(item)
    if head:
        raise _NotUnderstood
    return names


def _of_function(head: Sequence[str]) -> str:
    """Return a function's name, given the tokens before its body: ``static float f()``."""
    *kind, name, _ = ["", *head]
    if len(kind) < 2 or not all(word.isidentifier() or word == "*" for word in (*kind[1:], name)):
        raise _NotUnderstood
    return name


def _of_declaration(head: Sequence[str]) -> set[str]:
    """Return the names in a declaration: ``typedef float real``, ``__constant int a[] = {}``, ``int f()``."""
    if not head:
        return set()
    if head[-1] == "()" and "=" not in head:
        return {_of_function(head)}
    structure = "struct" in head or "union" in head
    names: set[str] = set()
    initializer = False
    for before, word, after in zip(("", *head), head, (*head[1:], ",")):
        initializer = word != "," and (initializer or word == "=")
        if initializer or word in ("*", ",", "[]") or (word == "{}" and structure):
            continue
        if not word.isidentifier() or word == "enum":  # an enum's names are within braces
            raise _NotUnderstood
        if after in (",", "=", "[]") or (after == "{}" and before in ("struct", "union")):
            names.add(word)
    if len(head) < 2 or not names:
        raise _NotUnderstood
    return names


@functools.cache
def _words() -> frozenset[str]:
    names, macros, _ = _defined(PRELUDE)
    return names | macros


_HEAD = re.compile(r"\bOUTLINED_KERNEL\s+void\s+(?P<name>\w+)\s*(?=\()")
PARAM = re.compile(r"\s*(?P<type>\w[\w\s*]*[\s*])(?P<name>[A-Za-z_]\w*)\s*")
#: The values that a work item can query: its ids, and the sizes of the launch.
QUERY = re.compile(
    r"\bget_\w+_(?:id|size|groups|offset)\s*\(\s*[012]\s*\)|\bget_work_dim\s*\(\s*\)|\b[GL](?:ID|DIM)_[012]\b"
)
#: Patterns for calls that synchronize items or use local memory, and for any query.
TOGETHER = re.compile(r"barrier|fence|\b(?:LOCAL_MEM|__local|local|async_\w+|work_group_\w+|sub_group_\w+)\b")
ASKS = re.compile(r"\bget_(?:global|local|group|num|work|enqueued|sub)_\w+|\b[GL](?:ID|DIM)_")


def outlined(code: str) -> tuple[str, frozenset[str]]:
    """Move the bodies of outlined kernels into functions; return the code, and the names of these kernels."""
    pieces: list[str] = []
    names: set[str] = set()
    end = 0
    for head in _HEAD.finditer(code):
        parts = parts_of_kernel(code, head.end()) if head.start() >= end else None
        if parts is None:
            continue
        params, body, kernel_end = parts
        kernel = _without_body(head["name"], params, body)
        if kernel is not None:
            pieces += [code[end : head.start()], kernel]
            names.add(head["name"])
            end = kernel_end
    return "".join([*pieces, code[end:]]), frozenset(names)


def parts_of_kernel(code: str, begin: int) -> tuple[str, str, int] | None:
    """Return the parameters at `begin`, the body after them, and the body's end; None if they cannot be parsed."""
    params_end = _closing(code, begin)
    if params_end is None:
        return None
    body_begin = params_end + len(code[params_end:]) - len(code[params_end:].lstrip())
    body_end = _closing(code, body_begin) if code[body_begin : body_begin + 1] == "{" else None
    if body_end is None:
        return None
    return code[begin + 1 : params_end - 1], code[body_begin:body_end], body_end


def _closing(code: str, begin: int) -> int | None:
    """Return the position after the bracket that closes the bracket at `begin`; None if there is none."""
    depth = 0
    for match in STRUCTURE.finditer(code, begin):
        if match.lastgroup == "strange":
            return None
        if match.lastgroup == "bracket":
            depth += 1 if match["bracket"] in "([{" else -1
            if not depth:
                return match.end()
    return None


def _without_body(name: str, params: str, body: str) -> str | None:
    declared = declared_params(params)
    if declared is None or TOGETHER.search(body):
        return None
    body, queries = with_query_params(body)
    if ASKS.search(body):
        return None
    function, declaration = f"{name}_chunk", ", ".join(f"{kind}{param}" for kind, param in declared)
    taken = ", ".join([*(f"size_t {query}" for query in queries.values()), declaration])
    passed = ", ".join([*queries, *(param for _, param in declared)])
    return (
        f"static __attribute__((noinline)) void {function}({taken})\n{body}\n"
        f"OUTLINED_KERNEL void {name}({declaration})\n{{\n{function}({passed});\n}}\n"
    )


def with_query_params(body: str) -> tuple[str, dict[str, str]]:
    """Return a kernel's body with its queries replaced by parameters, and the parameter for each query."""
    params = {query: f"its_{re.sub(r'[^A-Za-z0-9]+', '_', query).strip('_')}" for query in QUERY.findall(body)}
    return QUERY.sub(lambda query: params[query[0]], body), params


def declared_params(params: str) -> tuple[tuple[str, str], ...] | None:
    """Return the type and the name of each parameter of a kernel; None if one cannot be parsed."""
    texts = params.split(",")
    declared = [(param["type"], param["name"]) for param in map(PARAM.fullmatch, texts) if param]
    return tuple(declared) if len(declared) == len(texts) else None
