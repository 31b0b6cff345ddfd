"""Checkpoints: weights as a model folder, optimiser state as safetensors, everything else as JSON.

Nothing in a checkpoint is pickled. A folder is written beside its place and renamed when complete, so that a run
killed at any moment finds only whole checkpoints.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tether.errors import RunFolderError
from tether.policies import CausalPolicy

WEIGHTS, OPTIMIZER, STATE = "model", "optimizer.safetensors", "state.json"


def save_checkpoint(
    path: Path, policy: CausalPolicy, learner_state: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """Write one checkpoint; ``state`` is JSON data (step, EMA, history, configuration)."""
    beside = path.with_name(f".{path.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    policy.save(beside / WEIGHTS)
    tensors, plain = _split_tensors(learner_state)
    save_file(tensors, beside / OPTIMIZER)
    (beside / STATE).write_text(json.dumps({"learner": plain, **state}), encoding="utf-8")
    shutil.rmtree(path, ignore_errors=True)
    os.replace(beside, path)


def load_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (learner state, run state) of a checkpoint; its weights are the model folder ``path/model``.

    Raises:
        RunFolderError: if the folder does not hold a whole checkpoint.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        tensors = load_file(path / OPTIMIZER)
    except (OSError, ValueError, SafetensorError) as error:
        raise RunFolderError(
            f"{path} is not a whole checkpoint ({error}); expected {WEIGHTS}/, {OPTIMIZER} and {STATE}; remove the "
            "folder to resume from the checkpoint before it"
        ) from None
    learner = _join_tensors(state.pop("learner"), tensors)
    return learner, state


def prune_checkpoints(paths: list[Path], keep: int) -> None:
    """Remove all but the newest ``keep`` of these checkpoints (oldest first in ``paths``)."""
    for path in paths[: max(0, len(paths) - keep)]:
        shutil.rmtree(path)


def _split_tensors(tree: Any, prefix: str = "") -> tuple[dict[str, torch.Tensor], Any]:
    """Split a state dict into tensors by path and a JSON tree in which each tensor is ``{"tensor": path}``."""
    if isinstance(tree, torch.Tensor):
        return {prefix: tree.detach().cpu().contiguous()}, {"tensor": prefix}
    if isinstance(tree, Mapping):
        parts = {str(key): _split_tensors(value, f"{prefix}/{key}") for key, value in tree.items()}
        # Integer keys (parameter numbers) come back as integers.
        keys = "int" if tree and all(isinstance(key, int) for key in tree) else "str"
        plain: Any = {"keys": keys, "items": {key: part[1] for key, part in parts.items()}}
        return {name: tensor for part in parts.values() for name, tensor in part[0].items()}, plain
    if isinstance(tree, list | tuple):
        items = [_split_tensors(value, f"{prefix}/{index}") for index, value in enumerate(tree)]
        return {name: t for part in items for name, t in part[0].items()}, {"list": [part[1] for part in items]}
    return {}, {"value": tree}


def _join_tensors(plain: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> Any:
    if "tensor" in plain:
        return tensors[plain["tensor"]]
    if "items" in plain:
        to_key = int if plain["keys"] == "int" else str
        return {to_key(key): _join_tensors(value, tensors) for key, value in plain["items"].items()}
    if "list" in plain:
        return [_join_tensors(value, tensors) for value in plain["list"]]
    return plain["value"]
