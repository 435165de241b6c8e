"""How a device executes a function: its graph there, the linker, the binding of inputs and outputs, its state."""
