"""The parts of ``pkg_resources`` that Theano and Lasagne use; newer versions of setuptools lack the module."""

from importlib.metadata import PackageNotFoundError as DistributionNotFound
from importlib.metadata import distribution as get_distribution

__all__ = ["DistributionNotFound", "get_distribution"]
