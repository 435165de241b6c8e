"""Compiled functions of the host: observed, copied, decomposed, printed."""
