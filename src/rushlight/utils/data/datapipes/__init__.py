"""Data pipes: datasets made of small steps, each a dataset over the one before."""

from rushlight.utils.data.datapipes import iter as iter
from rushlight.utils.data.datapipes import map as map
