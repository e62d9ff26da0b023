"""Pipes whose samples are reached by a key."""

from rushlight.utils.data.datapipes.map.steps import BatcherMapDataPipe as Batcher
from rushlight.utils.data.datapipes.map.steps import ConcaterMapDataPipe as Concater
from rushlight.utils.data.datapipes.map.steps import MapperMapDataPipe as Mapper
from rushlight.utils.data.datapipes.map.steps import SequenceWrapperMapDataPipe as SequenceWrapper
from rushlight.utils.data.datapipes.map.steps import ShufflerIterDataPipe as Shuffler
from rushlight.utils.data.datapipes.map.steps import ZipperMapDataPipe as Zipper

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
