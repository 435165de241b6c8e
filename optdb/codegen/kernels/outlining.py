"""Outlines kernel bodies into functions that the compiler does not duplicate.

PoCL compiles a kernel's body three times. :func:`outlined` moves the body of an `OUTLINED_KERNEL` into a function that
is not inlined, and that gets the ids of the work item. This halves compile time. Code that the small scanner does not
understand, and kernels whose items synchronize, are left unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from optdb.codegen.kernels.isolation import STRUCTURE

_HEAD = re.compile(r"\bOUTLINED_KERNEL\s+void\s+(?P<name>\w+)\s*(?=\()")
PARAM = re.compile(r"\s*(?P<type>\w[\w\s*]*[\s*])(?P<name>[A-Za-z_]\w*)\s*")
#: The queries that a work item can make: its ids, and the sizes of the launch.
QUERY = re.compile(
    r"\bget_\w+_(?:id|size|groups|offset)\s*\(\s*[012]\s*\)|\bget_work_dim\s*\(\s*\)|\b[GL](?:ID|DIM)_[012]\b"
)
#: The first pattern matches synchronization and local memory, the second any query.
TOGETHER = re.compile(r"barrier|fence|\b(?:LOCAL_MEM|__local|local|async_\w+|work_group_\w+|sub_group_\w+)\b")
ASKS = re.compile(r"\bget_(?:global|local|group|num|work|enqueued|sub)_\w+|\b[GL](?:ID|DIM)_")


@dataclass(frozen=True, eq=False)
class OutlinedKernel:
    """A kernel whose body is a separate function."""

    name: str
    code: str

    def __str__(self) -> str:
        return self.code


def outlined(code: str) -> list[str | OutlinedKernel]:
    """Move the bodies of outlined kernels into functions; return the code in pieces: kernels, and the text between."""
    pieces: list[str | OutlinedKernel] = []
    end = 0
    for head in _HEAD.finditer(code):
        parts = parts_of_kernel(code, head.end()) if head.start() >= end else None
        if parts is None:
            continue
        params, body, kernel_end = parts
        kernel = _without_body(head["name"], params, body)
        if kernel is not None:
            pieces += [code[end : head.start()], kernel]
            end = kernel_end
    return [*pieces, code[end:]]


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


def _without_body(name: str, params: str, body: str) -> OutlinedKernel | None:
    declared = declared_params(params)
    if declared is None or TOGETHER.search(body):
        return None
    queries = {ask: f"its_{re.sub(r'[^A-Za-z0-9]+', '_', ask).strip('_')}" for ask in QUERY.findall(body)}
    body = QUERY.sub(lambda ask: queries[ask[0]], body)
    if ASKS.search(body):
        return None
    function, declaration = f"{name}_chunk", ", ".join(f"{kind}{param}" for kind, param in declared)
    taken = ", ".join([*(f"size_t {query}" for query in queries.values()), declaration])
    passed = ", ".join([*queries, *(param for _, param in declared)])
    return OutlinedKernel(
        name,
        f"static __attribute__((noinline)) void {function}({taken})\n{body}\n"
        f"OUTLINED_KERNEL void {name}({declaration})\n{{\n{function}({passed});\n}}\n",
    )


def declared_params(params: str) -> tuple[tuple[str, str], ...] | None:
    """Return the type and the name of each parameter of a kernel; None if one cannot be parsed."""
    texts = params.split(",")
    declared = [(param["type"], param["name"]) for param in map(PARAM.fullmatch, texts) if param]
    return tuple(declared) if len(declared) == len(texts) else None
