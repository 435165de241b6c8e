"""Sizes of convolutions: padding, outputs, and the inputs that each tap reads.

There are always three axes: a two-dimensional convolution gets a leading axis of length 1. At tap ``t``, output ``o``
reads element ``o * step + t * dilation - low`` of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BorderMode = str | int | Sequence[int | tuple[int, int]]
#: One integer for each axis.
PerAxis = Sequence[int]


@dataclass(frozen=True)
class Axis:
    """A convolution along one axis."""

    #: Length of the image.
    length: int
    #: Length of the filter.
    taps: int
    #: Padding before and after the image.
    low: int = 0
    high: int = 0
    #: Stride of the outputs.
    step: int = 1
    #: Distance between taps.
    dilation: int = 1

    @property
    def out(self) -> int:
        """The number of outputs, if the filter fits."""
        return self._last // self.step + 1

    @property
    def fits(self) -> bool:
        """Whether the filter fits into the padded image, or is one element longer, so that the output is empty."""
        return self._last >= -1 and reach(self.taps, self.dilation) >= 0 and min(self.low, self.high) >= 0

    @property
    def _last(self) -> int:
        """The last position of the filter in the padded image; negative if the filter is longer than the image."""
        return self.length + self.low + self.high - reach(self.taps, self.dilation)


@dataclass(frozen=True)
class Phase:
    """Image elements, spaced ``step`` apart, that receive contributions from the same taps."""

    #: Index of the phase's first element in the image.
    first: int
    #: Number of elements.
    count: int
    #: Index of the output from which the distances in `taps` are counted backwards.
    origin: int
    #: Pairs of a tap and a distance: the output at this distance before `origin` reads the first element with this tap.
    taps: tuple[tuple[int, int], ...]


def reach(taps: int, dilation: int) -> int:
    """Return the number of elements that a filter spans."""
    return (taps - 1) * dilation + 1


def paddings(border_mode: BorderMode, reaches: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the padding at both ends of each axis, given the filter's extent along each axis (`reaches`).

    Raises
    ------
    ValueError
        If Theano's convolutions do not accept `border_mode`.
    """
    full, half = [span - 1 for span in reaches], [span // 2 for span in reaches]
    named = {"valid": [0] * len(reaches), "full": full, "half": half}
    if isinstance(border_mode, str):
        border_mode = named.get(border_mode, border_mode)
    elif isinstance(border_mode, int):
        border_mode = [border_mode] * len(reaches)
    if isinstance(border_mode, str) or len(border_mode) != len(reaches):
        raise ValueError(
            f"border_mode {border_mode!r} must be 'valid', 'full', 'half', or a number or a pair for each of "
            f"{len(reaches)} axes"
        )
    return tuple((pad, pad) if isinstance(pad, int) else (pad[0], pad[1]) for pad in border_mode)


def axes_of(
    image: PerAxis, kernel: PerAxis, border_mode: BorderMode, steps: PerAxis, dilations: PerAxis
) -> tuple[Axis, Axis, Axis]:
    """Return the three axes of a convolution, given parameters for two or three axes."""
    spans = [reach(taps, dilation) for taps, dilation in zip(kernel, dilations)]
    pads = paddings(border_mode, spans)
    axes = [
        Axis(int(length), int(taps), low, high, int(step), int(dilation))
        for length, taps, (low, high), step, dilation in zip(image, kernel, pads, steps, dilations, strict=True)
    ]
    first, second, third = [Axis(1, 1)] * (3 - len(axes)) + axes
    return first, second, third


def phases_of(axis: Axis) -> list[Phase]:
    """Return an image's nonempty phases: the elements with equal ``(index + low) % step`` are one phase."""
    phases = []
    for rest in range(axis.step):
        low = max(-((rest - axis.low) // axis.step), 0)
        last = (axis.length - 1 + axis.low - rest) // axis.step
        if last < low:
            continue
        taps = [
            (tap, tap * axis.dilation // axis.step)
            for tap in range(axis.taps)
            if tap * axis.dilation % axis.step == rest
        ]
        phases.append(Phase(axis.step * low + rest - axis.low, last - low + 1, low, tuple(taps)))
    return phases
