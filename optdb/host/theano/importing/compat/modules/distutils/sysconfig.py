"""``distutils.sysconfig``: how Python was built, according to ``sysconfig``."""

import sysconfig
from sysconfig import get_config_h_filename, get_config_var, get_config_vars, get_python_version

__all__ = [
    "get_config_h_filename",
    "get_config_var",
    "get_config_vars",
    "get_python_inc",
    "get_python_lib",
    "get_python_version",
]


def get_python_inc(plat_specific: bool = False, prefix: str | None = None) -> str:
    """Return the folder of Python's headers."""
    variables = {"base": prefix, "platbase": prefix} if prefix else None
    return sysconfig.get_path("platinclude" if plat_specific else "include", vars=variables)


def get_python_lib(plat_specific: bool = False, standard_lib: bool = False, prefix: str | None = None) -> str:
    """Return the folder of Python's own library, or of installed packages."""
    variables = {"base": prefix, "platbase": prefix} if prefix else None
    if standard_lib:
        return sysconfig.get_path("platstdlib" if plat_specific else "stdlib", vars=variables)
    return sysconfig.get_path("platlib" if plat_specific else "purelib", vars=variables)
