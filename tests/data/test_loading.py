"""Datasets, samplers, collation and the loader."""

from __future__ import annotations

import collections
import json
import pathlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from tests.data.loading import plain, run

import rushlight as torch
from rushlight.utils import data
from rushlight.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)

EXPECTED = json.loads(pathlib.Path(__file__).with_name("loading.json").read_text())
Pair = collections.namedtuple("Pair", "a b")


class Stream(IterableDataset[int]):
    def __init__(self, n: int = 7, said: int | None = None) -> None:
        self.n = n
        self.said = n if said is None else said

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.said


def test_the_same_order_as_pytorch() -> None:
    found = run(torch, data)
    assert list(found) == list(EXPECTED)
    for name, wanted in EXPECTED.items():
        assert found[name] == wanted, name


@pytest.mark.oracle
def test_stored_order_is_that_of_the_installed_pytorch() -> None:
    real = pytest.importorskip("torch")
    import torch.utils.data as real_data

    assert run(real, real_data) == EXPECTED


# ***** datasets *****


def test_tensor_dataset() -> None:
    d = TensorDataset(torch.arange(3), torch.ones(3, 2))
    assert len(d) == 3 and plain(d[1]) == [1, [1.0, 1.0]]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        TensorDataset(torch.ones(2), torch.ones(3))


def test_putting_datasets_together() -> None:
    a, b = TensorDataset(torch.arange(3)), TensorDataset(torch.arange(10, 14))
    both = a + b
    assert isinstance(both, ConcatDataset) and len(both) == 7
    assert plain([both[i] for i in (0, 2, 3, 6, -1, -7)]) == [[0], [2], [10], [13], [13], [0]]
    with pytest.raises(ValueError, match="absolute value of index"):
        both[-8]
    with pytest.raises(AssertionError, match="should not be an empty iterable"):
        ConcatDataset([])
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        ConcatDataset([Stream()])
    chain = Stream(2) + Stream(3)
    assert isinstance(chain, ChainDataset) and list(chain) == [0, 1, 0, 1, 2] and len(chain) == 5
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(ChainDataset([a]))


def test_stack_dataset() -> None:
    a, b = TensorDataset(torch.arange(3)), Subset(TensorDataset(torch.arange(3) * 10), [2, 1, 0])
    assert plain(StackDataset(a, b)[0]) == [[0], [20]]
    assert plain(StackDataset(x=a, y=b)[1]) == {"x": [1], "y": [10]}
    assert plain(StackDataset(a, b).__getitems__([0, 2])) == [[[0], [20]], [[2], [0]]]
    assert plain(StackDataset(x=a, y=b).__getitems__([2])) == [{"x": [2], "y": [0]}]
    assert len(StackDataset(a, b)) == 3
    for bad in (lambda: StackDataset(), lambda: StackDataset(a, y=b), lambda: StackDataset(a, Subset(a, [0]))):
        with pytest.raises(ValueError):
            bad()


def test_subset() -> None:
    d = Subset(TensorDataset(torch.arange(5)), [4, 2])
    assert len(d) == 2 and plain(d[0]) == [4] and plain(d.__getitems__([1, 0])) == [[2], [4]]

    class Half(Subset):
        def __getitem__(self, i: Any) -> Any:
            return 0

    with pytest.raises(NotImplementedError, match="must also override __getitems__"):
        Half(d, [0])
    assert Subset[int].__origin__ is Subset and ConcatDataset[int].__origin__ is ConcatDataset  # for annotations


def test_random_split() -> None:
    d = TensorDataset(torch.arange(10))
    parts = random_split(d, [0.25, 0.25, 0.5], torch.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [3, 2, 5]
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    with pytest.raises(ValueError, match="does not equal the length"):
        random_split(d, [3, 3])
    with pytest.raises(ValueError, match="not between 0 and 1"):
        random_split(d, [1.5, -0.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        random_split(d, [1.0, 0.0])


def test_dataset_without_items() -> None:
    with pytest.raises(NotImplementedError, match="should implement __getitem__"):
        Dataset()[0]


# ***** samplers *****


def test_sampler_arguments() -> None:
    d = TensorDataset(torch.arange(3))
    assert list(SequentialSampler(d)) == [0, 1, 2] and len(SequentialSampler(d)) == 3
    assert (
        list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]] and len(BatchSampler(range(5), 2, False)) == 3
    )
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]] and len(BatchSampler(range(5), 2, True)) == 2
    for bad in (
        lambda: BatchSampler(range(5), 0, False),
        lambda: BatchSampler(range(5), True, False),
        lambda: BatchSampler(range(5), 2, 1),  # type: ignore[arg-type]
        lambda: RandomSampler([], num_samples=None),
        lambda: RandomSampler([1], num_samples=0),
        lambda: WeightedRandomSampler([1.0], 0),
        lambda: WeightedRandomSampler([[1.0]], 1),
        lambda: WeightedRandomSampler([1.0], 1, replacement=3),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(TypeError, match="replacement should be a boolean"):
        RandomSampler([1], replacement=3)  # type: ignore[arg-type]


def test_distributed_sampler() -> None:
    def parts(size: int, **options: Any) -> list[list[int]]:
        return [list(DistributedSampler(range(size), 4, rank, **options)) for rank in range(4)]

    assert parts(10, shuffle=False) == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert parts(10, shuffle=False, drop_last=True) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert parts(1, shuffle=False) == [[0]] * 4
    assert sorted(i for part in parts(12) for i in part) == list(range(12))
    sampler = DistributedSampler(range(20), 2, 0, seed=5)
    first = list(sampler)
    assert first == list(sampler) and len(sampler) == 10
    sampler.set_epoch(1)
    assert list(sampler) != first
    with pytest.raises(ValueError, match="Invalid rank 2"):
        DistributedSampler(range(4), 2, 2)
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedSampler(range(4))


def test_random_sampler_is_a_permutation_each_time() -> None:
    sampler = RandomSampler(range(50))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(50)) and first != second


# ***** collation *****


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        ([1, 2], "tensor([1, 2])"),
        ([1.0, 2.0], "tensor([1., 2.], dtype=torch.float64)"),
        ([True, False], "tensor([ True, False])"),
        (["a", "b"], "['a', 'b']"),
        ([b"a", b"b"], "[b'a', b'b']"),
        ([np.ones(2), np.zeros(2)], "tensor([[1., 1.],\n        [0., 0.]], dtype=torch.float64)"),
        ([np.float32(1), np.float32(2)], "tensor([1., 2.])"),
        ([np.float64(1), np.float64(3)], "tensor([1., 3.], dtype=torch.float64)"),
        ([(1, "a"), (2, "b")], "[tensor([1, 2]), ('a', 'b')]"),
        ([[1, 2], [3, 4]], "[tensor([1, 3]), tensor([2, 4])]"),
        ([{"x": 1, "y": [1]}, {"x": 2, "y": [3]}], "{'x': tensor([1, 2]), 'y': [tensor([1, 3])]}"),
        ([Pair(1, 2), Pair(3, 4)], "Pair(a=tensor([1, 3]), b=tensor([2, 4]))"),
        ([MappingProxyType({"k": 1})], "mappingproxy({'k': tensor([1])})"),
    ],
)
def test_default_collate(batch: Any, wanted: str) -> None:
    assert repr(default_collate(batch)) == wanted


def test_collate_errors() -> None:
    with pytest.raises(
        TypeError, match="must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'object'>"
    ):
        default_collate([object()])
    with pytest.raises(TypeError, match="default_collate"):
        default_collate([np.array(["a"])])
    with pytest.raises(RuntimeError, match="should be of equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(RuntimeError, match=r"stack expects each tensor to be equal size"):
        default_collate([torch.ones(1), torch.ones(2)])


def test_collate_with_own_types() -> None:
    class Point:
        pass

    made = data._utils.collate.collate(
        [Point(), Point()], collate_fn_map={Point: lambda batch, *, collate_fn_map: len(batch)}
    )
    assert made == 2


def test_default_convert() -> None:
    found = default_convert({"a": np.ones(2), "b": [np.int32(1), "s"], "t": (1, np.zeros(1)), "p": Pair(1, np.ones(1))})
    assert repr(found["a"]) == "tensor([1., 1.], dtype=torch.float64)" and found["b"][1] == "s"
    assert isinstance(found["t"], list) and isinstance(found["p"], Pair) and isinstance(found["p"].b, torch.Tensor)
    names = np.array(["x"])
    assert default_convert(names) is names


# ***** the loader *****


def test_loader() -> None:
    d = TensorDataset(torch.arange(7), torch.ones(7, 2))
    loader = DataLoader(d, batch_size=3)
    batches = list(loader)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]] and batches[0][1].shape == (3, 2)
    assert len(loader) == 3 and len(DataLoader(d, batch_size=3, drop_last=True)) == 2
    assert [len(b) for b in DataLoader(list(range(5)), batch_size=2, collate_fn=list)] == [2, 2, 1]
    assert list(DataLoader([np.ones(1), "x"], batch_size=None))[1] == "x"


def test_rows_are_gathered_as_they_would_be_stacked() -> None:
    x = torch.arange(24.0).reshape(4, 6).T
    d = TensorDataset(x, torch.arange(6), torch.arange(6).to(torch.bool))
    for source in (d, Subset(d, [5, -1, 0, 2, 2])):
        fast = list(DataLoader(source, batch_size=2))
        slow = list(DataLoader(source, batch_size=2, collate_fn=lambda samples: default_collate(samples)))
        assert plain(fast) == plain(slow)
        assert [type(b) for b in fast] == [list] * len(fast)
        assert [[t.stride() for t in b] for b in fast] == [[t.stride() for t in b] for b in slow]
    with pytest.raises(IndexError):
        list(DataLoader(d, sampler=[6]))


def test_getitems_is_used() -> None:
    class Many(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitems__(self, indices: list[int]) -> list[int]:
            return [i * 10 for i in indices]

    assert [b.tolist() for b in DataLoader(Many(), batch_size=3)] == [[0, 10, 20], [30]]


def test_streams() -> None:
    assert [b.tolist() for b in DataLoader(Stream(), batch_size=3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [b.tolist() for b in DataLoader(Stream(), batch_size=3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    assert list(DataLoader(Stream(), batch_size=None)) == list(range(7))
    assert len(DataLoader(Stream(), batch_size=3)) == 3
    loader = DataLoader(Stream(3, said=1), batch_size=1)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="was reported to be 1"):
        assert len(list(loader)) == 3


def test_every_epoch_has_another_order() -> None:
    torch.manual_seed(0)
    loader = DataLoader(list(range(30)), batch_size=30, shuffle=True)
    first, second = next(iter(loader)).tolist(), next(iter(loader)).tolist()
    assert first != second and sorted(first) == sorted(second)
    torch.manual_seed(0)
    assert next(iter(loader)).tolist() == first


def test_loader_arguments() -> None:
    d = list(range(4))
    for kind, options in (
        (ValueError, {"num_workers": -1}),
        (ValueError, {"timeout": -1}),
        (ValueError, {"prefetch_factor": 2}),
        (ValueError, {"persistent_workers": True}),
        (ValueError, {"multiprocessing_context": "fork"}),
        (ValueError, {"sampler": [1], "shuffle": True}),
        (ValueError, {"batch_sampler": [[1]], "batch_size": 2}),
        (ValueError, {"batch_sampler": [[1]], "drop_last": True}),
        (ValueError, {"batch_size": None, "drop_last": True}),
        (ValueError, {"multiprocessing_context": "thread", "num_workers": 1}),
        (TypeError, {"multiprocessing_context": 3, "num_workers": 1}),
    ):
        with pytest.raises(kind):
            DataLoader(d, **options)
    for options in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="DataLoader with IterableDataset"):
            DataLoader(Stream(), **options)
    loader = DataLoader(d, batch_size=2)
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 3
    assert data.get_worker_info() is None


def test_iterating_twice_at_once() -> None:
    loader = DataLoader(list(range(4)), batch_size=2)
    a, b = iter(loader), iter(loader)
    assert next(a).tolist() == next(b).tolist() == [0, 1] and next(a).tolist() == [2, 3]
    with pytest.raises(StopIteration):
        next(a)
