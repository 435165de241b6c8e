"""``configparser`` with the class that Python 3.12 removed."""

import configparser
from configparser import ConfigParser

from optdb.host.theano.importing.compat.modules._falling_back import fall_back_to

SafeConfigParser = ConfigParser

__getattr__, __dir__ = fall_back_to(configparser, globals())
