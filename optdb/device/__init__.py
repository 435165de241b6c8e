"""The device compiler, for any host: from what a front end describes to commands on a device."""
