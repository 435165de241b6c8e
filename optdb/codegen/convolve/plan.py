"""Plans of convolutions as matrix products: tables of the elements to read and to write.

An image is packed with its zero padding, and split into pieces, one for each remainder of the tap positions modulo the
stride. Every tap then reads consecutive elements of one piece, so im2col's matrix is not stored: its rows are
overlapping ranges of the pieces. Each vector computes neighbouring outputs; lanes beyond a row's end are discarded.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from optdb.codegen.convolve.geometry import Axis, PerAxis, Phase, phases_of
from optdb.numpy_types import HostArray

#: Maximum number of cached plans.
_KEPT = 256
#: Maximum number of taps in a product that reads unpadded images: each tap has one bit in the mask.
_BITS = 32
#: Vectors may cross the ends of rows if their number then decreases by more than this factor.
_ROWS_MAY_COST = 1.15


@dataclass(frozen=True)
class ChannelLayout:
    """The memory layout of one packed channel.

    Element ``q`` of piece ``i`` along an axis is element ``q * step + shifts[i]`` of the channel, or zero.
    """

    #: Lengths of the channel's axes.
    lengths: tuple[int, ...]
    #: Stride of a piece's elements in the channel, for each axis.
    steps: tuple[int, ...]
    #: Shifts of the pieces, for each axis.
    shifts: tuple[tuple[int, ...], ...]
    #: Lengths of a piece's axes.
    extents: tuple[int, ...]

    @property
    def pieces(self) -> tuple[int, ...]:
        """The number of pieces along each axis."""
        return tuple(map(len, self.shifts))

    @property
    def channel(self) -> int:
        """The number of elements in a packed channel."""
        return math.prod([*self.extents, *self.pieces])

    def index(self, at: PerAxis, piece: PerAxis) -> int:
        """Return the index of an element of a piece; coordinates may be negative."""
        flat = 0
        for coordinate, count in zip((*piece, *at), (*self.pieces, *self.extents)):
            flat = flat * count + coordinate
        return flat


@dataclass(frozen=True, eq=False)
class ConvolutionPlan:
    """The layout and the products of a convolution or a gradient."""

    #: Layout of the images, or of the result's gradient.
    layout: ChannelLayout
    #: Products of the filters with packed images.
    products: tuple[TapProduct, ...]
    #: Whether the products write every element of the result.
    complete: bool = True
    #: The products in `products`, in the same order, for reading unpadded images; None if filters have too many
    #: taps.
    readings: tuple[TapProduct, ...] | None = None


@dataclass(frozen=True, eq=False)
class TapProduct:
    """One matrix product, for some of the taps and some of the outputs.

    Tap i of output j is element ``starts[j] + offsets[i]`` of a channel, or zero where ``inside[j] & bits[i]`` is 0.
    """

    #: Indices of the taps in the filter's memory order.
    taps: HostArray
    #: Index in a channel at which each tap's matrix row begins.
    offsets: HostArray
    #: Index in a matrix row at which each vector of outputs begins.
    starts: HostArray
    #: Index of each output in a channel of the result, or -1, with shape (vectors, lanes).
    targets: HostArray
    #: For unpadded images: the mask bit of each tap and, for each output, a mask of the taps that are inside the image.
    bits: HostArray = field(default_factory=lambda: np.ones(1, np.int32))
    inside: HostArray = field(default_factory=lambda: np.ones(1, np.int32))

    @property
    def runs(self) -> HostArray:
        """For each vector, the index at which its lanes are stored contiguously; -1 if they are stored one by one."""
        lanes = np.arange(self.targets.shape[1])
        whole = (self.targets == self.targets[:, :1] + lanes).all(axis=1) & (self.targets[:, 0] >= 0)
        return np.where(whole, self.targets[:, 0], -1)

    @property
    def in_order(self) -> bool:
        """Whether outputs are written contiguously, starting at the first element of the result."""
        return bool((self.targets.ravel() == np.arange(self.targets.size)).all())

    def fits(self, layout: ChannelLayout) -> bool:
        """Return whether no vector reads beyond the end of its channel."""
        if not len(self.starts) or not len(self.offsets):
            return True
        last = self.starts.max() + self.targets.shape[1] - 1 + self.offsets.max()
        return bool(last < layout.channel)


def _reading(
    taps: HostArray, shifts: Sequence[PerAxis], bases: Sequence[HostArray], lengths: PerAxis, targets: HostArray
) -> TapProduct:
    """Return a product that uses single-lane vectors and reads unpadded channels with the given `lengths`.

    For each axis, `bases` holds the position of each output, and `shifts` the shift of each tap.
    """
    offsets, bits = np.zeros(len(taps), np.int64), (1 << np.arange(len(taps), dtype=np.int64)).astype(np.uint32)
    starts, inside = np.zeros((), np.int64), np.zeros([len(base) for base in bases], np.uint32)
    for base, length in zip(bases, lengths):
        starts = starts[..., None] * length + base
    for i, moves in enumerate(itertools.product(*shifts)):
        met = np.ones((), bool)
        for base, move, length in zip(bases, moves, lengths):
            offsets[i] = offsets[i] * length + move
            met = met[..., None] & (base + move >= 0) & (base + move < length)
        inside |= np.where(met, bits[i], 0).astype(np.uint32)
    by_tap = np.argsort(taps)
    numbers = (offsets[by_tap], starts, targets, bits.view(np.int32)[by_tap], inside.view(np.int32))
    return TapProduct(np.sort(taps), *(each.ravel().astype(np.int32) for each in numbers))


@functools.lru_cache(maxsize=_KEPT)
def forward(axes: tuple[Axis, ...], flip: bool, width: int) -> ConvolutionPlan:
    """Return a plan of one product with vectors of `width` lanes, for nonempty filters; `flip` reverses the filters."""
    out = tuple(axis.out for axis in axes)
    rests = [sorted({tap * axis.dilation % axis.step for tap in range(axis.taps)}) for axis in axes]
    layout = ChannelLayout(
        lengths=tuple(axis.length for axis in axes),
        steps=tuple(axis.step for axis in axes),
        shifts=tuple(tuple(rest - axis.low for rest in axis_rests) for axis_rests, axis in zip(rests, axes)),
        extents=tuple(axis.out + (axis.taps - 1) * axis.dilation // axis.step for axis in axes),
    )
    by_axis = []
    for axis, own in zip(axes, rests):
        shifts = [divmod(tap * axis.dilation, axis.step) for tap in range(axis.taps)]
        by_axis.append([(tap, shift, own.index(rest)) for tap, (shift, rest) in enumerate(shifts)])
    taps, offsets = _taps_of(by_axis, axes, layout)
    # Reversing a filter along all its axes reverses the order of its taps.
    offsets = offsets[::-1] if flip else offsets
    starts, targets = cover(layout.extents, (0, 0, 0), out, out, (0, 0, 0), (1, 1, 1), width)
    readings = None
    if width == 1 and len(taps) <= _BITS:
        moves = [[tap * axis.dilation for tap in range(axis.taps)] for axis in axes]
        bases = [np.arange(axis.out) * axis.step - axis.low for axis in axes]
        order = taps[::-1] if flip else taps
        readings = (_reading(order, moves, bases, layout.lengths, targets),)
    return ConvolutionPlan(layout, (TapProduct(taps, offsets, starts, targets),), readings=readings)


@functools.lru_cache(maxsize=_KEPT)
def backward(axes: tuple[Axis, ...], flip: bool, width: int) -> ConvolutionPlan:
    """Return a plan of the gradient with respect to the image; elements that no tap reads are not written."""
    by_axis = [[phase for phase in phases_of(axis) if phase.taps] for axis in axes]
    if not all(by_axis):
        out = tuple(axis.out for axis in axes)
        return ConvolutionPlan(ChannelLayout(out, (1, 1, 1), ((0,), (0,), (0,)), out), (), complete=False, readings=())
    bounds = [_bounds(phases) for phases in by_axis]
    layout = ChannelLayout(
        lengths=tuple(axis.out for axis in axes),
        steps=(1, 1, 1),
        shifts=tuple((low,) for low, _ in bounds),
        extents=tuple(high - low + 1 for low, high in bounds),
    )
    products, readings = [], []
    for phases in itertools.product(*by_axis):
        taps, offsets = _taps_of([[(tap, -back, 0) for tap, back in phase.taps] for phase in phases], axes, layout)
        taps = math.prod(axis.taps for axis in axes) - 1 - taps if flip else taps
        starts, targets = cover(
            layout.extents,
            tuple(phase.origin - low for phase, (low, _) in zip(phases, bounds)),
            tuple(phase.count for phase in phases),
            tuple(axis.length for axis in axes),
            tuple(phase.first for phase in phases),
            tuple(axis.step for axis in axes),
            width,
        )
        products.append(TapProduct(taps, offsets, starts, targets))
        if width == 1 and len(taps) <= _BITS:
            shifts = [[-back for _, back in phase.taps] for phase in phases]
            bases = [phase.origin + np.arange(phase.count) for phase in phases]
            readings.append(_reading(taps, shifts, bases, layout.lengths, targets))
    written = sum(int((product.targets >= 0).sum()) for product in products)
    complete = written == math.prod(axis.length for axis in axes)
    in_place = tuple(readings) if len(readings) == len(products) else None
    return ConvolutionPlan(layout, tuple(products), complete, in_place)


def _taps_of(
    by_axis: Iterable[Iterable[tuple[int, int, int]]], axes: Sequence[Axis], layout: ChannelLayout
) -> tuple[HostArray, HostArray]:
    """Return the indices of taps in the filter's memory order, and their offsets in a channel.

    For each axis, `by_axis` contains triples: a tap, the tap's shift in a piece, and the index of the piece.
    """
    taps, offsets = [], []
    for combination in itertools.product(*by_axis):
        flat = 0
        for (tap, _, _), axis in zip(combination, axes):
            flat = flat * axis.taps + tap
        taps.append(flat)
        offsets.append(layout.index([shift for _, shift, _ in combination], [piece for *_, piece in combination]))
    return np.array(taps), np.array(offsets, np.int64)


def _bounds(phases: Sequence[Phase]) -> tuple[int, int]:
    """Return the first and the last output that any tap reads."""
    low = min(phase.origin - max(back for _, back in phase.taps) for phase in phases)
    high = max(phase.origin + phase.count - 1 - min(back for _, back in phase.taps) for phase in phases)
    return low, high


def cover(
    extents: PerAxis, origin: PerAxis, counts: PerAxis, out: PerAxis, first: PerAxis, steps: PerAxis, width: int
) -> tuple[HostArray, HostArray]:
    """Cover a block of elements with vectors; return each vector's start, and each lane's output index or -1.

    The block begins at `origin` in an array of shape `extents`, and has the shape `counts`. Element i is written to
    index ``first + i * steps`` of an array of shape `out`. The last vectors are shifted back so that they end within
    the block.
    """
    _, height, row = extents
    begin = (origin[0] * height + origin[1]) * row + origin[2]
    span = ((counts[0] - 1) * height + counts[1] - 1) * row + counts[2]
    rows = (np.arange(counts[0])[:, None] * height + np.arange(counts[1])).ravel() * row
    in_row = -(-counts[2] // width)
    if len(rows) * in_row <= _ROWS_MAY_COST * -(-span // width):
        unshifted = (rows[:, None] + np.arange(in_row) * width).ravel()
        ends = np.repeat(rows + counts[2], in_row)
    else:
        unshifted = np.arange(0, span, width)
        ends = unshifted + width
    starts = np.minimum(unshifted, max(span - width, 0))
    lanes = starts[:, None] + np.arange(width)
    at = (lanes // (height * row), lanes // row % height, lanes % row)
    mine = (lanes >= unshifted[:, None]) & (lanes < ends[:, None]) & (lanes < span)
    targets = np.zeros_like(lanes)
    for index, count, length, begins, step in zip(at, counts, out, first, steps):
        mine &= index < count
        targets = targets * length + begins + index * step
    return (begin + starts).astype(np.int64), np.where(mine, targets, -1).astype(np.int64)
