"""``climate``, whose logger theanets uses; the package index has a different package with this name."""

import logging

get_logger = logging.getLogger
