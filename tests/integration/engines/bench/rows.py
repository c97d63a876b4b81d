"""Lines of a benchmark, as `kvbm bench` prints them: a table for the terminal, or JSON."""
from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from typing import Any, Optional, Sequence


@dataclass
class Row:
    name: str
    value: float
    unit: str
    limit: Optional[float] = None  # measured in the same run, alternately
    limit_name: str = ""
    note: str = ""

    @property
    def ratio(self) -> Optional[float]:
        """limit / value: all figures are times. 1 is the limit, higher is better."""
        return self.limit / self.value if self.limit is not None and self.value > 0 else None

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.limit is not None:
            found |= {"limit": self.limit, "limit_name": self.limit_name, "ratio": self.ratio}
        return found | ({"note": self.note} if self.note else {})


def median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def percentile_ms(seconds: Sequence[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


def show(rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print(json.dumps([row.fields() for row in rows], indent=2))
        return
    heads = ("what", "value", "unit", "limit", "ratio", "the limit is")
    lines = [(row.name, _number(row.value), row.unit, _number(row.limit), _number(row.ratio),
              row.limit_name + (f" ({row.note})" if row.note else "")) for row in rows]
    widths = [max(len(line[i]) for line in (heads, *lines)) for i in range(len(heads))]
    for line in (heads, *lines):
        cells = [text.rjust(width) if i in (1, 3, 4) else text.ljust(width)
                 for i, (text, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())
    print("\nratio: 1 is the limit, higher is better")


def say(text: str) -> None:
    """Progress, beside the answer."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _number(value: Optional[float]) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"
