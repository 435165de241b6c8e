"""Convolutions in NumPy, written down as they are defined, for tests.

All sums are over the pairs of an output and a tap, in float64. Nothing here is shared with what is tested: paddings and
lengths are worked out once more.
"""

from __future__ import annotations

import itertools

import numpy as np


def pads_of(border_mode, taps, dilations):
    """Return the zeros in front and behind, for each axis."""
    spans = [(count - 1) * dilation + 1 for count, dilation in zip(taps, dilations)]
    named = {"valid": [0 for _ in spans], "full": [span - 1 for span in spans], "half": [span // 2 for span in spans]}
    if isinstance(border_mode, str):
        border_mode = named[border_mode]
    elif isinstance(border_mode, int):
        border_mode = [border_mode for _ in spans]
    return [(pad, pad) if isinstance(pad, int) else pad for pad in border_mode]


def lengths_of(image, taps, border_mode, steps, dilations):
    """Return the lengths of the result's axes."""
    pads = pads_of(border_mode, taps, dilations)
    return [
        (length + sum(pad) - (count - 1) * dilation - 1) // step + 1
        for length, count, pad, step, dilation in zip(image, taps, pads, steps, dilations)
    ]


class Reference:
    """A convolution and its gradients.

    Parameters
    ----------
    x, w, t : numpy.ndarray
        Images, filters, and a gradient of the result.
    parameters : dict
        Those of the host's abstract convolutions.
    """

    def __init__(self, x, w, t, parameters):
        self.x, self.w, self.t = (a.astype("float64") for a in (x, w, t))
        self.dtype = x.dtype
        self.dims = x.ndim - 2
        self.steps = parameters["subsample"]
        self.dilations = parameters["filter_dilation"]
        self.groups = parameters.get("num_groups", 1)
        self.flip = parameters.get("filter_flip", True)
        self.unshared = parameters.get("unshared", False)
        self.taps = w.shape[-self.dims :]
        self.pads = pads_of(parameters["border_mode"], self.taps, self.dilations)

    def forward(self):
        padded = self._padded(self.x)
        out = np.zeros(self.t.shape)
        for features, channels in self._by_group():
            for tap, part in self._parts():
                seen = padded[(slice(None), channels, *part)]
                out[:, features] += np.einsum(self._subscripts("nc,f?c", "nf"), seen, self._filter(features, tap))
        return out.astype(self.dtype)

    def weights(self):
        padded = self._padded(self.x)
        out = np.zeros(self.w.shape)
        for features, channels in self._by_group():
            for tap, part in self._parts():
                seen = padded[(slice(None), channels, *part)]
                found = np.einsum(self._subscripts("nc,nf", "f?c"), seen, self.t[:, features])
                out[(features, ..., *self._own(tap))] = found
        return out.astype(self.dtype)

    def inputs(self):
        padded = np.zeros(self._padded(self.x).shape)
        for features, channels in self._by_group():
            for tap, part in self._parts():
                given = np.einsum(self._subscripts("nf,f?c", "nc"), self.t[:, features], self._filter(features, tap))
                padded[(slice(None), channels, *part)] += given
        inside = [slice(low, low + length) for (low, _), length in zip(self.pads, self.x.shape[2:])]
        return padded[(slice(None), slice(None), *inside)].astype(self.dtype)

    def _subscripts(self, inputs, output):
        """Return the subscripts of a sum; what stands for an image or a result has pixels."""
        pixels = "xyz"[: self.dims]

        def whole(letters):
            return letters.replace("?", pixels if self.unshared else "") if "?" in letters else letters + pixels

        return ",".join(map(whole, inputs.split(","))) + "->" + whole(output)

    def _by_group(self):
        features, channels = self.t.shape[1] // self.groups, self.x.shape[1] // self.groups
        for group in range(self.groups):
            yield [slice(group * count, (group + 1) * count) for count in (features, channels)]

    def _parts(self):
        """Go over taps, each with the part of a padded image that it meets."""
        for tap in itertools.product(*map(range, self.taps)):
            yield (
                tap,
                [
                    slice(at * dilation, at * dilation + (length - 1) * step + 1, step)
                    for at, dilation, step, length in zip(tap, self.dilations, self.steps, self.t.shape[2:])
                ],
            )

    def _own(self, tap):
        return [count - 1 - at for at, count in zip(tap, self.taps)] if self.flip else tap

    def _filter(self, features, tap):
        return self.w[(features, ..., *self._own(tap))]

    def _padded(self, x):
        return np.pad(x, [(0, 0), (0, 0), *self.pads])
