"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.utils.data.sampler import BatchSampler as BatchSampler
from rushlight.utils.data.dataset import ChainDataset as ChainDataset
from rushlight.utils.data.dataset import ConcatDataset as ConcatDataset
from rushlight.utils.data.dataloader import DataLoader as DataLoader
from rushlight.utils.data.dataset import Dataset as Dataset
from rushlight.utils.data.distributed import DistributedSampler as DistributedSampler
from rushlight.utils.data.dataset import IterableDataset as IterableDataset
from rushlight.utils.data.sampler import RandomSampler as RandomSampler
from rushlight.utils.data.sampler import Sampler as Sampler
from rushlight.utils.data.sampler import SequentialSampler as SequentialSampler
from rushlight.utils.data.dataset import StackDataset as StackDataset
from rushlight.utils.data.dataset import Subset as Subset
from rushlight.utils.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from rushlight.utils.data.dataset import TensorDataset as TensorDataset
from rushlight.utils.data.sampler import WeightedRandomSampler as WeightedRandomSampler
from rushlight.utils.data import collate as collate
from rushlight.utils.data import dataloader as dataloader
from rushlight.utils.data import dataset as dataset
from rushlight.utils.data.collate import default_collate as default_collate
from rushlight.utils.data.collate import default_convert as default_convert
from rushlight.utils.data import distributed as distributed
from rushlight.utils.data.dataloader import get_worker_info as get_worker_info
from rushlight.utils.data.dataset import random_split as random_split
from rushlight.utils.data import sampler as sampler
