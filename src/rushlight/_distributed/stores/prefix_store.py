"""`PrefixStore`: another store, with a prefix before every key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rushlight._distributed.stores.store import Store, as_bytes

__all__ = ["PrefixStore"]


class PrefixStore(Store):
    """`store`, with `prefix` and a slash before every key: several users of one store do not meet.

    >>> import rushlight as torch
    >>> store = torch.distributed.HashStore()
    >>> torch.distributed.PrefixStore("mine", store).set("key", "value")
    >>> store.get("mine/key")
    b'value'
    """

    __module__ = "torch.distributed"

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        if store is None:
            raise ValueError("a PrefixStore is a part of another store, got None")
        self._prefix, self._store = f"{prefix}/", store

    def _named(self, key: str) -> str:
        return self._prefix + key

    def _all_named(self, keys: Sequence[str]) -> list[str]:
        return [self._prefix + key for key in keys]

    @property
    def underlying_store(self) -> Store:
        """The store below."""
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store = self._store
        while isinstance(store, PrefixStore):
            store = store._store
        return store

    @property
    def timeout(self) -> timedelta:
        """The time limit of the store below."""
        return self._store.timeout

    def set_timeout(self, timeout: timedelta, /) -> None:
        self._store.set_timeout(timeout)

    def set(self, key: str, value: str | bytes, /) -> None:
        self._store.set(self._named(key), as_bytes(value))

    def get(self, key: str, /) -> bytes:
        return self._store.get(self._named(key))

    def add(self, key: str, value: int, /) -> int:
        return self._store.add(self._named(key), value)

    def check(self, keys: Sequence[str], /) -> bool:
        return self._store.check(self._all_named(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        if timeout is None:
            self._store.wait(self._all_named(keys))
        else:
            self._store.wait(self._all_named(keys), timeout)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes, /) -> bytes:
        return self._store.compare_set(self._named(key), as_bytes(expected_value), as_bytes(desired_value))

    def delete_key(self, key: str, /) -> bool:
        return self._store.delete_key(self._named(key))

    def num_keys(self) -> int:
        """How many keys the store below has."""
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        """The keys with this prefix, without it."""
        return [key.removeprefix(self._prefix) for key in self._store.list_keys() if key.startswith(self._prefix)]

    def append(self, key: str, value: str | bytes, /) -> None:
        self._store.append(self._named(key), as_bytes(value))

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        return self._store.multi_get(self._all_named(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes], /) -> None:
        self._store.multi_set(self._all_named(keys), [as_bytes(value) for value in values])

    def queue_push(self, key: str, value: str | bytes, /) -> None:
        self._store.queue_push(self._named(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._named(key), block)

    def queue_len(self, key: str, /) -> int:
        return self._store.queue_len(self._named(key))

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        self._store.barrier(self._named(key), world_size, timeout)

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    def clone(self) -> PrefixStore:
        """The same prefix, over a clone of the store below."""
        return PrefixStore(self._prefix[:-1], self._store.clone())
