"""The parts of ``distutils`` and its submodules that Theano uses; Python 3.12 removed the package."""

# ruff: noqa: F401 (Theano imports them)

import shutil
import sys
import sysconfig as installed
from sysconfig import get_config_h_filename, get_config_var, get_config_vars, get_python_version

spawn = sysconfig = sys.modules[__name__]


def find_executable(executable: str, path: str | None = None) -> str | None:
    """Return the path of a program; None if there is none."""
    return shutil.which(executable, path=path)


def get_python_inc(plat_specific: bool = False, prefix: str | None = None) -> str:
    """Return the folder of Python's headers."""
    variables = {"base": prefix, "platbase": prefix} if prefix else None
    return installed.get_path("platinclude" if plat_specific else "include", vars=variables)


def get_python_lib(plat_specific: bool = False, standard_lib: bool = False, prefix: str | None = None) -> str:
    """Return the folder of Python's own library, or of installed packages."""
    variables = {"base": prefix, "platbase": prefix} if prefix else None
    if standard_lib:
        return installed.get_path("platstdlib" if plat_specific else "stdlib", vars=variables)
    return installed.get_path("platlib" if plat_specific else "purelib", vars=variables)
