"""Reads pages of the documentation: their code, the output that they show, and their first paragraph."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass

PYTHON = ("python", "{code-cell} ipython3")

_FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"\A\s*# [^\n]+\n")
_CODE = re.compile(r"`[^`]*`")
_END_OF_SENTENCE = re.compile(r"[.!?](?=\s|$)")

_CHECKER = doctest.OutputChecker()
#: ``...`` matches varying text; the positions of line breaks do not matter.
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    info: str  #: The text after the opening fence: the language.
    body: str
    shown: str | None  #: The content of a text block that directly follows this block, if any.

    @property
    def is_python(self) -> bool:
        """Whether tests run the block's code."""
        return self.info in PYTHON


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    matches = list(_FENCE.finditer(text))
    return [
        Block(match["info"], match["body"], _text_right_after(text, match, following))
        for match, following in zip(matches, [*matches[1:], None])
    ]


def _text_right_after(text: str, match: re.Match[str], following: re.Match[str] | None) -> str | None:
    if following is None or following["info"] != "text" or text[match.end() : following.start()].strip():
        return None
    return following["body"]


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block, and the output that the block shows for it."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        last = next(i for i, line in enumerate(lines) if not line.endswith("\\\n"))
        yield "".join(lines[: last + 1]).strip(), "".join(lines[last + 1 :])


def difference(shown: str, printed: str) -> str | None:
    """Return the difference between a printed output and the output on a page; None if they match."""
    if _CHECKER.check_output(shown, printed, _FLAGS):
        return None
    return f"the page shows\n{shown}\nand the code prints\n{printed}"


def first_paragraph(text: str) -> str:
    """Return the text between a page's title and the first blank line after it."""
    text = _FRONT_MATTER.sub("", text)
    if not _TITLE.match(text):
        return ""
    return _TITLE.sub("", text).strip().partition("\n\n")[0]


def sentences(paragraph: str) -> int:
    """Return the number of sentences in a paragraph; a colon at the end of the paragraph also ends a sentence."""
    prose = _CODE.sub("code", paragraph)
    return len(_END_OF_SENTENCE.findall(prose)) + prose.rstrip().endswith(":")
