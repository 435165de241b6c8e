"""``numpy.distutils.misc_util``: where NumPy's headers are."""

import numpy


def get_numpy_include_dirs() -> list[str]:
    """Return the folders of NumPy's headers."""
    return [numpy.get_include()]
