"""Files that are either whole or absent: written beside their place and renamed when complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file in the folder of ``path``; it takes the place of ``path`` when the block ends well.

    A reader sees the old file or the new one, never a part. When the block raises, ``path`` is as it was and the
    temporary file is gone; after a kill a hidden ``.<name>.<random>.tmp`` may stay behind, which no reader looks at.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    file = temporary.open("xb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # renamed by now, unless something was raised
