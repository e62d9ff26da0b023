"""`torch.utils.data.datapipes.utils`: files and streams of pipelines, and what their bytes stand for."""

from __future__ import annotations

__all__ = ["decoder", "streams"]
