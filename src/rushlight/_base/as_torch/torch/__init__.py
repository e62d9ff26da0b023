"""What `import torch` finds in a program that was started by one of ours: it makes room for rushlight.

The folder above this one is on PYTHONPATH then, and nothing else is.
"""

import os
import sys

try:
    from rushlight._base.alias import install
except ModuleNotFoundError:  # the parent found rushlight where this process does not look: beside its script
    sys.path.append(os.path.abspath(__file__).rsplit(os.sep, 5)[0])
    from rushlight._base.alias import install

install()
