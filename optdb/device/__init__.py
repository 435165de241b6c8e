"""The device compiler, for any host: compiles a front end's functions to commands on a device."""
