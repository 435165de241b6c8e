"""What Keras 2.3.1, Lasagne 0.1 and PyMC3 3.9.3 expect of older Pythons and of packages that are not installed.

`install` puts it all in place, once; each part leaves alone what is there already, so newer or older versions of
Python and NumPy get only what they lack.
"""

from models.shims.aliases import install_aliases
from models.shims.downsample import install_downsample
from models.shims.minibatches import repair_minibatches
from models.shims.stand_ins import install_stand_ins

__all__ = ["install", "repair_minibatches"]


def install() -> None:
    """Put every shim in place that this Python lacks."""
    install_aliases()
    install_downsample()
    install_stand_ins()
