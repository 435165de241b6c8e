"""PyTensor's modules of the vocabulary, imported as ``optdb.host.api``."""
