"""Execution of a function on a device: its device graph, linking, inputs and outputs, and state."""
