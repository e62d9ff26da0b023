"""Settings of PyTorch's own backend, as `torch._inductor.config`: every name of PyTorch 2.13 can be read, set and
patched.

Kernels here are made otherwise, so most of them have nothing to decide.
"""

from __future__ import annotations

from rushlight.compiler.settings import install

install(__name__)
