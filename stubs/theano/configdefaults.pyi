from _typeshed import Incomplete
from theano.configparser import TheanoConfigParser

config: TheanoConfigParser
gcc_version_str: str

def __getattr__(name: str) -> Incomplete: ...
