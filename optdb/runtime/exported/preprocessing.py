"""A C preprocessor that converts kernels to the form required in files (``sources``).

The preprocessor expands macros, evaluates conditions, and removes comments and line continuations. The preprocessor
runs at export, and raises an error for unsupported constructs, such as an include.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from optdb.runtime.exported.sources import SourceError

_SPLICE = re.compile(r"\\[ \t]*\n")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(
    r"[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|\n|[^\S\n]+"
    r"|##|//|/\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|->|[-+*/%&|^]=|\S",
    re.ASCII,
)
_INNER_SPACE = re.compile(r"(?<=\S)[ \t]+")
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*([a-z]*)[ \t]*(.*)")
_DEFINITION = re.compile(r"([A-Za-z_]\w*)(\(([^)]*)\))?[ \t]*(.*)")
_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\Z")
_PRAGMA = re.compile(r'\b_Pragma\s*\(\s*"([^"\n]*)"\s*\)')
_EXTENSION = re.compile(r"OPENCL\s+EXTENSION\s+(\w+)\s*:\s*enable\s*\Z")

#: An extension that is treated as defined: programs with double precision run only on devices that have this extension.
_DOUBLE = "cl_khr_fp64"

#: The operators in conditions, from the lowest precedence to the highest; true has the value 1.
_OPERATORS: tuple[Mapping[str, Callable[[int, int], Any]], ...] = (
    {"||": lambda a, b: bool(a or b)},
    {"&&": lambda a, b: bool(a and b)},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul},
)


class _Token(NamedTuple):
    """A token or white space; `hidden` contains the macros that produced the token and must not be expanded again."""

    text: str
    hidden: frozenset[str] = frozenset()


class _Macro(NamedTuple):
    """A macro, whose body contains no white space; `params` is None for an object-like macro."""

    params: tuple[str, ...] | None
    body: tuple[str, ...]


def preprocess(source: str) -> str:
    """Return a preprocessed source; raise SourceError for unsupported directives or operators."""
    spliced = _SPLICE.sub(" ", source.replace("\r\n", "\n"))
    text = _COMMENT.sub(lambda comment: "\n" if "\n" in comment[0] else " ", spliced)
    lines = "".join(_Preprocessor().lines(text)).split("\n")
    if not any(re.search(r"\bdouble", line) for line in lines if not line.startswith("#")):
        lines = [line for line in lines if _DOUBLE not in line]
    return "\n".join(_INNER_SPACE.sub(" ", line.rstrip()) for line in lines if line.strip()) + "\n"


@functools.lru_cache(maxsize=4096)
def _merge(token: str, following: str) -> bool:
    first = _TOKEN.match(token + following)
    assert first is not None
    return first.group() != token


def _pragma(text: str) -> str:
    extension = _EXTENSION.match(text)
    return f"#pragma OPENCL EXTENSION {extension[1]} : enable\n" if extension else f"#pragma {' '.join(text.split())}\n"


class _Preprocessor:
    """Preprocesses the lines of a source and keeps the macros defined so far."""

    def __init__(self) -> None:
        self._macros: dict[str, _Macro] = {_DOUBLE: _Macro(None, ("1",))}
        #: For each enclosing condition, whether the current branch is active and whether any branch was active.
        self._conditions: list[tuple[bool, bool]] = []

    def lines(self, text: str) -> Iterator[str]:
        """Yield the preprocessed text; a macro call may span lines, but a directive may not."""
        pending: list[str] = []
        for line in text.split("\n"):
            directive = _DIRECTIVE.match(line)
            if directive is None:
                if self._holds():
                    pending.append(line + "\n")
                continue
            yield self._expanded("".join(pending))
            pending = []
            yield self._directive(*directive.groups())
        if self._conditions:
            raise SourceError("has a condition without #endif")
        yield self._expanded("".join(pending))

    def _holds(self) -> bool:
        return all(holds for holds, _ in self._conditions)

    def _expanded(self, text: str) -> str:
        tokens = self._expanded_tokens(text)
        separated = [
            f"{token} " if _merge(token, following) else token for token, following in zip(tokens, [*tokens[1:], "\n"])
        ]
        return _PRAGMA.sub(lambda match: f"\n{_pragma(match[1])}", "".join(separated))

    def _expanded_tokens(self, text: str) -> list[str]:
        return [token.text for token in self._expand([_Token(token) for token in _TOKEN.findall(text)])]

    def _directive(self, word: str, rest: str) -> str:
        rest = rest.strip()
        if word in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            self._condition(word, rest)
        elif not self._holds() or not word:
            return ""
        elif word == "define":
            self._define(rest)
        elif word == "undef":
            self._macros.pop(rest, None)
        elif word == "pragma":
            return _pragma(rest)
        else:
            raise SourceError(f"has the directive #{word}, which exported files do not support")
        return ""

    def _condition(self, word: str, rest: str) -> None:
        if word in ("if", "ifdef", "ifndef"):
            asked = {"if": rest, "ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}[word]
            holds = self._holds() and self._is_true(asked)
            self._conditions.append((holds, holds))
            return
        if not self._conditions:
            raise SourceError(f"has #{word} without a condition")
        _, before = self._conditions.pop()
        if word == "endif":
            return
        holds = not before and self._holds() and (word == "else" or self._is_true(rest))
        self._conditions.append((holds, before or holds))

    def _is_true(self, condition: str) -> bool:
        resolved = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", self._is_defined, condition)
        return bool(_Condition([token for token in self._expanded_tokens(resolved) if token.strip()]).value())

    def _is_defined(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in self._macros and re.match(r"_|cl_", name):
            raise SourceError(f"asks whether {name} is defined, which depends on the device's compiler")
        return str(int(name in self._macros))

    def _define(self, rest: str) -> None:
        definition = _DEFINITION.match(rest)
        if definition is None:
            raise SourceError(f"has a macro of an unsupported form, {rest[:60]!r}")
        name, called, params, body = definition.groups()
        names = None if called is None else tuple(param.strip() for param in params.split(",") if param.strip())
        tokens = tuple(token for token in _TOKEN.findall(body) if token.strip())
        if (names and "..." in names) or ("#" in tokens and names is not None):
            raise SourceError(f"has a macro {name} with unsupported operators")
        self._macros[name] = _Macro(names, tokens)

    def _expand(self, tokens: Sequence[_Token]) -> list[_Token]:
        result: list[_Token] = []
        # The tokens that remain to be expanded, in reverse order.
        left = list(reversed(tokens))
        while left:
            token = left.pop()
            macro = self._macros.get(token.text)
            if macro is None or token.text in token.hidden:
                result.append(token)
                continue
            if macro.params is None:
                left += reversed(self._body(macro, {}, token.hidden | {token.text}))
                continue
            args = _arguments(left)
            if args is None:
                result.append(token)
                continue
            if len(args) != len(macro.params) and not (not macro.params and args == [[]]):
                raise SourceError(f"passes {len(args)} arguments to the macro {token.text}, which takes {macro.params}")
            by_param = dict(zip(macro.params, args))
            left += reversed(self._body(macro, by_param, token.hidden | {token.text}))
        return result

    def _body(self, macro: _Macro, given: Mapping[str, list[_Token]], hidden: frozenset[str]) -> list[_Token]:
        result: list[_Token] = []
        pasting = False
        for text, following in zip(macro.body, (*macro.body[1:], "")):
            if text == "##":
                pasting = True
                continue
            tokens = given.get(text, [_Token(text)])
            # Operands of the pasting operator are not expanded.
            if text in given and not pasting and following != "##":
                tokens = self._expand(tokens)
            if pasting and result and tokens:
                pasted = result.pop().text + tokens[0].text
                if _TOKEN.fullmatch(pasted) is None:
                    raise SourceError(f"pastes {pasted!r} together, which is not a token")
                tokens = [_Token(pasted), *tokens[1:]]
            pasting = False
            result += tokens
        return [_Token(token.text, token.hidden | hidden) for token in result]


def _arguments(left: list[_Token]) -> list[list[_Token]] | None:
    """Pop a macro's arguments from the remaining tokens; return None if no parenthesis follows."""
    bracket = next((index for index in range(len(left) - 1, -1, -1) if left[index].text.strip()), None)
    if bracket is None or left[bracket].text != "(":
        return None
    del left[bracket:]
    args: list[list[_Token]] = [[]]
    depth = 0
    while left:
        token = left.pop()
        if token.text == ")" and not depth:
            return args
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and not depth:
            args.append([])
        elif token.text.strip():
            args[-1].append(token)
    raise SourceError("has a macro call without a closing bracket")


class _Condition:
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = list(reversed(tokens))

    def value(self) -> int:
        """Return the condition's value."""
        result = self._binary(0)
        if self._tokens:
            raise SourceError(f"has a condition that cannot be parsed, at {self._tokens[-1]!r}")
        return result

    def _binary(self, level: int) -> int:
        if level == len(_OPERATORS):
            return self._operand()
        result = self._binary(level + 1)
        while self._tokens and self._tokens[-1] in _OPERATORS[level]:
            compute = _OPERATORS[level][self._tokens.pop()]
            result = int(compute(result, self._binary(level + 1)))
        return result

    def _operand(self) -> int:
        if not self._tokens:
            raise SourceError("has a condition that cannot be parsed: it ends too early")
        token = self._tokens.pop()
        if token == "(":
            result = self._binary(0)
            if not self._tokens or self._tokens.pop() != ")":
                raise SourceError("has a condition whose brackets do not match")
            return result
        if token in ("!", "-", "+"):
            value = self._operand()
            return int(not value) if token == "!" else -value if token == "-" else value
        if _INTEGER.match(token):
            return int(token.rstrip("uUlL"), 0 if token[:2].lower() == "0x" else 10)
        if _NAME.match(token) and not re.match(r"_|cl_", token):
            # A name that is not a macro has the value 0.
            return 0
        raise SourceError(f"has a condition that cannot be parsed, at {token!r}")
