"""Computes convolutions in NumPy, written directly from their definition, for tests.

Sums run over all pairs of an output element and a filter tap, in float64. This code shares nothing with the tested
code: even paddings and lengths are computed independently.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st


def pads_of(border_mode, taps, dilations):
    """Return the zero padding at the start and at the end of each axis."""
    spans = [(count - 1) * dilation + 1 for count, dilation in zip(taps, dilations)]
    named = {"valid": [0 for _ in spans], "full": [span - 1 for span in spans], "half": [span // 2 for span in spans]}
    if isinstance(border_mode, str):
        border_mode = named[border_mode]
    elif isinstance(border_mode, int):
        border_mode = [border_mode for _ in spans]
    return [(pad, pad) if isinstance(pad, int) else pad for pad in border_mode]


def lengths_of(image, taps, border_mode, steps, dilations):
    """Return the lengths of the axes of a convolution's result."""
    pads = pads_of(border_mode, taps, dilations)
    return [
        (length + sum(pad) - (count - 1) * dilation - 1) // step + 1
        for length, count, pad, step, dilation in zip(image, taps, pads, steps, dilations)
    ]


class Reference:
    """Computes a convolution and its gradients.

    Parameters
    ----------
    x, w, t : numpy.ndarray
        Images, filters, and a gradient of the result.
    parameters : dict
        The parameters of the host's abstract convolutions.
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
        """Return the einsum subscripts of a sum; `?` stands for the pixel axes that only unshared filters have."""
        pixels = "xyz"[: self.dims]

        def whole(letters):
            return letters.replace("?", pixels if self.unshared else "") if "?" in letters else letters + pixels

        return ",".join(map(whole, inputs.split(","))) + "->" + whole(output)

    def _by_group(self):
        features, channels = self.t.shape[1] // self.groups, self.x.shape[1] // self.groups
        for group in range(self.groups):
            yield [slice(group * count, (group + 1) * count) for count in (features, channels)]

    def _parts(self):
        """Yield each filter tap, with the part of the padded image that it multiplies."""
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


BORDERS = st.sampled_from(["valid", "full", "half"]) | st.lists(
    st.integers(0, 3) | st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=2
).map(tuple)


@st.composite
def convolutions(draw):
    """Draw image lengths, tap counts and parameters of the host's op, for which the result is not empty."""
    two = st.integers(1, 3), st.integers(1, 3)
    image, taps = draw(st.tuples(*[st.integers(1, 12)] * 2)), draw(st.tuples(*[st.integers(1, 4)] * 2))
    parameters = {
        "border_mode": draw(BORDERS),
        "subsample": draw(st.tuples(*two)),
        "filter_dilation": draw(st.tuples(*two)),
        "filter_flip": draw(st.booleans()),
    }
    return image, taps, parameters


def case(images, channels, filters, image, taps, border_mode="valid", step=1, dilation=1, **others):
    """Return images, filters, a gradient of the result, and parameters of the host's op."""
    dims = len(image)
    step, dilation = ((x,) * dims if isinstance(x, int) else x for x in (step, dilation))
    parameters = {"border_mode": border_mode, "subsample": step, "filter_dilation": dilation, **others}
    out = lengths_of(image, taps, border_mode, step, dilation)
    groups = others.get("num_groups", 1)
    regions = out if others.get("unshared") else ()
    rng = np.random.default_rng(0)
    shapes = (
        (images, channels, *image),
        (filters, *regions, channels // groups, *taps),
        (images, filters, *out),
    )
    return [rng.uniform(-1, 1, shape) for shape in shapes], parameters


CASES = {
    "valid": case(2, 3, 5, (7, 6), (3, 2)),
    "half": case(3, 4, 8, (16, 16), (3, 3), "half"),
    "rows of vectors": case(1, 2, 9, (3, 33), (3, 3), "half"),
    "full": case(2, 2, 4, (5, 6), (3, 4), "full", filter_flip=False),
    "asymmetric": case(2, 2, 4, (9, 8), (3, 3), ((0, 2), (1, 0)), step=(2, 1)),
    "strided": case(2, 3, 17, (11, 14), (3, 3), 1, step=(2, 3)),
    "every other of vectors": case(1, 2, 9, (5, 67), (3, 3), "half", step=2),
    "every other, without padding": case(1, 2, 9, (3, 66), (1, 2), step=(1, 2)),
    "dilated": case(2, 3, 4, (12, 13), (3, 2), (2, 1), step=2, dilation=(2, 3), filter_flip=False),
    "more padding than taps": case(2, 2, 4, (3, 3), (2, 2), (3, 4), step=2),
    "strided, padded at the end": case(2, 2, 5, (3, 18), (1, 2), ((0, 0), (0, 17)), step=(1, 2), dilation=(1, 2)),
    "steps over elements": case(2, 2, 4, (9, 9), (2, 1), step=4),
    "1x1": case(2, 6, 5, (6, 7), (1, 1)),
    "1x1 strided": case(2, 6, 5, (6, 7), (1, 1), step=2),
    "one pixel": case(3, 4, 5, (1, 1), (1, 1)),
    "groups": case(2, 6, 8, (8, 7), (3, 3), "half", num_groups=2),
    "depthwise": case(2, 4, 4, (9, 20), (3, 3), "half", num_groups=4),
    "depthwise strided": case(2, 4, 8, (9, 20), (3, 3), "half", step=2, num_groups=4),
    "three axes": case(2, 3, 4, (4, 5, 6), (2, 3, 2), (1, 0, 1), step=(1, 2, 1)),
    "three axes in groups": case(1, 4, 4, (5, 4, 3), (2, 2, 2), "full", dilation=(2, 1, 1), num_groups=2),
    "unshared": case(2, 3, 4, (6, 5), (3, 2), "half", unshared=True),
    "unshared in groups": case(
        2, 4, 6, (8, 7), (3, 2), ((1, 0), 2), step=(2, 1), dilation=2, num_groups=2, unshared=True, filter_flip=False
    ),
}


def close(got, want, dtype):
    assert got.shape == want.shape and got.dtype == want.dtype == dtype
    eps = np.finfo(dtype).eps
    scale = max(np.abs(want.astype("float64")).max(initial=0), 1)
    np.testing.assert_allclose(got, want, rtol=0, atol=(2 if dtype == "float16" else 60) * eps * scale)
