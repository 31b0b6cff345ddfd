import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.chat import NONE, REACT, THINK, THINK_FORCED, WHOLE_REPLY, ParsedReply, ReasoningStyle, parse_reply
from tether.errors import ConfigError
from tether.records import Turn


class SpelledTags:
    """The same tokenizer, whose tags are not to be found as entries of its vocabulary."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def convert_tokens_to_ids(self, token):
        return None if token.startswith("<") else self.tokenizer.convert_tokens_to_ids(token)

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


def parse(tokenizer, text, style=THINK_FORCED, **options):
    return parse_reply(tokenizer.encode(text, add_special_tokens=False), tokenizer, style, **options)


def test_a_forced_thought_starts_with_the_reply(words):
    parsed = parse(words, "look P 1 2 </think> <answer> up right </answer>")
    assert parsed == ParsedReply(slice(0, 4), "look P 1 2", "up right", valid=True)


def test_a_sampled_opening_tag_is_outside_the_span(words):
    parsed = parse(words, "<think> look P </think> <answer> up </answer> <|im_end|>", THINK)
    assert parsed == ParsedReply(slice(1, 3), "look P", "up", valid=True)


@pytest.mark.parametrize(
    ("text", "style", "expected"),
    [
        ("look P <answer> up </answer>", THINK_FORCED, ParsedReply(None, None, None, valid=False)),  # unclosed
        ("", THINK_FORCED, ParsedReply(None, None, None, valid=False)),
        ("look </think> <answer> up </answer>", THINK, ParsedReply(None, None, None, valid=False)),  # never opened
        ("</think> <answer> up </answer>", THINK_FORCED, ParsedReply(None, None, "up", valid=False)),  # empty thought
        ("<think> </think> <answer> up </answer>", THINK, ParsedReply(None, None, "up", valid=False)),
        ("look </think> <answer> up", THINK_FORCED, ParsedReply(slice(0, 1), "look", None, valid=False)),  # cut off
        ("look </think>", THINK_FORCED, ParsedReply(slice(0, 1), "look", None, valid=False)),
        ("look </think> up", THINK_FORCED, ParsedReply(slice(0, 1), "look", None, valid=False)),
        ("look </think> well <answer> up </answer>", THINK_FORCED, ParsedReply(slice(0, 1), "look", None, valid=False)),
        ("look </think> <answer> </answer>", THINK_FORCED, ParsedReply(slice(0, 1), "look", "", valid=True)),
        (
            "look </think> <answer> up </answer> <answer> down </answer> well",
            THINK_FORCED,
            ParsedReply(slice(0, 1), "look", "up", valid=True),
        ),
        (
            "look </think> note </think> <answer> up </answer>",
            THINK_FORCED,
            ParsedReply(slice(0, 1), "look", None, valid=False),
        ),
        ("<answer> up </answer>", NONE, ParsedReply(None, None, "up", valid=True)),
        ("look <answer> up </answer>", NONE, ParsedReply(None, None, None, valid=False)),
        (
            "look P <answer> up </answer>",
            WHOLE_REPLY,
            ParsedReply(slice(0, 5), "look P <answer> up </answer>", "up", valid=True),
        ),
        ("look P", WHOLE_REPLY, ParsedReply(slice(0, 2), "look P", None, valid=False)),
        ("", WHOLE_REPLY, ParsedReply(None, None, None, valid=False)),
        ("Thought: look P Action: up right", REACT, ParsedReply(slice(1, 3), "look P", "up right", valid=True)),
    ],
)
def test_replies_of_every_kind(words, text, style, expected):
    assert parse(words, text, style) == expected


def test_only_the_end_of_the_reply_closes_what_has_no_tag(words):
    stop_ids = {words.convert_tokens_to_ids("<|im_end|>")}
    react = "Thought: look Action: up right"
    assert parse(words, react + "<|im_end|>", REACT, stop_ids=stop_ids).answer == "up right"
    assert parse(words, react, REACT, stop_ids=stop_ids) == ParsedReply(slice(1, 2), "look", None, valid=False)
    reply = "look <answer> up </answer>"
    assert parse(words, reply + "<|im_end|>", WHOLE_REPLY, stop_ids=stop_ids).reasoning == slice(0, 4)
    assert parse(words, reply, WHOLE_REPLY, stop_ids=stop_ids).reasoning is None


def test_a_thought_of_blanks_is_a_thought_as_long_as_it_has_a_token(bytes_):
    ids = [*bytes_.encode("\n"), *bytes_.encode("</think>"), *bytes_.encode("<answer>Up</answer>")]
    assert parse_reply(ids, bytes_, THINK_FORCED) == ParsedReply(slice(0, 1), "\n", "Up", valid=True)


def test_tokens_that_overlap_a_tag_are_outside_the_span(bytes_):
    text = "go right.</think>\nlook <answer>Up</answer>"
    ids = bytes_.encode(text)
    pieces = [bytes_.decode([token]) for token in ids]
    assert ".</" in pieces, "the tokenizer was trained to cross the border of the tag"
    parsed = parse_reply(ids, bytes_, THINK_FORCED)
    assert parsed.reasoning == slice(0, pieces.index(".</"))
    assert parsed.reasoning_text == "go right"


def test_one_token_across_both_tags_is_an_empty_thought(bytes_):
    ids = bytes_.encode("<think></think><answer>Up</answer> </think>")
    assert "k></" in [bytes_.decode([token]) for token in ids]
    assert parse_reply(ids, bytes_, THINK) == ParsedReply(None, None, "Up", valid=False)


def test_a_tag_counts_when_it_is_spelled_before_it_comes_as_one_token(bytes_):
    tokenizer = copy.deepcopy(bytes_)
    spelled = tokenizer.encode("go </think><answer>Up</answer>")
    tokenizer.add_tokens(["</think>"])
    whole = tokenizer.encode("</think><answer>Down</answer>")
    assert parse_reply([*spelled, *whole], tokenizer, THINK_FORCED).answer == "Up"
    assert parse_reply(spelled, tokenizer, THINK_FORCED) == parse_reply(spelled, SpelledTags(tokenizer), THINK_FORCED)


@settings(deadline=None)
@given(data=st.data())
def test_looking_tags_up_and_searching_the_text_agree(words, data):
    vocabulary = words.convert_tokens_to_ids(["<think>", "</think>", "<answer>", "</answer>", "look", "P", "up"])
    ids = data.draw(st.lists(st.sampled_from(vocabulary), max_size=12))
    for style in (THINK, THINK_FORCED, NONE, WHOLE_REPLY):
        assert parse_reply(ids, words, style) == parse_reply(ids, SpelledTags(words), style)


PIECES = [
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "k></",
    ".</",
    "thin",
    "k>\n\n",
    "Up</",
    " the ",
    "√",
    "\n",
    "<",
]


@settings(deadline=None)
@given(data=st.data())
def test_the_span_is_the_largest_one_between_the_tags(bytes_, data):
    spelled = st.sampled_from(PIECES).map(lambda text: bytes_.encode(text))
    anything = st.integers(0, 339).map(lambda token: [token])
    ids = sum(data.draw(st.lists(spelled | anything, max_size=20)), [])
    parsed = parse_reply(ids, bytes_, THINK_FORCED)
    text = bytes_.decode(ids)
    if "</think>" not in text:
        assert parsed == ParsedReply(None, None, None, valid=False)
        return
    tag = text.index("</think>")
    stop = parsed.reasoning.stop if parsed.reasoning else 0
    assert len(bytes_.decode(ids[:stop])) <= tag < len(bytes_.decode(ids[: stop + 1]))
    assert text.startswith(bytes_.decode(ids[:stop]).rstrip("\N{REPLACEMENT CHARACTER}"))
    behind = text[tag + len("</think>") :].lstrip()
    expected = behind.removeprefix("<answer>").partition("</answer>")[0].strip()
    has_answer = behind.startswith("<answer>") and "</answer>" in behind
    assert parsed.answer == (expected if has_answer else None)
    assert parsed.valid == (has_answer and stop > 0)


@settings(deadline=None)
@given(data=st.data())
def test_every_span_makes_a_record(bytes_, data):
    ids = tuple(data.draw(st.lists(st.integers(0, 343), max_size=8))) + tuple(bytes_.encode("</think>"))
    parsed = parse_reply(ids, bytes_, THINK_FORCED)
    turn = Turn(prompt_ids=(1,), sampled_ids=ids, reasoning=parsed.reasoning)
    assert turn.reasoning_ids is None or bytes_.decode(list(turn.reasoning_ids)) == parsed.reasoning_text


@pytest.mark.parametrize(
    "tags",
    [
        {"opening": "<think>"},
        {"closing": "</think>"},
        {"opening": "<think>", "closing": "</think>", "whole_reply": True},
        {"forced_opening": True},
    ],
)
def test_tags_that_contradict_each_other_are_refused(tags):
    with pytest.raises(ConfigError, match="reasoning style 'mine'"):
        ReasoningStyle("mine", **tags)
