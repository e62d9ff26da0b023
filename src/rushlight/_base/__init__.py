"""Base utilities without dependencies on other rooms: knobs, errors, logs, lazy imports, pytrees."""
