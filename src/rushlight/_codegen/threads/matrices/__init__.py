"""Products by `mma`: forms and layouts of operands, how these come from shared memory, and the instructions."""
