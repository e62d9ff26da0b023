"""Datasets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import import_whole, no_name, shorten

_PLACES = {
    **dict.fromkeys(("DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"), "datapipes.datapipe"),
    **dict.fromkeys(
        (
            "argument_validation",
            "functional_datapipe",
            "guaranteed_datapipes_determinism",
            "non_deterministic",
            "runtime_validation",
            "runtime_validation_disabled",
        ),
        "datapipes.decorators",
    ),
    "BatchSampler": "sampler",
    "ChainDataset": "dataset",
    "ConcatDataset": "dataset",
    "DataLoader": "dataloader",
    "Dataset": "dataset",
    "DistributedSampler": "distributed",
    "IterableDataset": "dataset",
    "RandomSampler": "sampler",
    "Sampler": "sampler",
    "SequentialSampler": "sampler",
    "StackDataset": "dataset",
    "StatefulDataLoader": "stateful",
    "Subset": "dataset",
    "SubsetRandomSampler": "sampler",
    "TensorDataset": "dataset",
    "WeightedRandomSampler": "sampler",
    "_DatasetKind": "dataloader",
    "default_collate": "_utils.collate",
    "default_convert": "_utils.collate",
    "get_worker_info": "_utils.worker",
    "random_split": "dataset",
}
_PAGES = (
    "_utils",
    "dataloader",
    "datapipes",
    "dataset",
    "distributed",
    "graph",
    "graph_settings",
    "sampler",
    "stateful",
)
# Names with which pipes of one's own begin.
_STEPPED = ("IterDataPipe", "MapDataPipe", "DFIterDataPipe", "functional_datapipe")

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    try:
        if name in _PAGES:
            return import_whole(f"{__name__}.{name}")
        if name in _STEPPED:
            import_whole(f"{__name__}.datapipes")  # all steps, so that pipes have their methods
        if name not in _PLACES:
            raise no_name(__name__, name)
        value = getattr(import_whole(f"{__name__}.{_PLACES[name]}"), name)
        globals()[name] = value
        return value
    except BaseException as error:
        shorten(error)
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_PAGES})
