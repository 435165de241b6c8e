"""Text for terminals: prose is wrapped between words but not within code; lines to be copied are not wrapped.

A line that begins with `VERBATIM` is a command or a path. Any other line is prose.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

__all__ = ["print_text", "verbatim"]

#: The prefix of lines that are printed unchanged, regardless of length.
VERBATIM = "    "
#: Matches code in prose. While lines are wrapped, a placeholder replaces each space within the code.
_CODE, _JOINT = re.compile("`[^`]*`"), "\0"


def verbatim(*lines: object) -> str:
    """Return lines as one text, marked so that `print_text` does not wrap them."""
    return "\n".join(f"{VERBATIM}{line}" for line in lines)


def print_text(
    console: Console, text: str, *, head: str = "", indent: int = 0, styles: dict[str, str] | None = None
) -> None:
    """Print lines of prose, wrapped to the console's width, and verbatim lines.

    The first line starts with `head`. `styles` maps words of `head` to their styles, as in ``{"fails": "red"}``.
    Further lines of prose are indented.
    """
    for number, line in enumerate(_lines(text, console.width, head, " " * indent)):
        shown = Text(line)
        if number == 0:
            for word, style in (styles or {}).items():
                start = head.find(word)
                shown.stylize(style, start, start + len(word))
        # soft_wrap: rich neither wraps nor crops the line.
        console.print(shown, soft_wrap=True)


def _lines(text: str, width: int, head: str, indent: str) -> Iterator[str]:
    for line in text.splitlines() or [""]:
        if line.startswith(VERBATIM):
            if head.strip():
                yield head.rstrip()
            yield line
        else:
            wrapped = textwrap.wrap(
                _CODE.sub(lambda code: code[0].replace(" ", _JOINT), line),
                width,
                initial_indent=head,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            yield from [piece.replace(_JOINT, " ") for piece in wrapped] or [head.rstrip()]
        head = indent
