"""What every room may use and nothing of ours: knobs, errors, logs, lazy imports, pytrees."""
