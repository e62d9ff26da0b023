import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

torch.manual_seed(13)


class DS(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": np.arange(i + 1, dtype=np.float32), "y": i % 3, "name": f"s{i}"}


def coll(b):
    L = torch.tensor([len(d["x"]) for d in b])
    X = torch.zeros(len(b), int(L.max()))
    for i, d in enumerate(b):
        X[i, : len(d["x"])] = torch.as_tensor(d["x"])
    return {"x": X, "len": L, "y": torch.LongTensor([d["y"] for d in b]), "name": [d["name"] for d in b]}


for b in DataLoader(DS(7), batch_size=3, shuffle=True, collate_fn=coll):
    print(b)
for b in DataLoader(
    DS(6), sampler=WeightedRandomSampler([1, 2, 3, 4, 5, 6], 4, replacement=True), batch_size=2, collate_fn=coll
):
    print(b["name"], b["len"])
print(
    list(BatchSampler(SequentialSampler(range(5)), 2, False)),
    list(RandomSampler(range(5))),
    list(SubsetRandomSampler([3, 1, 2])),
)


class It(IterableDataset):
    def __iter__(self):
        return iter([(float(i), (i, str(i))) for i in range(5)])


for b in DataLoader(It(), batch_size=2):
    print(b)


class P(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((2,), float(i)), np.array([i, i], dtype=np.int32), np.float64(i)


for b in DataLoader(ConcatDataset([P(), Subset(P(), [0, 1])]), 4):
    print(b)


def seed_worker(w):
    np.random.seed(torch.initial_seed() % 2**32)


g = torch.Generator()
g.manual_seed(0)
dl = DataLoader(P(), 2, shuffle=True, num_workers=0, worker_init_fn=seed_worker, generator=g, pin_memory=False)
print(len(dl), [b[0][:, 0].tolist() for b in dl])
