"""Load a policy from a model folder, and say precisely what a folder lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tether.errors import ModelError
from tether.policies.causal import CausalPolicy, no_progress_bars, vocab_size_of

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
_EXPECTED = "config.json, *.safetensors and a tokenizer (tokenizer.json with tokenizer_config.json)"


def load_policy(
    folder: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    trust_remote_code: bool = False,
) -> CausalPolicy:
    """Load a causal language model and its tokenizer from a local folder; no hub is ever asked.

    Args:
        folder: A folder in the Hugging Face format with safetensors weights.
        device: Where the weights go.
        dtype: Their type; None is float32 on the CPU and the type of the checkpoint elsewhere.
        trust_remote_code: Whether Python files in the folder may run.

    Raises:
        ModelError: if the folder is missing, incomplete, needs code that is not trusted, or holds no causal model.
    """
    path = Path(folder)
    config = _read_config(path, trust_remote_code=trust_remote_code)
    tokenizer = _load_tokenizer(path, trust_remote_code=trust_remote_code)
    device = torch.device(device)
    if dtype is None:
        dtype = torch.float32 if device.type == "cpu" else "auto"
    model = _load_model(path, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    if len(tokenizer) > vocab_size_of(model):
        raise ModelError(
            f"model folder {str(path)!r}: the tokenizer has {len(tokenizer)} tokens, the {config['model_type']} model "
            f"embeds {vocab_size_of(model)}; use the tokenizer that belongs to the weights, or resize the embeddings"
        )
    if not _is_causal(model):
        raise ModelError(
            f"model folder {str(path)!r}: the {config['model_type']} model lets a token see the tokens after it; a "
            "causal language model is expected (encoders such as BERT score no continuation)"
        )
    return CausalPolicy(model, tokenizer, name=path.resolve().name)


@torch.inference_mode()
def _is_causal(model: PreTrainedModel) -> bool:
    """Whether the first logit of two sequences that differ in their second token is the same."""
    ids = torch.tensor([[0, 0], [0, 1]], device=model.device)
    first = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[:, 0].float()
    tolerance = 1e-5 if model.dtype in (torch.float32, torch.float64) else 5e-2
    return bool((first[0] - first[1]).abs().max() <= tolerance * first.abs().max())


def _read_config(path: Path, *, trust_remote_code: bool) -> dict[str, Any]:
    """Return the parsed config.json of a folder that looks loadable."""
    given = f"model folder {str(path)!r}"
    if not path.is_dir():
        raise ModelError(
            f"{given} does not exist or is not a folder: a local folder with {_EXPECTED} is expected. Models are never "
            "fetched from a hub; download the model first and give the path of its folder"
        )
    file = path / "config.json"
    if not file.is_file():
        hint = (
            "merge the adapter into its base model first"
            if (path / "adapter_config.json").is_file()
            else ("give the folder that directly holds these files")
        )
        raise ModelError(f"{given} has no config.json: {_EXPECTED} are expected; {hint}")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} is not valid JSON ({error}): copy the file again") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str):
        raise ModelError(f"{file} names no model_type: the configuration of a transformers model is expected")
    _check_kind(given, kind, config, trust_remote_code=trust_remote_code)
    if not any(path.glob("*.safetensors")):
        found = ", ".join(sorted(p.name for p in path.glob("*.bin"))) or "none"
        raise ModelError(
            f"{given} has no *.safetensors weights (other weight files: {found}): only safetensors are loaded, because "
            "pickled weights can run code; convert them with save_pretrained in a place you trust"
        )
    assert isinstance(config, dict)
    return config


def _check_kind(given: str, kind: str, config: dict[str, Any], *, trust_remote_code: bool) -> None:
    if trust_remote_code and "auto_map" in config:
        return
    if kind not in CONFIG_MAPPING:
        advice = (
            "it comes with Python code of its own: read that code, then pass trust_remote_code=True"
            if "auto_map" in config
            else "update transformers, or check config.json"
        )
        raise ModelError(f"{given} holds a model of the kind {kind!r}, which transformers does not know; {advice}")
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(f"{given} holds a model of the kind {kind!r}: a causal language model is expected")


def _load_tokenizer(path: Path, *, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(
            f"model folder {str(path)!r} has no tokenizer: one of {', '.join(_TOKENIZER_FILES)} (and "
            "tokenizer_config.json) is expected beside config.json; copy these files from the model's source, or save "
            "the tokenizer there with tokenizer.save_pretrained(folder)"
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(
            f"the tokenizer in model folder {str(path)!r} cannot be loaded ({error}): copy its files again from the "
            "model's source"
        ) from error
    return tokenizer


def _load_model(
    path: Path, *, device: torch.device, dtype: torch.dtype | str, trust_remote_code: bool
) -> PreTrainedModel:
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        with no_progress_bars():
            model, report = load(
                path,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                dtype=dtype,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"the model in folder {str(path)!r} cannot be loaded ({error}): complete files of one causal language "
            "model are expected; copy the folder again"
        ) from error
    missing = [str(key) for key in (*report["missing_keys"], *report["mismatched_keys"])]
    if missing:
        raise ModelError(
            f"model folder {str(path)!r} lacks {len(missing)} of the weights that config.json calls for (such as "
            f"{min(missing)}); they would be random. Copy all weight files, of the same model as config.json"
        )
    model = model.to(device)
    assert isinstance(model, PreTrainedModel)
    return model
