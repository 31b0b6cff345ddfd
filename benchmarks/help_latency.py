"""How long ``tether --help`` takes, as a multiple of starting Python at all.

    .venv/bin/python benchmarks/help_latency.py [repeats]

The alternative is ``python -c pass`` with the same interpreter, taken in turns in the same run; the ideal ratio is 1.
The median of the repeats is shown, because the first start reads files that the others find in the page cache.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "tether --help": [str(Path(sys.executable).parent / "tether"), "--help"],
}


def seconds(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(repeats=9):
    taken = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    for name, median in medians.items():
        print(f"{name:16} {median:6.3f} s   (median of {repeats})")
    base, ours = medians.values()
    print(f"ratio            {ours / base:6.1f}     (ideal 1; the aim is an answer within 0.5 s)")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
