"""Compiled functions of the host: observed, copied, taken apart, printed."""
