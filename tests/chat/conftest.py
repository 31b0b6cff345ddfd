"""Two small real tokenizers: in one every tag is one id, in the other tags are spelled and borders not respected."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHAT_TOKENS = ["<|im_start|>", "<|im_end|>"]
WORDS = [
    *("<think>", "</think>", "<answer>", "</answer>", "user", "assistant", "system", "Thought:", "Action:", "rules"),
    *("P", "G", "H", "0", "1", "2", "3", "up", "down", "left", "right", "look", "note", "well", "okay", "need", "go"),
]
SENTENCES = [
    "<think> the goal is down, then right.</think> <answer> Down || Right </answer>",
    "<think>\nlook: the hole is near.</think>\n<answer>Up</answer>",
    "<think></think><answer>Left</answer>",
    "<think>I need to go up.\n</think>\n\n<answer>Up || Up</answer>",
    "user\nState:\nP _ G\n_ O _\nassistant\n",
]


def wrap(tokenizer: Tokenizer, **names: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, extra_special_tokens=CHAT_TOKENS, **names)


def make_word_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "<s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return wrap(tokenizer, bos_token="<s>", unk_token="<unk>", pad_token="<pad>")


def make_byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE without a word splitter, so that merges such as ``.</`` and ``><`` cross the borders of tags."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, max_token_length=6, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES * 2, trainer)
    return wrap(tokenizer, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="session")
def words() -> PreTrainedTokenizerFast:
    return make_word_tokenizer()


@pytest.fixture(scope="session")
def bytes_() -> PreTrainedTokenizerFast:
    return make_byte_tokenizer()
