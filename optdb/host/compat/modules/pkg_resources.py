"""The part of ``pkg_resources`` that Theano uses: newer setuptools have none."""

from importlib.metadata import PackageNotFoundError as DistributionNotFound

__all__ = ["DistributionNotFound"]
