"""``climate`` for theanets, which uses its logger function; the package of this name on the index is another one."""

import logging

__all__ = ["get_logger"]

get_logger = logging.getLogger
