"""``climate`` for theanets, which uses its logger; the package index has a different package of this name."""

import logging

get_logger = logging.getLogger
