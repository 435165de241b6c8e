"""The host interface for PyTensor, imported as ``optdb.host.api``."""
