"""Diagnostics of a function on a device: check its steps, profile its time, account for its memory."""
