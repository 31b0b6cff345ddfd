"""Cross scores on disk: one ``.npz`` of plain arrays, labels as JSON, no pickled objects."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from tether.errors import InputError, RecordError
from tether.files import atomic_file

SCHEMA_VERSION = 1

_REQUIRED = ("logprob_MN", "own_M", "num_tokens_M")
_OPTIONAL = ("excluded_MN", "weight_MN", "closing_MN", "behaviour_logprob_M")
_LABELS = ("contexts_N", "prompt_N", "row_ids")


def write(content: Mapping[str, Any], path: Path) -> None:
    """Write the fields of cross scores; equal fields give equal bytes."""
    meta: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "kind": content["kind"]}
    for name in _LABELS:
        if (labels := content[name]) is not None:
            meta[name] = [_to_json(name, label) for label in labels]
    arrays = {name: array for name in _REQUIRED + _OPTIONAL if (array := content[name]) is not None}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with atomic_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read(path: Path) -> dict[str, Any]:
    """Return the fields in a file of :func:`write`; who makes cross scores of them checks them again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        version = meta["schema_version"]
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RecordError(f"{path}: no cross scores in it ({error}); expected a file that save() wrote.") from error
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{path}: schema version {version!r}, expected {SCHEMA_VERSION}. "
            "Score again, or read it with the version of Tether that wrote it."
        )
    if missing := [name for name in _REQUIRED if name not in arrays]:
        raise RecordError(f"{path}: {', '.join(missing)} missing, expected a complete file. Score again.")
    given: dict[str, Any] = {name: arrays[name] for name in _REQUIRED + _OPTIONAL if name in arrays}
    given |= {name: tuple(map(_from_json, meta[name])) for name in _LABELS if name in meta}
    return {**given, "kind": meta["kind"]}


def _to_json(name: str, label: Any) -> Any:
    """Turn a label into JSON: tuples become lists, NumPy scalars Python ones."""
    if isinstance(label, tuple):
        return [_to_json(name, part) for part in label]
    if label is None or isinstance(label, bool | str):
        return label
    if isinstance(label, Integral):
        return int(label)
    if isinstance(label, Real):
        return float(label)
    raise InputError(
        f"{name}: cannot save a label of type {type(label).__name__}; "
        "expected strings, numbers, booleans, None, or tuples of them."
    )


def _from_json(value: Any) -> Any:
    return tuple(map(_from_json, value)) if isinstance(value, list) else value
