"""How long operations may take."""

from __future__ import annotations

from datetime import timedelta

from rushlight.distributed.c10d.options import default_pg_timeout

__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]

default_pg_nccl_timeout = timedelta(minutes=10)
