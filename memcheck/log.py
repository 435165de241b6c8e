"""Parses Oclgrind's log, which has a paragraph for each fault, with the kernel and the lines of its code.

A paragraph begins at the left margin with the fault; the rest of it is indented::

    Invalid read of size 4 at global memory address 0x2000000000010
            Kernel: add
            Entity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
              %0 = load float, float addrspace(1)* %arrayidx, align 4, !dbg !56, !tbaa !57
            At line 43 (column 10) of input.cl:
              z[i] = x[i + 1];
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

_ADDRESS = re.compile(r" at (\w+) memory address 0x[0-9a-f]+")
_KERNEL = re.compile(r"Kernel:\s*(\w+)")
_LINE = re.compile(r"At line (\d+)\b")


@dataclass(frozen=True)
class Finding:
    """A fault: Oclgrind's description without the address, the kernel, and the lines of code."""

    fault: str
    kernel: str
    lines: tuple[str, ...]


def parse(text: str) -> dict[Finding, int]:
    """Return a dictionary of the findings in a log, and how often each finding occurs.

    Text that cannot be parsed is also a finding.
    """
    counts: dict[Finding, int] = {}
    for paragraph in _paragraphs(text.splitlines()):
        finding = _finding(paragraph)
        counts[finding] = counts.get(finding, 0) + 1
    return counts


def _paragraphs(lines: Iterable[str]) -> list[list[str]]:
    paragraphs: list[list[str]] = []
    for line in lines:
        if not line.strip():
            continue
        if line[0].isspace() and paragraphs:
            paragraphs[-1].append(line.strip())
        else:
            paragraphs.append([line.strip()])
    return paragraphs


def _finding(paragraph: list[str]) -> Finding:
    fault = _ADDRESS.sub(r" in \1 memory", paragraph[0])
    kernels = [found[1] for line in paragraph if (found := _KERNEL.match(line))]
    lines = {int(found[1]): source for line, source in itertools.pairwise(paragraph) if (found := _LINE.match(line))}
    # Sort the lines, because either work item of a race may be reported first.
    numbered = tuple(f"line {number}: {lines[number]}" for number in sorted(lines))
    return Finding(fault, kernels[0] if kernels else "", numbered)
