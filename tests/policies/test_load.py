from __future__ import annotations

import json
import shutil
import socket

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, T5Config

from tether.errors import ModelError
from tether.policies import build_tiny, load_policy

WORDS = [f"w{i}" for i in range(20)]


@pytest.fixture
def tiny():
    return build_tiny(WORDS, width=16, layers=1, heads=2, max_positions=32, seed=3)


@pytest.fixture
def folder(tiny, tmp_path):
    tiny.save(tmp_path / "model")
    return tmp_path / "model"


def test_saved_policy_comes_back_exactly(tiny, folder):
    loaded = load_policy(folder)
    for name, weight in tiny.causal_lm.state_dict().items():
        assert torch.equal(loaded.causal_lm.state_dict()[name], weight), name
    text = "w3 w0 unknown w19"
    assert loaded.tokenizer.encode(text) == tiny.tokenizer.encode(text)
    assert loaded.tokenizer.decode([6, 3, 2, 0]) == tiny.tokenizer.decode([6, 3, 2, 0])
    assert (loaded.name, loaded.max_context, loaded.pad_id, loaded.vocab_size) == ("model", 32, 1, 23)
    assert loaded.causal_lm.dtype == torch.float32
    assert not loaded.causal_lm.training


def test_dtype_is_the_one_asked_for(folder):
    assert load_policy(folder, dtype="bfloat16").causal_lm.dtype == torch.bfloat16
    assert load_policy(folder, dtype=torch.float64).causal_lm.dtype == torch.float64


def test_save_replaces_a_model_folder_and_leaves_nothing_beside(tiny, folder):
    build_tiny(WORDS, width=16, layers=1, heads=2, max_positions=32, seed=4).save(folder)
    assert not torch.equal(
        load_policy(folder).causal_lm.get_input_embeddings().weight, tiny.causal_lm.get_input_embeddings().weight
    )
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_failed_save_keeps_the_old_folder(tiny, folder, monkeypatch):
    def full_disk(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(tiny.tokenizer, "save_pretrained", full_disk)
    with pytest.raises(OSError, match="disk full"):
        tiny.save(folder)
    assert load_policy(folder).vocab_size == 23
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_save_does_not_overwrite_other_folders(tiny, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match="not a model folder"):
        tiny.save(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_load_and_failed_load_never_open_a_connection(folder, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    monkeypatch.setattr(socket.socket, "connect", forbidden)
    load_policy(folder)
    with pytest.raises(ModelError, match="never fetched from a hub"):
        load_policy("gpt2")


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_folder_without_config(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json.*directly holds"):
        load_policy(folder)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="merge the adapter"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not valid JSON"), ("[]", "names no model_type"), ("{}", "model_type")]
)
def test_unreadable_config(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        load_policy(folder)


def test_folder_without_tokenizer_says_which_files_are_expected(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer: one of tokenizer\.json.*copy these files"):
        load_policy(folder)


def test_broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_policy(folder)


def test_tokenizer_larger_than_the_model(folder, tmp_path):
    build_tiny([f"w{i}" for i in range(40)], width=16, layers=1, heads=2, seed=0).save(tmp_path / "other")
    for file in (tmp_path / "other").glob("tokenizer*"):
        shutil.copy(file, folder)
    with pytest.raises(ModelError, match="43 tokens, the gpt2 model embeds 23"):
        load_policy(folder)


def test_pickled_weights_are_not_loaded(tiny, folder):
    (folder / "model.safetensors").unlink()
    torch.save(tiny.causal_lm.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no \*\.safetensors weights.*pytorch_model\.bin"):
        load_policy(folder)


def test_broken_weights(folder):
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_policy(folder)


def test_missing_weights_are_not_made_up(folder):
    edit_config(folder, n_layer=2)
    with pytest.raises(ModelError, match="lacks 12 of the weights"):
        load_policy(folder)


def test_weights_of_another_shape(folder):
    edit_config(folder, n_positions=64)
    with pytest.raises(ModelError, match="cannot be loaded|lacks 1 of the weights"):
        load_policy(folder)


def test_unknown_kind_of_model(folder):
    edit_config(folder, model_type="gpt99")
    with pytest.raises(ModelError, match="'gpt99', which transformers does not know; update"):
        load_policy(folder)


def test_code_in_the_folder_does_not_run_unasked(folder):
    edit_config(folder, model_type="gpt99", auto_map={"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"})
    (folder / "code.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelError, match="pass trust_remote_code=True"):
        load_policy(folder)


def test_a_model_that_is_no_language_model(folder):
    (folder / "config.json").write_text(json.dumps(T5Config().to_dict()))
    with pytest.raises(ModelError, match="'t5': a causal language model is expected"):
        load_policy(folder)


def test_an_encoder_sees_the_future(folder):
    config = BertConfig(vocab_size=23, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertLMHeadModel(config).save_pretrained(folder)
    with pytest.raises(ModelError, match="see the tokens after it"):
        load_policy(folder)
