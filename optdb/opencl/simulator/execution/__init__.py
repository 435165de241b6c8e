"""Execution of a function on a device: its device graph, its linking, its bound inputs and outputs, and its state."""
