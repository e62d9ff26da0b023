"""Parts of functions that were traced: how they are made, called, rebuilt at a break and kept on disk."""
