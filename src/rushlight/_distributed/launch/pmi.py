"""PMI-1, by which the ranks of an MPI world find one another: the server's half.

A client joins a job by a request of the store's protocol, and is answered when all ranks of the job have come. From then
on its connection speaks PMI-1 (https://flux-framework.readthedocs.io, RFC 13): lines of `key=value` words, of which MPI
libraries send `init`, `get_maxes`, `get_my_kvsname`, `put`, `get`, `barrier_in` and a few others.
"""

from __future__ import annotations

import os

from rushlight._distributed.stores.connection import Connection, Malformed
from rushlight._distributed.stores.wire import as_text

__all__ = ["JOINED", "Jobs", "process_mapping"]

JOINED = b"joined"
_LONGEST_LINE = 16 << 10
_LONGEST_NAME, _LONGEST_KEY, _LONGEST_VALUE = 256, 64, 4096
_MOST_NAMED = 32


def process_mapping(hosts: list[str]) -> str:
    """Which rank runs on which node, in PMI's words: blocks of (first node, nodes, ranks on each).

    >>> process_mapping(["a", "a", "b", "b"])
    '(vector,(0,2,2))'
    >>> process_mapping(["a", "b", "b"])
    '(vector,(0,1,1),(1,1,2))'
    """
    numbers: dict[str, int] = {}
    blocks: list[list[int]] = []  # [node, 1, ranks]
    for host in hosts:
        node = numbers.setdefault(host, len(numbers))
        if blocks and blocks[-1][0] == node:
            blocks[-1][2] += 1
        else:
            blocks.append([node, 1, 1])
    joined: list[list[int]] = []
    for node, _, ranks in blocks:
        if joined and joined[-1][2] == ranks and sum(joined[-1][:2]) == node:
            joined[-1][1] += 1
        else:
            joined.append([node, 1, ranks])
    return "(vector," + ",".join(f"({a},{b},{c})" for a, b, c in joined) + ")"


def named(ranks: list[int]) -> str:
    """Ranks in words: the first ones, and how many more."""
    text = ", ".join(map(str, ranks[:_MOST_NAMED]))
    return text if len(ranks) <= _MOST_NAMED else f"{text} and {len(ranks) - _MOST_NAMED} more"


class Job:
    """One MPI world: its ranks' connections, and the keys by which they find one another."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.name = f"rushlight_{os.getpid()}_{os.urandom(6).hex()}"  # MPI names its shared memory by it
        self.values: dict[str, str] = {}
        self.ranks: dict[int, Connection] = {}
        self.hosts: dict[int, str] = {}
        self.arrived: list[Connection] = []

    def begin(self) -> None:
        """All have come: tell them, and how many share whose host."""
        self.values["PMI_process_mapping"] = process_mapping([self.hosts[rank] for rank in range(self.size)])
        nodes = len(set(self.hosts.values()))
        for client in self.ranks.values():
            client.send(as_text(JOINED + b" %d" % nodes))

    def answer(self, client: Connection, line: str) -> None:
        """Answer one line of PMI-1; Malformed for what is none."""
        words = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
        command = words.get("cmd", "")
        if command == "put":
            self._put(client, words.get("key", ""), line.partition("value=")[2])
        elif command == "get":
            value = self.values.get(words.get("key", ""))
            missing = "rc=-1 msg=key_not_found value=unknown"
            _say(client, f"cmd=get_result {missing if value is None else f'rc=0 msg=success value={value}'}")
        elif command == "barrier_in":
            self._arrive(client)
        elif command in self._fixed():
            _say(client, self._fixed()[command])
        elif command == "abort":
            client.close()
        else:
            _say(client, f"cmd={command[:_LONGEST_KEY]}_result rc=-1 msg=unsupported")

    def _fixed(self) -> dict[str, str]:
        maxes = f"kvsname_max={_LONGEST_NAME} keylen_max={_LONGEST_KEY} vallen_max={_LONGEST_VALUE}"
        return {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": f"cmd=maxes {maxes} rc=0",
            "get_appnum": "cmd=appnum appnum=0 rc=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={self.name} rc=0",
            "get_universe_size": f"cmd=universe_size size={self.size} rc=0",
            "finalize": "cmd=finalize_ack rc=0",
        }

    def _put(self, client: Connection, key: str, value: str) -> None:
        if not 0 < len(key) <= _LONGEST_KEY or len(value) > _LONGEST_VALUE or len(self.values) > 64 * self.size + 64:
            raise Malformed("a key or value of PMI is too long, or there are too many")
        self.values[key] = value
        _say(client, "cmd=put_result rc=0 msg=success")

    def _arrive(self, client: Connection) -> None:
        if client not in self.arrived:
            self.arrived.append(client)
        if len(self.arrived) == self.size:
            arrived, self.arrived = self.arrived, []
            for other in arrived:
                _say(other, "cmd=barrier_out rc=0")


def _say(client: Connection, line: str) -> None:
    client.send(line.encode() + b"\n")


class Jobs:
    """The jobs of a server."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def join(self, client: Connection, name: str, place: tuple[int, int], host: str) -> None:
        """Let a client be rank `place[0]` of `place[1]`; one that is taken, or another size, is refused in words."""
        rank, size = place
        job = self._jobs.get(name) or Job(size)
        why = ""
        if size != job.size:
            why = f"others say that the world has {job.size} ranks, and this one says {size}"
        elif not 0 <= rank < size:
            why = f"there is no rank {rank} in a world of {size}"
        elif rank in job.hosts:
            why = f"two processes say that they are rank {rank}"
        if why:
            client.send(as_text(why.encode()))
            return
        self._jobs[name] = job
        job.ranks[rank], job.hosts[rank] = client, host
        client.serve = lambda client: job.answer(client, client.read_line(_LONGEST_LINE))
        client.on_close = lambda client: self._leave(name, job, rank)
        if len(job.hosts) == size:
            job.begin()

    def missing(self, name: str) -> str:
        """Which ranks have not joined, in words."""
        job = self._jobs.get(name)
        if job is None:
            return "all"
        return named([rank for rank in range(job.size) if rank not in job.hosts])

    def _leave(self, name: str, job: Job, rank: int) -> None:
        client = job.ranks.pop(rank, None)
        if len(job.hosts) < job.size:
            job.hosts.pop(rank, None)  # it may come again
        elif client in job.arrived or job.arrived:
            for other in list(job.ranks.values()):
                other.close()  # nobody waits in MPI's start for one that has gone
        if not job.ranks:
            self._jobs.pop(name, None)
