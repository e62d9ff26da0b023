"""Arguments of communication hooks."""

from __future__ import annotations

from rushlight.nn.parallel.buckets import GradBucket as GradBucket

__all__ = ["GradBucket"]
