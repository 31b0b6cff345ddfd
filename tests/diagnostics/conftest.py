"""Makes ``brute_force`` importable: test folders are not packages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
