"""The host interface, which contains only what a host must provide.

``topo``, ``cache`` and ``lifters`` access the host only through these modules. If PyTensor is the host, modules in
``optdb/host/pytensor/api`` replace the modules of the same name here.
"""

from pathlib import Path

from optdb.host import bound_host

if bound_host() == "pytensor":
    __path__.insert(0, str(Path(__file__).parent.parent / "pytensor" / "api"))
