"""Programs that leave: compiled ahead of time into one file, or into a shared library that C calls."""
