"""`Pool`, whose tasks and results may hold tensors: that of `multiprocessing`."""

from multiprocessing.pool import Pool as Pool

__all__ = ["Pool"]
