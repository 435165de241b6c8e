"""Theano's configuration object, in which the optdb.* flags live too."""

from theano import config

__all__ = ["config"]
