"""Theano's own logger for optimization, to which rewriting reports.

Users and Theano's tests look there for failures, and the handler that prints
them is set up by Theano.
"""

import logging

logger = logging.getLogger("theano.gof.opt")
