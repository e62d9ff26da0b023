"""Queues that carry tensors: those of `multiprocessing`, whose pickler hands tensors over by their memory."""

from multiprocessing.connection import Connection as Connection
from multiprocessing.queues import Queue as Queue
from multiprocessing.queues import SimpleQueue as SimpleQueue

__all__ = ["Queue", "SimpleQueue"]
