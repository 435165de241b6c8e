"""PyTensor's modules of the host interface, imported as ``optdb.host.api``."""
