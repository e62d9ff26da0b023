"""Settings of ahead-of-time autograd, as `torch._functorch.config`: every name of PyTorch 2.13 can be read, set and
patched.
"""

from __future__ import annotations

from rushlight.compiler.settings import install

install(__name__)
