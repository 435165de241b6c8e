"""``climate`` for theanets, whose logger was a function of it: the package of this name on the index is another one."""

import logging

__all__ = ["get_logger"]

get_logger = logging.getLogger
