"""Settings of the whole compiler, as `torch.compiler.config`; most are other names of settings of
`torch._dynamo.config`.
"""

from __future__ import annotations

from rushlight.compiler.settings import install

install(__name__)
