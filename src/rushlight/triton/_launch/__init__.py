"""Launches: keys of arguments, and how compiled kernels run."""
