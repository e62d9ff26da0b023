"""The package `torch` of child processes: it replaces itself with rushlight.

The folder above this one is on PYTHONPATH then, and nothing else is.
"""

import os
import sys

try:
    from rushlight._base.alias import install
except ModuleNotFoundError:  # the parent loaded rushlight from a path that this process lacks: beside its script
    sys.path.append(os.path.abspath(__file__).rsplit(os.sep, 5)[0])
    from rushlight._base.alias import install

install()
