"""Tools of every page that are not about tensors: loading by first use, absent names, errors, pytrees."""

from __future__ import annotations

from rushlight._base import trace_marks
from rushlight._base.absent import absent_class, absent_function, refuse
from rushlight._base.errors import MissingDeviceError, warn_once, warn_user
from rushlight._base.forking import free_after_fork
from rushlight._base.importing import import_whole
from rushlight._base.lazy import LazyModule, lazy_files, lazy_names, numpy, require
from rushlight._base.naming import no_name
from rushlight._base.pytree import NODES, tree_flatten, tree_map, tree_unflatten
from rushlight._base.references import BY_VARIABLE
from rushlight._base.tracebacks import shorten

__all__ = [
    # Loading by first use.
    "lazy_files",  # `__getattr__` of a package whose names live in files
    "lazy_names",  # `__getattr__` of a module from a function of the name
    "require",  # import a module; says which extra to install where it is absent
    "numpy",  # NumPy, loaded by its first use
    "LazyModule",  # such a module
    "import_whole",  # import a module that no signal handler sees half done
    # Names that PyTorch has.
    "absent_class",  # a class that says why it is absent when it is used
    "absent_function",  # a function that does
    "refuse",  # raise NotImplementedError, with a reason
    "no_name",  # the AttributeError of a page
    # Errors and warnings.
    "MissingDeviceError",  # asked for a device that is not here
    "warn_user",  # warn at the user's line
    "warn_once",  # the same, once in a program
    "shorten",  # leave our own frames out of a traceback
    # Pytrees.
    "NODES",  # type -> how to take it apart and build it again
    "tree_flatten",
    "tree_map",
    "tree_unflatten",
    # Marks of functions that a trace may not run.
    "trace_marks",  # the decorators that say so
    # Processes, and CPython.
    "free_after_fork",  # a lock that a forked process finds open
    "BY_VARIABLE",  # references that `sys.getrefcount` counts for a variable
]
