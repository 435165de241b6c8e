"""Execution of a function on a device: its device graph, linking, bound inputs and outputs, and state."""
