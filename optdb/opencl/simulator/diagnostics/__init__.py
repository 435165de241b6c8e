"""Diagnostics for a function on a device: checks of its steps, profiles, and predictions of memory use."""
