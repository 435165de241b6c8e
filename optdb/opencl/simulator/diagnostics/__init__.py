"""Diagnostics for a function on a device: checking its steps, profiling its time, and predicting its memory."""
