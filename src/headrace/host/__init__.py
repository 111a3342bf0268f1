"""Facts of the machine that the server sizes itself by and the probes report."""
