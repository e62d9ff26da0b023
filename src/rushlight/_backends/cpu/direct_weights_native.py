"""The gradient by the weights of convolutions with few channels a group: sums over all places, in the native language.

The operands are those of a `conv_windows` whose kernel are the cotangents: images [B, G, N, *S], cotangents [G, O, N, *P], results [B, G, O, *K].
A piece is some of the B x G; it goes over the images one after the other, each summed up by itself first.
"""

from __future__ import annotations

from rushlight._backends.cpu.direct_native import (
    BATCH,
    BLOCKS,
    CHUNK,
    DD,
    DEPTH,
    DH,
    GROUPS,
    HEIGHT,
    ID,
    IH,
    KD,
    KH,
    KW,
    LANES,
    LAST,
    OD,
    OH,
    OUTS,
    OW,
    PD,
    PH,
    PHASE,
    PITCH,
    REAL,
    ROWS,
    SD,
    SH,
    SINGLES,
    STEPS,
    TILE,
    TOGETHER,
    VECTORS,
    W_BASE,
    WC,
    WD,
    WG,
    WH,
    WO,
    WW,
    XC,
    XD,
    XG,
    XH,
    XN,
    YD,
    YG,
    YH,
    YN,
    YO,
    YW,
    make_movers,
    make_ready,
    rl_fail,
)  # fmt: skip
from rushlight._backends.cpu.direct_tile import RowMover
from rushlight._backends.cpu.scratch_native import borrow, borrowed, give_back
from rushlight._backends.native import NativeFunction, call_ptr, extern, i64, load, memset, native, store

__all__ = ["make_weights"]

SIGNATURE = "void(ptr, i64, i64, ptr, i64, ptr, i64, i64)"


# long function: one kernel, whose loops over rows and images share everything
def make_weights(source: str, target: str, mover: RowMover) -> NativeFunction:
    """The kernel: bufs are the result, the images, the cotangents."""
    real = REAL[source]
    size, item, y_item = real.itemsize, 2 if source in ("f16", "bf16") else real.itemsize, 2 if target in ("f16", "bf16") else real.itemsize
    take, put = make_movers(source, mover)
    if source != target:
        _, put = make_movers(target, mover)
    ready, places = make_ready(source, mover, take), extern(mover.places, "void(ptr, i64, ptr, i64, i64)")

    @native("void(ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64)", name=f"rows_{source}")
    def rows_of(ints, sums, rows, aside, x, ct, begin, end, valid):
        """Result rows `begin`..`end` of one plane; x and ct point to the planes."""
        lanes, pitch = ints.i64[LANES], size * ints.i64[PITCH]
        together = ints.i64[TOGETHER] != 0
        first = begin * ints.i64[SH] - ints.i64[PH]
        reach = (ints.i64[KH] - 1) * ints.i64[DH] + 1
        kept = lanes if together else ints.i64[OW] - (ints.i64[VECTORS] - 1) * lanes
        line = size * ints.i64[VECTORS] * lanes
        high = ints.i64[KH] // ints.i64[STEPS]
        done: i64 = 0
        at = begin
        while at < end:
            have, tile = ints.i64[HEIGHT], ints.ptr[TILE]
            if end - at < have:
                have, tile = i64(1), ints.ptr[LAST]
            needed = (at + have - 1 - begin) * ints.i64[SH] + reach
            for i in range(done, needed):
                h = first + i
                if h >= 0 and h < ints.i64[IH]:
                    ready(ints, rows + pitch * i, x + item * h * ints.i64[XH], valid)
                else:
                    memset(rows + pitch * i, 0, pitch)
            done = max(done, needed)
            for o in range(ints.i64[OUTS]):
                for r in range(have):
                    from_ = ct + item * (o * ints.i64[WO] + (at + r) * ints.i64[WH])
                    if together and item == size and valid == lanes:
                        places(aside + line * r, size * lanes, from_, size * ints.i64[WW], ints.i64[OW])
                    elif together:
                        for v in range(ints.i64[OW]):
                            take(aside + line * r + size * v * lanes, from_ + item * v * ints.i64[WW], valid, 1)
                    else:
                        take(aside + line * r, from_, ints.i64[OW], ints.i64[WW])
                for b in range(ints.i64[STEPS]):
                    call_ptr(SIGNATURE, tile, rows + pitch * ((at - begin) * ints.i64[SH] + b * high * ints.i64[DH]), pitch, size * ints.i64[PHASE],
                             aside, line, sums + size * lanes * (o * ints.i64[KD] * ints.i64[KH] + b * high) * ints.i64[KW], ints.i64[VECTORS], kept)
            at += have

    @native("void(ptr, ptr, ptr, i64)", name=f"results_{source}_{target}")
    def results(ints, y, total, valid):
        """The sums of a piece in the memory of the result: of all lanes, or each lane's own."""
        lanes = ints.i64[LANES]
        at: i64 = 0
        for o in range(ints.i64[OUTS]):
            for d in range(ints.i64[KD]):
                for h in range(ints.i64[KH]):
                    for w in range(ints.i64[KW]):
                        place = y + y_item * (o * ints.i64[YO] + d * ints.i64[YD] + h * ints.i64[YH] + w * ints.i64[YW])
                        if ints.i64[TOGETHER] != 0:
                            put(place, ints.i64[YG], total + size * at, valid)
                        else:
                            half = lanes // 2
                            while half > 0:
                                for k in range(half):
                                    store(real, total, at + k, load(real, total, at + k) + load(real, total, at + k + half))
                                half = half // 2
                            put(place, 1, total + size * at, 1)
                        at += lanes

    @native("void(ptr, ptr, ptr, ptr, ptr, i64)", name=f"image_{source}")
    def image(ints, total, memory, x, ct, valid):
        """Adds what one image gives; memory: its own sums, cotangents' rows, input rows."""
        lanes = ints.i64[LANES]
        taps = ints.i64[KD] * ints.i64[KH] * ints.i64[KW]
        count = ints.i64[OUTS] * taps * lanes
        aside = memory + (size * count + 63) // 64 * 64
        rows = aside + size * ints.i64[HEIGHT] * ints.i64[VECTORS] * lanes
        memset(memory, 0, size * count)
        for d in range(ints.i64[KD]):
            for p in range(ints.i64[OD]):
                depth = d * ints.i64[DD] + p * ints.i64[SD] - ints.i64[PD]
                if depth >= 0 and depth < ints.i64[ID]:
                    begin: i64 = 0
                    while begin < ints.i64[OH]:
                        rows_of(ints, memory + size * d * ints.i64[KH] * ints.i64[KW] * lanes, rows, aside, x + item * depth * ints.i64[XD],
                                ct + item * p * ints.i64[WD], begin, min(begin + ints.i64[BLOCKS], ints.i64[OH]), valid)
                        begin += ints.i64[BLOCKS]
        for k in range(count):
            store(real, total, k, load(real, total, k) + load(real, memory, k))

    @native("i32(ptr, ptr, i64)", name=f"rl_weights_{source}_{target}")
    def weights(bufs, ints, piece):
        lanes = ints.i64[LANES]
        count = ints.i64[OUTS] * ints.i64[KD] * ints.i64[KH] * ints.i64[KW] * lanes
        sums_bytes = (size * count + 63) // 64 * 64
        more = size * (ints.i64[HEIGHT] * ints.i64[VECTORS] * lanes + ints.i64[ROWS] * ints.i64[PITCH])
        slot = borrow(2 * sums_bytes + more)
        if slot < 0:
            return rl_fail(bufs, piece, 4, 0, 0, 0)
        total = borrowed(slot)
        memset(total, 0, 2 * sums_bytes + more)
        for number in range(piece * ints.i64[CHUNK], min((piece + 1) * ints.i64[CHUNK], ints.i64[BATCH] * ints.i64[GROUPS])):
            b, group = number // ints.i64[GROUPS], number % ints.i64[GROUPS]
            valid = lanes
            if ints.i64[TOGETHER] != 0:
                group = group * lanes
                valid = min(lanes, ints.i64[SINGLES] - group)
            x = bufs.ptr[1] + item * (b * ints.i64[XN] + group * ints.i64[XG])
            ct = bufs.ptr[2] + item * (ints.i64[W_BASE] + group * ints.i64[WG])
            memset(total, 0, size * count)
            for n in range(ints.i64[DEPTH]):
                image(ints, total, total + sums_bytes, x + item * n * ints.i64[XC], ct + item * n * ints.i64[WC], valid)
            results(ints, bufs.ptr[0] + y_item * (b * ints.i64[YN] + group * ints.i64[YG]), total, valid)
        give_back(slot)
        return 0

    return weights
