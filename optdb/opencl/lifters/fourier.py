"""Lifters of Fourier transforms."""

from __future__ import annotations

from optdb.host import fourier as host
from optdb.opencl.lifters.support import floats_only, register_counterparts
from optdb.opencl.ops import fft  # noqa: F401  counterparts

register_counterparts("lift_fourier", 95, [host.RFFTOp, host.IRFFTOp], floats_only)
