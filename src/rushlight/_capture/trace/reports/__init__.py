"""Reports of a trace: breaks, recompilations, failures, warnings."""
