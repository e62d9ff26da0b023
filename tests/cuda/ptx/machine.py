"""The interpreter: a module is made ready for blocks of a size, and its kernel runs block after block.

Each thread has a program counter.  Threads at the same instruction execute it together, as one operation on arrays; of several
groups the one that is furthest behind goes first, which brings them together again behind a branch, and now and then another, so
that nobody waits for ever for a thread that is not scheduled.  An instruction with `.sync` waits for its whole warp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import arithmetic
from .memory import BASE, LOCAL_WINDOW, PARAM_WINDOW, SHARED_BASE, GlobalMemory
from .parser import Address, Function, Immediate, Instruction, Module, Name, Operand, PtxError, Vector
from .state import ASLEEP, AT_BARRIER, CONVERGING, DONE, READY, WARP, Block, Lanes, Registers

__all__ = ["Machine", "Step", "instruction"]

Array = Any
Step = Callable[[Block, Lanes], Any]
BUILDERS: dict[str, Callable[[Machine, Instruction], Step]] = {}
PATIENCE = 64  # turns of the group that is furthest behind, before another has one


def instruction(
    *names: str,
) -> Callable[[Callable[[Machine, Instruction], Step]], Callable[[Machine, Instruction], Step]]:
    """Register what makes a step of instructions: opcodes, or their first parts."""

    def declare(build: Callable[[Machine, Instruction], Step]) -> Callable[[Machine, Instruction], Step]:
        for name in names:
            BUILDERS[name] = build
        return build

    return declare


class Prepared:
    """An instruction with its step.  `kind`: "plain" goes on behind it, "sync" takes whole warps, "flow" says itself what follows."""

    __slots__ = ("guard", "kind", "names", "negated", "of", "step", "writes")

    def __init__(self, of: Instruction, step: Step, kind: str, guard: Array | None, names: frozenset[str]) -> None:
        self.of, self.step, self.kind, self.guard, self.negated, self.names = of, step, kind, guard, of.negated, names


class Machine:
    """`landing`: bulk copies land as late as they may, and who is furthest behind goes first ("late"); or they land at once, and who
    is furthest ahead goes first ("early").
    """

    def __init__(self, module: Module, threads: int, shared: int, landing: str = "late") -> None:
        self.module, self.threads, self.shared_bytes, self.landing = module, threads, shared, landing
        self.major = int("".join(c for c in module.target.removeprefix("sm_") if c.isdigit())) // 10
        self.function: Function = module.entry
        types = {f"{f.name}/{name}": t for f in module.functions.values() for name, t in f.registers.items()}
        self.registers = Registers(threads, types)
        self.carry = np.zeros(threads, np.bool_)
        self.constants: dict[tuple[int, str], Array] = {}
        self.specials: dict[str, Array] = {}
        self.grid, self.block_index = (1, 1, 1), (0, 0, 0)
        self.formal: dict[str, Array] = {}  # parameters of functions: a row of bytes a thread
        self.params = np.zeros(0, np.uint8)
        self.param_places: dict[str, int] = {}
        self.copies: list[Any] = []  # bulk copies under way, the oldest first
        self.maps: list[Any] = []  # tensor maps that parameters name
        self.memory: GlobalMemory
        self.executed: set[str] = set()
        self.count = self.moved = 0  # instructions, and moves of accumulators that products still write
        self._place_variables()
        self.program: list[Prepared] = []
        self.starts: dict[str, int] = {}
        self.leaders: set[int] = set()
        self._pending: list[tuple[Function, Instruction]] = []
        for function in module.functions.values():
            self.starts[function.name] = len(self._pending)
            self._pending += [(function, i) for i in function.body]
        for function in module.functions.values():
            self.leaders |= {self.starts[function.name] + at for at in function.labels.values()}

    # ***** variables *****

    def _place_variables(self) -> None:
        """Offsets of shared and local variables and parameters; what is dynamic lies behind the rest."""
        self.addresses: dict[str, int] = {}
        shared = SHARED_BASE
        for v in sorted(self.module.variables.values(), key=lambda v: v.size == 0):
            if v.space == "shared":
                shared = -(-shared // v.align) * v.align
                self.addresses[v.name] = shared
                shared += v.size
        self.shared_bytes += shared - SHARED_BASE
        self.local_bytes = 0
        for function in self.module.functions.values():
            for v in function.variables.values():
                if v.space == "local":
                    self.local_bytes = -(-self.local_bytes // v.align) * v.align
                    self.addresses[f"{function.name}/{v.name}"] = self.local_bytes
                    self.local_bytes += v.size
                elif v.space == "param":
                    self.formal[f"{function.name}/{v.name}"] = np.zeros((self.threads, 16), np.uint8)
            for v in (*function.params, *function.results):
                if not function.is_entry:
                    self.formal[v.name] = np.zeros((self.threads, 16), np.uint8)

    def _place_params(self, values: Sequence[bytes]) -> None:
        entry, at = self.module.entry, 0
        if len(values) != len(entry.params):
            raise PtxError(f"{len(entry.params)} parameters are declared, {len(values)} given")
        data = b""
        for v, value in zip(entry.params, values, strict=True):
            at = -(-at // v.align) * v.align
            self.param_places[v.name] = at
            data = data.ljust(at, b"\0") + value[: v.size].ljust(v.size, b"\0")
            at += v.size
        room = np.zeros(len(data) + 128, np.uint8)
        start = -room.ctypes.data % 64
        self.params = room[start : start + len(data) + 64]
        self.params[: len(data)] = np.frombuffer(data, np.uint8)

    # ***** operands *****

    def register(self, name: str) -> Array:
        """The array of a register of the function that is made ready."""
        found = self.registers.of.get(f"{self.function.name}/{name}")
        if found is None:
            raise PtxError(f"{name!r} is no register of {self.function.name}")
        return found

    def source(self, operand: Operand, type: str) -> Array:
        """What an operand holds, by thread, as a type: a view of the register's array, or a constant."""
        dtype = arithmetic.DTYPES[type]
        if isinstance(operand, Immediate):
            return self.constant(operand, type)
        if not isinstance(operand, Name):
            raise PtxError(f"{operand} where a register or a number is expected")
        if operand.text.startswith("%") and operand.text.split(".")[0] in _SPECIALS:
            return self.special(operand.text).view(dtype)
        if f"{self.function.name}/{operand.text}" not in self.registers.of:
            return self.constant(Immediate(self.address_of(operand.text)), type)
        array = self.register(operand.text)
        size = np.dtype(dtype).itemsize
        if array.dtype == np.bool_ or array.dtype.itemsize == size:
            return array.view(dtype)
        if array.dtype.itemsize < size:
            raise PtxError(f"{operand.text} holds fewer bits than {type}")
        return array.view(dtype)[:: array.dtype.itemsize // size]

    def target(self, operand: Operand, type: str) -> Array:
        """The array that an instruction writes; `_` takes what nobody reads."""
        if operand == Name("_"):
            return np.zeros(self.threads, arithmetic.DTYPES[type])
        array = self.source(operand, type)
        return array

    def constant(self, operand: Immediate, type: str) -> Array:
        bits, dtype = operand.bits, np.dtype(arithmetic.DTYPES[type])
        if type == "pred":
            return np.full(self.threads, bits != 0)
        if operand.floating and operand.floating != 8 * dtype.itemsize:
            value = np.array([bits], f"u{operand.floating // 8}").view(f"f{operand.floating // 8}")[0]
            bits = arithmetic_bits(float(value), dtype.itemsize)
        key = bits, type
        if key not in self.constants:
            word = np.uint64(bits & ((1 << 8 * dtype.itemsize) - 1)).astype(f"u{dtype.itemsize}")
            self.constants[key] = np.full(self.threads, word).view(dtype)
            self.constants[key].flags.writeable = False
        return self.constants[key]

    def special(self, name: str) -> Array:
        if name not in self.specials:
            self.specials[name] = np.zeros(self.threads, np.uint32)
        return self.specials[name]

    def address_of(self, name: str) -> int:
        """The address of a variable in its own space."""
        for key in (f"{self.function.name}/{name}", name):
            if key in self.addresses:
                return self.addresses[key]
        if name in self.param_places:
            return self.param_places[name]
        raise PtxError(f"{name!r} is neither a register nor a variable")

    def address(self, operand: Operand) -> Callable[[Lanes], Array]:
        """Addresses by thread."""
        if not isinstance(operand, Address):
            raise PtxError(f"{operand} where an address is expected")
        if isinstance(operand.base, Immediate):
            fixed = np.full(self.threads, operand.base.bits + operand.offset, np.uint64)
            return lambda lanes: fixed[lanes]
        name = operand.base.text
        if f"{self.function.name}/{name}" not in self.registers.of:
            fixed = np.full(self.threads, self.address_of(name) + operand.offset, np.uint64)
            return lambda lanes: fixed[lanes]
        base = self.register(name)
        if not operand.offset:
            return lambda lanes: base[lanes].astype(np.uint64)
        if base.dtype == np.uint32:
            more = np.uint32(operand.offset & 0xFFFFFFFF)
            return lambda lanes: (base[lanes] + more).astype(np.uint64)
        wide = np.uint64(operand.offset & (1 << 64) - 1)
        return lambda lanes: base[lanes] + wide

    # ***** making ready *****

    def prepare(self) -> None:
        for function, i in self._pending:
            self.function = function
            self.program.append(self._prepared(i))
        self._pending = []

    def _prepared(self, i: Instruction) -> Prepared:
        parts = i.parts
        build = next((BUILDERS[k] for n in range(len(parts), 0, -1) if (k := ".".join(parts[:n])) in BUILDERS), None)
        if build is None:
            raise PtxError(f"line {i.line}: the instruction {i.opcode} is unknown")
        try:
            step = build(self, i)
        except (KeyError, ValueError, IndexError) as error:
            raise PtxError(f"line {i.line}: {i.opcode} is not understood: {error!r}") from error
        except PtxError as error:
            raise PtxError(f"line {i.line}: {i.opcode}: {error}") from None
        kind = getattr(step, "kind", "plain")
        guard = self.register(i.guard) if i.guard else None
        names = frozenset(f"{self.function.name}/{n}" for n in _names(i))
        return Prepared(i, step, kind, guard, names)

    def place(self, label: str) -> int:
        return self.starts[self.function.name] + self.function.labels[label]

    # ***** running *****

    def launch(self, memory: GlobalMemory, grid: Sequence[int], params: Sequence[bytes]) -> None:
        """Run all blocks, one after the other."""
        self.memory = memory
        for v in self.module.variables.values():
            if v.space in ("global", "const"):
                self.addresses[v.name] = memory.put(v.data.ljust(max(v.size, 1), b"\0"), max(v.align, 16))
        self._place_params(params)
        if not self.program:
            self.prepare()
        self.grid = (*grid, 1, 1)[:3]
        for z in range(self.grid[2]):
            for y in range(self.grid[1]):
                for x in range(self.grid[0]):
                    self.run_block((x, y, z))

    def run_block(self, index: tuple[int, int, int]) -> None:
        self.block_index = index
        self.registers.spoil()
        self.memory.block_begins()
        self._set_specials()
        block = Block(self.threads, self.registers, self.shared_bytes, self.local_bytes)
        block.pc[:] = self.starts[self.module.entry.name]
        turns = 0
        while (group := self._pick(block, turns)) is not None:
            turns += 1
            self._advance(block, *group)
        self._check_end(block)

    def _check_end(self, block: Block) -> None:
        """What a block must not leave behind."""
        if self.copies:
            raise PtxError("a block ends while bulk copies into its shared memory are under way")
        for address, found in block.shared.barriers.items():
            if found.bytes:
                raise PtxError(f"a block ends with {found.bytes} bytes missing at the mbarrier object at {address:#x}")
        start = self.module.entry.directives.get("maxnreg", [0])[0]
        wanted = sum(block.group_registers.get(g, start) for g in range(self.threads // 128))
        if wanted > start * (self.threads // 128):
            raise PtxError(
                f"warpgroups ask for {wanted} registers, the block has {start} for each of {self.threads // 128}"
            )

    def _set_specials(self) -> None:
        threads = np.arange(self.threads, dtype=np.uint32)
        values = {"%tid.x": threads, "%tid.y": 0, "%tid.z": 0, "%ntid.x": self.threads, "%ntid.y": 1, "%ntid.z": 1}
        values |= {"%laneid": threads % WARP, "%warpid": threads // WARP}
        for k, axis in enumerate("xyz"):
            values |= {f"%ctaid.{axis}": self.block_index[k], f"%nctaid.{axis}": self.grid[k]}
        for name, array in self.specials.items():
            if name not in values:
                raise PtxError(f"the special register {name} is unknown")
            array[:] = values[name]

    def _pick(self, block: Block, turns: int) -> tuple[int, Lanes] | None:
        """The threads that go next: those furthest behind (or ahead), mostly."""
        ready = block.status == READY
        while not ready.any():
            if (block.status == DONE).all():
                return None
            if not self._wake(block):
                raise PtxError(self._stuck(block))
            ready = block.status == READY
        places = block.pc[ready]
        first = int(places.min() if self.landing == "late" else places.max())
        if turns % PATIENCE == PATIENCE - 1:
            choices = np.unique(places)
            first = int(choices[turns // PATIENCE % len(choices)])
        return first, block.compact(np.flatnonzero(ready & (block.pc == first)))

    def _wake(self, block: Block) -> bool:
        """Nobody can go on: the oldest bulk copy lands, if there is one."""
        if not self.copies:
            return False
        self.copies.pop(0).land(self, block)
        return True

    def _stuck(self, block: Block) -> str:
        texts = []
        for status, text in (
            (CONVERGING, "waits for its warp"),
            (AT_BARRIER, "waits at a barrier"),
            (ASLEEP, "waits for a phase"),
        ):
            numbers = np.flatnonzero(block.status == status)
            for place in np.unique(block.pc[numbers]):
                who = numbers[block.pc[numbers] == place]
                of = self.program[place - (status != CONVERGING)].of
                detail = "" if status != ASLEEP else self._phase(block, int(who[0]))
                texts.append(f"thread {who[0]} ({len(who)} of them) {text} at line {of.line}: {of.opcode}{detail}")
        return "nobody can go on: " + "; ".join(texts)

    def _phase(self, block: Block, thread: int) -> str:
        address, phase = block.sleeping[thread]
        found = block.shared.barriers[address]
        return f" (phase {phase} of {address:#x}: {found.pending} arrivals and {found.bytes} bytes are missing)"

    def _advance(self, block: Block, place: int, lanes: Lanes) -> None:
        """Let a group go on until it parts, waits, or meets a label where others may join it."""
        alone = len(block.numbers(lanes)) == int((block.status == READY).sum())
        program, first = self.program, place
        try:
            while True:
                p = program[place]
                self.count += 1
                if block.watched:
                    self._watch(block, p, lanes)
                if p.kind == "plain":
                    if p.guard is None:
                        p.step(block, lanes)
                    else:
                        some = self._guarded(block, p, lanes)
                        if some is not None:
                            p.step(block, some)
                    place += 1
                elif p.kind == "sync":
                    if not block.whole_warps(lanes):
                        lanes = self._converge(block, place, lanes)
                        if lanes is None:
                            return
                        alone = False
                    if p.step(block, lanes) is False:  # they wait
                        return
                    place += 1
                else:
                    following = p.step(block, lanes)
                    if following is None:
                        return
                    place = following
                if not alone and place in self.leaders and place != first:
                    block.pc[lanes] = place
                    return
        except PtxError as error:
            of = program[place].of
            if str(error).startswith("line "):
                raise
            raise PtxError(f"line {of.line}: {of.opcode}: block {self.block_index}: {error}") from None

    def _guarded(self, block: Block, p: Prepared, lanes: Lanes) -> Lanes | None:
        holds = p.guard[lanes]
        if p.negated:
            holds = ~holds
        if holds.all():
            return lanes
        return block.compact(block.ids[lanes][holds]) if holds.any() else None

    def _converge(self, block: Block, place: int, lanes: Lanes) -> Lanes | None:
        """The threads of whole warps that are at an instruction; the others wait for theirs."""
        numbers = block.numbers(lanes)
        block.pc[numbers], block.status[numbers] = place, CONVERGING
        here = (block.status == CONVERGING) & (block.pc == place)
        whole = np.repeat(here.reshape(-1, WARP).all(1), WARP)
        gone = (block.status == DONE).reshape(-1, WARP).any(1)
        if (gone & here.reshape(-1, WARP).any(1)).any():
            raise PtxError("a thread executes it whose warp has threads that ended")
        found = np.flatnonzero(whole)
        if not len(found):
            return None
        block.status[found] = READY
        return block.compact(found)

    def _watch(self, block: Block, p: Prepared, lanes: Lanes) -> None:
        """Registers that products in the background write may be touched by products alone, and moved as a whole: the assembler gives
        the copy the same register.  What else uses registers is noted, for those behind the next fence.
        """
        if p.of.opcode.startswith("wgmma."):
            return
        groups = set(np.unique(block.numbers(lanes) // 128).tolist())
        for group in groups & block.products.keys():
            block.products[group].touched |= p.names
        for name in p.names & block.open.keys():
            if not block.open[name] & groups:
                continue
            if p.of.parts[0] != "mov" or len(p.names) != 2:
                raise PtxError(f"{name.split('/')[1]} is used before wgmma.wait_group")
            (other,) = p.names - {name}
            block.open.setdefault(other, set()).update(groups)
            for group in groups & block.products.keys():
                block.products[group].follow(name, other)
            self.moved += 1
            break


def _names(i: Instruction) -> set[str]:
    found = {i.guard} if i.guard else set()

    def add(operand: Operand | None) -> None:
        if isinstance(operand, Name):
            found.add(operand.text)
        elif isinstance(operand, Address):
            add(operand.base)
            add(operand.more)
        elif isinstance(operand, Vector):
            for item in operand.items:
                add(item)

    for operand in i.operands:
        add(operand)
    return found


def arithmetic_bits(value: float, size: int) -> int:
    return int(np.array([value], f"f{size}").view(f"u{size}")[0])


_SPECIALS = {"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid"}
WINDOWS = (BASE, LOCAL_WINDOW, PARAM_WINDOW)
