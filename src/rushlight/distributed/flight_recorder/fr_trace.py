"""`python -m rushlight.distributed.flight_recorder.fr_trace DIRECTORY` (and `torchfrtrace`): where ranks diverged.

DIRECTORY has a file of every rank, `<prefix><rank>`, as flight recorders write them: ours, or PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from rushlight.distributed.flight_recorder.analysis import Finding, analyse, line_of
from rushlight.distributed.flight_recorder.files import read_directory

__all__ = ["main"]

_TITLES = {
    "missing": "ranks {ranks} have not come to collective #{number}",
    "mismatch": "ranks {ranks} did something else than the others at collective #{number}",
    "unfinished": "collective #{number} has begun on all ranks, and has not ended on ranks {ranks}",
    "message": "a message of rank {ranks} has not ended",
    "no file": "ranks {ranks} wrote nothing",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchfrtrace", description="Say where the ranks of a job diverged.")
    parser.add_argument("trace_dir", help="directory with one file per rank, <prefix><rank>")
    parser.add_argument("-p", "--prefix", help="what comes before the rank in the names of files")
    parser.add_argument("-j", "--just_print_entries", action="store_true", help="show the operations and no judgement")
    parser.add_argument("--selected-ranks", nargs="+", type=int, help="with -j: only these ranks")
    parser.add_argument("--pg-filters", nargs="+", help="with -j: only groups of these names or descriptions")
    parser.add_argument("--allow-incomplete-ranks", action="store_true", help="judge without the files of some ranks")
    parser.add_argument("--mismatch_cap", type=int, default=10, help="how many findings are shown")
    parser.add_argument("--print_stack_trace", action="store_true", help="with -j: the user's line of each operation")
    parser.add_argument("-v", "--verbose", action="store_true", help="say also which groups are well")
    parser.add_argument("-o", "--output", help="write the findings to this file as JSON")
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; 1 where ranks diverged, 2 for files that cannot be read or ranks without one."""
    chosen = _parser().parse_args(args)
    if (chosen.selected_ranks or chosen.pg_filters) and not chosen.just_print_entries:
        print("torchfrtrace: --selected-ranks and --pg-filters choose what -j prints", file=sys.stderr)
        return 2
    try:
        files = read_directory(chosen.trace_dir, chosen.prefix)
    except ValueError as error:
        print(f"torchfrtrace: {error}", file=sys.stderr)
        return 2
    if chosen.just_print_entries:
        _print_entries(files, chosen)
        return 0
    findings = analyse(files)
    absent = [finding for finding in findings if finding.kind == "no file"]
    if chosen.output:
        with open(chosen.output, "w") as file:
            json.dump([{**f._asdict(), "group": f.group._asdict()} for f in findings], file, indent=1)
    for finding in findings[: chosen.mismatch_cap]:
        _print_finding(finding)
    if len(findings) > chosen.mismatch_cap:
        print(f"and {len(findings) - chosen.mismatch_cap} more")
    if not findings or chosen.verbose:
        wrong = {finding.group for finding in findings}
        print(f"{len(files)} ranks; {len(wrong)} groups in which something is wrong")
    return 2 if absent and not chosen.allow_incomplete_ranks else bool(findings)


def _print_finding(finding: Finding) -> None:
    title = _TITLES[finding.kind].format(ranks=", ".join(map(str, finding.ranks)), number=finding.number)
    print(f"group {finding.group.name!r} of ranks {list(finding.group.ranks)}: {title}")
    if finding.kind != "no file":
        print(finding.text)


def _print_entries(files: dict[int, Any], chosen: argparse.Namespace) -> None:
    wanted, filters = chosen.selected_ranks, chosen.pg_filters
    for rank, file in files.items():
        if wanted is not None and rank not in wanted:
            continue
        print(f"rank {rank}")
        for entry in file["entries"]:
            if filters and not set(filters) & set(entry["process_group"]):
                continue
            number = f"p2p {entry['p2p_seq_id']}" if entry["is_p2p"] else str(entry["collective_seq_id"])
            sizes = " ".join(str(list(size)) for size in entry["input_sizes"])
            where = f" at {line_of(entry)}" if chosen.print_stack_trace else ""
            print(
                f"  {entry['process_group'][0]:>6} {number:>8} {entry['profiling_name']:<28} {sizes:<20} {entry['state']}{where}"
            )


if __name__ == "__main__":
    sys.exit(main())
