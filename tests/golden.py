"""Compare Tether with files of right answers.

    python tests/golden.py FILE...

A file is a JSON list of cases ``{"id", "topic", "inputs", "options", "expected", "tolerance", ...}``. Numbers agree if
``|got - expected| <= tolerance * max(1, |expected|)`` in float64; a tolerance of 0 asks for identity. ``"inf"``,
``"-inf"`` and ``"nan"`` are those numbers; ``{"raises": true}`` means that the input must be refused with a
``TetherError``. Each topic has one adapter in ``golden_adapters/`` that calls public functions.

Prints what agrees, disagrees and has no adapter yet, topic by topic. Exit status 1 if anything disagrees.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from golden_adapters.registry import ADAPTERS, Case  # noqa: E402  (the folder of this file must be importable first)
from tether.errors import TetherError  # noqa: E402

REFUSED = {"raises": True}


@dataclass(frozen=True)
class Verdict:
    """What became of one case: ``agrees`` is None if its topic has no adapter."""

    case: Case
    got: Any
    agrees: bool | None


def load_adapters() -> None:
    """Import every module of ``golden_adapters/``; importing registers."""
    for path in sorted((HERE / "golden_adapters").glob("*.py")):
        importlib.import_module(f"golden_adapters.{path.stem}")


def agree(expected: Any, got: Any, tolerance: float) -> bool:
    """Whether ``got`` holds everything that is expected, within the tolerance."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(k in got and agree(v, got[k], tolerance) for k, v in expected.items())
    if isinstance(expected, list):
        same_length = isinstance(got, list) and len(expected) == len(got)
        return same_length and all(agree(e, g, tolerance) for e, g in zip(expected, got, strict=True))
    if isinstance(expected, bool) or isinstance(got, bool) or expected is None or got is None:
        return expected is got
    try:
        want, have = float(expected), float(got)
    except (TypeError, ValueError):
        return bool(expected == got)  # a word
    if math.isnan(want) or math.isinf(want):
        return want == have or (math.isnan(want) and math.isnan(have))
    return abs(have - want) <= tolerance * max(1.0, abs(want))


def check(case: Case) -> Verdict:
    """Run one case through the adapter of its topic."""
    adapter = ADAPTERS.get(case["topic"])
    if adapter is None:
        return Verdict(case, None, None)
    try:
        got: Any = adapter(case)
    except TetherError as refusal:
        return Verdict(case, f"refused: {refusal}", case["expected"] == REFUSED)
    except Exception as crash:  # noqa: BLE001 - an unexpected error is a disagreement; the other cases still run
        return Verdict(case, f"crashed: {crash!r}", False)
    return Verdict(case, got, agree(case["expected"], got, case["tolerance"]))


def read_cases(path: Path) -> list[Case]:
    """Read a file of cases."""
    cases: list[Case] = json.loads(path.read_text(encoding="utf-8"))
    return cases


def report(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield the lines to print: one a topic, then each disagreement with what was expected and what came."""
    names = {True: "agree", False: "disagree", None: "no adapter yet"}
    topics: dict[str, dict[bool | None, int]] = {}
    for verdict in verdicts:
        counts = topics.setdefault(verdict.case["topic"], {})
        counts[verdict.agrees] = counts.get(verdict.agrees, 0) + 1
    width = max((len(topic) for topic in topics), default=0)
    for topic, counts in topics.items():
        yield f"  {topic:{width}}  " + ", ".join(f"{n} {names[key]}" for key, n in counts.items())
    for verdict in verdicts:
        if verdict.agrees is False:
            yield f"  DISAGREES {verdict.case['id']}"
            yield f"    expected {verdict.case['expected']}"
            yield f"    got      {verdict.got}"
    totals = {key: sum(counts.get(key, 0) for counts in topics.values()) for key in names}
    yield "total: " + ", ".join(f"{totals[key]} {name}" for key, name in names.items())


def main(paths: list[str]) -> int:
    """Check the files at ``paths`` and print the result."""
    if not paths:
        print(__doc__)
        return 2
    load_adapters()
    disagreements = 0
    for path in map(Path, paths):
        verdicts = [check(case) for case in read_cases(path)]
        print(path.name)
        print("\n".join(report(verdicts)))
        disagreements += sum(verdict.agrees is False for verdict in verdicts)
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
