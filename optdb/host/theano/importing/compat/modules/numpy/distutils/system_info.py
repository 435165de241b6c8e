"""``numpy.distutils.system_info``: the installed libraries. optdb looks for a BLAS itself."""

default_lib_dirs: list[str] = []


class system_info:  # noqa: N801
    """Holds a setting that Theano makes."""

    verbosity = 0


def get_info(name: str, notfound_action: int = 0) -> dict[str, object]:
    """Return the information about a library: none."""
    return {}
