"""The reference backend: runs a graph in NumPy, one primitive after another, by the definitions in the primitive
records.

It is slow and it is the definition: every other backend is tested against it.
"""

from rushlight._backends.reference.run import run, run_ranks

__all__ = ["run", "run_ranks"]
