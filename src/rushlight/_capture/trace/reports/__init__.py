"""What a trace tells: breaks, recompilations, failures, warnings."""
