"""Measures real vLLM engines on the CPU with SmolLM2-135M: libkvbm's hooks, LMCache, and computing, asked in turns."""
from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Sequence

sys.path.insert(0, str(Path(__file__).parent))

import first_token  # noqa: E402
import places  # noqa: E402
import steps  # noqa: E402
from fleet import CONTROL, PLAIN, WAYS, EngineError, Fleet  # noqa: E402
from rows import Row, say, show  # noqa: E402

PARTS = ("first_token", "steps", "lengths", "turns")
LENGTHS = (500, 1500, 4000)
# vLLM's own KV space is 1 GiB, 45,000 tokens.
LLM = {"max_model_len": 8192, "max_num_seqs": 8}
# A vLLM takes about 1.5 GiB here, and seven of them are up at one time.
NEEDED_GIB = 13


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench --engines", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: some 5 minutes instead of 20")
    parser.add_argument("--rounds", type=int, help="rounds of which the median is told (7, with --quick 3)")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="A,B", help="%(default)s")
    parser.add_argument("--ways", default=",".join(WAYS), metavar="A,B", help="%(default)s; vLLM alone always is")
    parser.add_argument("--places", default=",".join(places.PLACES), metavar="A,B", help="%(default)s")
    parser.add_argument("--engine-threads", type=int, default=1, metavar="N", help="of every vLLM (1)")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where the engines' logs and the disk tier go")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for name, known in (("parts", PARTS), ("ways", WAYS), ("places", places.PLACES)):
        chosen = [word for word in getattr(asked, name).split(",") if word]
        if unknown := set(chosen) - set(known):
            parser.error(f"--{name} knows {', '.join(known)}, and not {', '.join(sorted(unknown))}")
        setattr(asked, name, [word for word in known if word in chosen])
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds is 1 or more")
    return asked


def free_gib() -> float:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)


def beside_each_other(asked: argparse.Namespace, place: Path, rounds: int) -> list[Row]:
    """Measures every way to keep KV, each on an engine of its own."""
    rows: list[Row] = []
    with Fleet(asked.model, place, LLM, asked.engine_threads) as fleet:
        steps_too = "steps" in asked.parts
        for name in (PLAIN, *asked.ways, *([CONTROL] if steps_too else [])):
            fleet.start_way(name)
        if "first_token" in asked.parts:
            rows += first_token.measure(fleet, asked.ways, LENGTHS[1], rounds)
        if steps_too:
            rows += steps.measure(fleet, asked.ways, 6 if asked.quick else 12, max(2, rounds * 3 // 7))
    return rows


def by_place(asked: argparse.Namespace, place: Path, rounds: int) -> list[Row]:
    rows: list[Row] = []
    with Fleet(asked.model, place, LLM, asked.engine_threads) as fleet:
        fleet.start_way(PLAIN)
        found = places.Set.start(fleet, place, asked.places)
        if "lengths" in asked.parts:
            rows += places.lengths(found, LENGTHS, rounds)
        if "turns" in asked.parts:
            rows += places.conversation(found, 5, max(1, rounds // 2))
    return rows


def measure(asked: argparse.Namespace, place: Path) -> list[Row]:
    rounds = asked.rounds or (3 if asked.quick else 7)
    rows: list[Row] = []
    if {"first_token", "steps"} & set(asked.parts):
        rows += beside_each_other(asked, place, rounds)
    if {"lengths", "turns"} & set(asked.parts):
        rows += by_place(asked, place, rounds)
    return rows


def main(asked: argparse.Namespace) -> int:
    if free_gib() < NEEDED_GIB and "linux" in sys.platform:
        say(f"{free_gib():.0f} GiB of memory are free, and seven engines at a time take up to {NEEDED_GIB}: choose fewer "
            "with --ways and --places if they do not start")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the engines are ended with it
    try:
        if asked.keep is not None:
            asked.keep.mkdir(parents=True, exist_ok=True)
            rows: Sequence[Row] = measure(asked, asked.keep)
        else:
            with tempfile.TemporaryDirectory(prefix="kvbm-engines-") as place:
                rows = measure(asked, Path(place))
    except EngineError as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 1
    show(rows, asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(options()))
