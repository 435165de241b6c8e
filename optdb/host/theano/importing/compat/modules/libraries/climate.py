"""``climate`` for theanets, which uses its logger function; the package index has a different package of this name."""

import logging

__all__ = ["get_logger"]

get_logger = logging.getLogger
