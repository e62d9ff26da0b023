"""Programs compiled ahead of time for x86-64: code for several processors in one shared library."""
