"""Export everything that this process kept or found on disk as bytes, for another machine of the same kind.

The bytes are a magic line, the fingerprint of the cache (versions, processor), the edition of its records, and entries:
a letter (`o` machine code, `r` record), the key, the number of bytes, the bytes.  A digest of everything stands at the
end.  Reading executes nothing.  Machine code is executed when a program asks for it: so take only bytes from whom you
would take a program.
"""

from __future__ import annotations

from struct import Struct, error

from rushlight._base.digest import DIGEST_BYTES, digest
from rushlight._base.log import log
from rushlight._engine.dispatch.kept.plan_store import flush, store
from rushlight._native.cache import default_cache

__all__ = ["KINDS", "packed_artifacts", "put_artifacts"]

KINDS = {b"o": "objects", b"r": "records"}
_MAGIC = b"rushlight artifacts 1\n"
_ENTRY = Struct(f"<c{DIGEST_BYTES}sQ")


def packed_artifacts() -> tuple[bytes, dict[str, list[str]]]:
    """The bytes, and the keys of what is in them by kind."""
    flush()
    cache, records = default_cache(), store()
    parts = [_MAGIC, cache.fingerprint, bytes(DIGEST_BYTES) if records is None else records.edition]
    found: dict[str, list[str]] = {kind: [] for kind in KINDS.values()}
    for letter, source in ((b"o", cache), (b"r", records)):
        for key in [] if source is None else list(source.used):
            body = source.get(key)
            if body is not None:
                parts += [_ENTRY.pack(letter, key, len(body)), body]
                found[KINDS[letter]].append(key.hex())
    whole = b"".join(parts)
    return whole + digest(whole), found


def put_artifacts(data: bytes) -> dict[str, list[str]] | None:
    """Put what `packed_artifacts` gave into the cache: the keys of what was put, by kind; None where the bytes are not
    of this kind of machine, or of another version.  ValueError for bytes that it did not give.
    """
    whole, end = data[:-DIGEST_BYTES], len(data) - DIGEST_BYTES
    at = len(_MAGIC) + 2 * DIGEST_BYTES
    if end < at or not whole.startswith(_MAGIC) or digest(whole) != data[end:]:
        raise ValueError("these are no artifacts that save_cache_artifacts() gave, or not all of them")
    cache, records = default_cache(), store()
    if whole[len(_MAGIC) : len(_MAGIC) + DIGEST_BYTES] != cache.fingerprint:
        log("cache", "artifacts of another kind of machine, or of another version, are left aside")
        return None
    same_edition = records is not None and whole[at - DIGEST_BYTES : at] == records.edition
    found: dict[str, list[str]] = {kind: [] for kind in KINDS.values()}
    for letter, key, body in _entries(whole, at):
        if letter == b"o":
            cache.put(key, body, replace=False)
        elif same_edition:
            records.put(key, body)
        else:
            continue
        found[KINDS[letter]].append(key.hex())
    if records is not None:
        records.flush()
    return found


def _entries(data: bytes, at: int) -> list[tuple[bytes, bytes, bytes]]:
    found = []
    while at < len(data):
        try:
            letter, key, size = _ENTRY.unpack_from(data, at)
        except error:
            raise ValueError("artifacts that are cut off") from None
        at += _ENTRY.size + size
        if letter not in KINDS or at > len(data):
            raise ValueError("artifacts of no known kind, or cut off")
        found.append((letter, key, data[at - size : at]))
    return found
