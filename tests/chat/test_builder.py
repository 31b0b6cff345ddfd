from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.chat import (
    CHATML,
    CHATML_DROPS_THOUGHTS,
    NONE,
    PLAIN,
    REACT,
    THINK,
    THINK_FORCED,
    ChatTemplate,
    PastTurn,
    PromptBuilder,
    parse_reply,
)
from tether.errors import ConfigError, ContextLengthError
from tether.records import Episode, Turn

OPENS_THOUGHT = replace(
    CHATML_DROPS_THOUGHTS, name="opens_thought", generation_opening="<think>", system=None, default_system="rules\n"
)


def make_builder(tokenizer, template=CHATML, style=THINK_FORCED, **options):
    return PromptBuilder(
        tokenizer,
        **{"template": template, "style": style, "system": None, "max_context": 1000, "reply_budget": 10} | options,
    )


def ids_of(tokenizer, text):
    return tuple(tokenizer.encode(text, add_special_tokens=False))


# ---------------------------------------------------------------------------------------------- what contexts look like


def test_plain_is_the_bare_state_and_the_opening_tag(words):
    builder = make_builder(words, PLAIN)
    first = builder.build([], "P 1 2")
    assert words.decode(first.ids) == "<s> P 1 2 <think>"
    reply = ids_of(words, "go up </think> <answer> up </answer>")
    second = builder.build([PastTurn("P 1 2", reply, slice(0, 2))], "P 0 2")
    assert second.ids == first.ids + reply + ids_of(words, "P 0 2 <think>")
    assert builder.stop_ids == {words.convert_tokens_to_ids("</answer>")}


def test_chatml_closes_a_reply_after_the_sampled_end(bytes_):
    builder = make_builder(bytes_, system="rules")
    reply = ids_of(bytes_, "go</think><answer>Up</answer><|im_end|>")
    ids = builder.build([PastTurn("P", reply, slice(0, 1))], "G").ids
    assert bytes_.decode(ids) == (
        "<|im_start|>system\nrules<|im_end|>\n<|im_start|>user\nP<|im_end|>\n"
        "<|im_start|>assistant\n<think>go</think><answer>Up</answer><|im_end|>\n"
        "<|im_start|>user\nG<|im_end|>\n<|im_start|>assistant\n<think>"
    )
    assert builder.stop_ids == {bytes_.convert_tokens_to_ids(token) for token in ("<|im_end|>", "</s>")}


def test_a_truncated_reply_is_closed_by_the_context_alone(bytes_):
    builder = make_builder(bytes_)
    reply = ids_of(bytes_, "go go go")
    ids = builder.build([PastTurn("P", reply)], "G").ids
    first = builder.build([], "P").ids
    assert ids[: len(first)] == first
    assert bytes_.decode(ids[len(first) :]).startswith("go go go<|im_end|>\n<|im_start|>user\n")
    finished = builder.build([PastTurn("P", (*reply, bytes_.convert_tokens_to_ids("<|im_end|>")))], "G").ids
    assert finished == ids, "the same context; which end was sampled is what the record says"


@pytest.mark.parametrize("style", [THINK, THINK_FORCED])
def test_a_template_that_drops_thoughts_drops_exactly_the_thought_and_its_tags(bytes_, style):
    builder = make_builder(bytes_, CHATML_DROPS_THOUGHTS, style)
    opening = () if style.forced_opening else ids_of(bytes_, "<think>")
    thought, closing, answer = (
        ids_of(bytes_, t) for t in ("go right", "</think>", "\n\n<answer>Up</answer><|im_end|>")
    )
    past = PastTurn("P", opening + thought + closing + answer, slice(len(opening), len(opening + thought)))
    ids = builder.build([past], "G").ids
    assert ids == (
        ids_of(bytes_, "<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\n")
        + answer
        + ids_of(bytes_, "\n<|im_start|>user\nG<|im_end|>\n<|im_start|>assistant\n")
        + (ids_of(bytes_, "<think>") if style.forced_opening else ())
    )


def test_blanks_behind_a_dropped_thought_go_where_the_template_strips_them(bytes_):
    template = replace(CHATML_DROPS_THOUGHTS, strips_blanks_after_reasoning=True)
    reply = ids_of(bytes_, "go") + ids_of(bytes_, "</think>") + ids_of(bytes_, "\n\n ") + ids_of(bytes_, "Up")
    ids = make_builder(bytes_, template).build([PastTurn("P", reply, slice(0, 1))], "G").ids
    assert "<|im_start|>assistant\nUp<|im_end|>" in bytes_.decode(ids)


def test_tokens_that_overlap_the_tag_of_a_dropped_thought_go_with_it(bytes_):
    reply = ids_of(bytes_, "go right.</think>\n\n<answer>Up</answer><|im_end|>")
    assert {".</", "k>\n\n"} <= {bytes_.decode([token]) for token in reply}
    reasoning = parse_reply(reply, bytes_, THINK_FORCED).reasoning
    ids = make_builder(bytes_, CHATML_DROPS_THOUGHTS).build([PastTurn("P", reply, reasoning)], "G").ids
    assert "<|im_start|>assistant\n<answer>Up</answer><|im_end|>" in bytes_.decode(ids)


@pytest.mark.parametrize(("style", "span"), [(THINK_FORCED, slice(0, 1)), (THINK, slice(2, 3))])
def test_a_span_that_does_not_reach_to_its_tags_is_cut_alone(words, style, span):
    reply = ids_of(words, "<think> look P 1 </think> up")
    ids = make_builder(words, CHATML_DROPS_THOUGHTS, style).build([PastTurn("P", reply, span)], "G").ids
    left = reply[: span.start] + reply[span.stop :]
    assert any(ids[at : at + len(left)] == left for at in range(len(ids)))


def test_a_thought_that_is_not_closed_stays(bytes_):
    reply = ids_of(bytes_, "go right")
    ids = make_builder(bytes_, CHATML_DROPS_THOUGHTS).build([PastTurn("P", reply)], "G").ids
    assert "<|im_start|>assistant\n<think>go right<|im_end|>" in bytes_.decode(ids)


def test_instructions_move_with_the_first_turn_that_is_left(bytes_):
    template = replace(CHATML, system=None)
    turn = PastTurn("P", ids_of(bytes_, "go<|im_end|>"))
    whole = make_builder(bytes_, template, system="rules").build([turn], "G")
    cut = make_builder(bytes_, template, system="rules", window=0).build([turn], "G")
    assert bytes_.decode(whole.ids).count("rules\n\nP") == 1
    assert "rules\n\nG" not in bytes_.decode(whole.ids)
    assert bytes_.decode(cut.ids).startswith("<|im_start|>user\nrules\n\nG")
    assert (whole.dropped_turns, cut.dropped_turns) == (0, 1)


def test_react_is_a_style_like_any_other(bytes_):
    builder = make_builder(bytes_, CHATML_DROPS_THOUGHTS, REACT)
    thought = ids_of(bytes_, " go right\n")
    reply = ids_of(bytes_, "Thought:") + thought + ids_of(bytes_, "Action:") + ids_of(bytes_, " Up<|im_end|>")
    start = len(ids_of(bytes_, "Thought:"))
    ids = builder.build([PastTurn("P", reply, slice(start, start + len(thought)))], "G").ids
    assert "<|im_start|>assistant\n Up<|im_end|>" in bytes_.decode(ids)


def test_each_text_is_encoded_once(words):
    calls = []

    class Counting:
        def __getattr__(self, name):
            return getattr(words, name)

        def encode(self, text, *, add_special_tokens):
            calls.append(text)
            return words.encode(text, add_special_tokens=add_special_tokens)

    builder = make_builder(Counting(), PLAIN)
    calls.clear()
    past = [PastTurn("P 1", ids_of(words, "up </answer>"))]
    assert builder.build(past, "P 1") == builder.build(past, "P 1")
    assert calls == ["P 1"]


# ------------------------------------------------------------------------------------------------------ what is refused


def test_a_state_that_does_not_fit_is_an_error_with_the_numbers(words):
    builder = make_builder(words, PLAIN, max_context=16, reply_budget=10)
    assert len(builder.build([], "P 1 2 3").ids) == 6
    with pytest.raises(ContextLengthError, match=r"prompt of 7 tokens .*10 tokens kept .*at most 6 of 16"):
        builder.build([PastTurn("P", (5,))], "P 1 2 3 0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_context": 10}, "reply_budget 10, max_context 10"),
        ({"reply_budget": 0}, "reply_budget 0"),
        ({"window": -1}, "window -1"),
        ({"template": replace(CHATML, user=("<|user|>", ""))}, "cannot write its piece '<|user|>"),
        ({"template": PLAIN, "style": replace(THINK_FORCED, opening="<mull>")}, "cannot write its piece '<mull>'"),
        ({"template": replace(PLAIN, assistant=("", "well go"), end_of_turn="well go")}, "is not one token"),
        ({"template": PLAIN, "style": REACT}, "nothing ends a reply"),
        ({"template": OPENS_THOUGHT, "style": THINK}, "opens the thought itself"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(words, options, message):
    with pytest.raises(ConfigError, match=message.replace("|", r"\|")):
        make_builder(words, **options)


def test_the_end_of_turn_is_part_of_what_closes_a_reply():
    with pytest.raises(ConfigError, match="is not in the assistant's suffix"):
        ChatTemplate("mine", end_of_turn="<|im_end|>")


# ------------------------------------------------------------ any sequence of turns, truncations, windows and templates


@dataclass(frozen=True)
class Step:
    """One turn as the test made it: which of the sampled ids a template that drops thoughts would leave."""

    past: PastTurn
    without_thought: tuple[int, ...]
    record: Turn


TEMPLATES = [PLAIN, CHATML, CHATML_DROPS_THOUGHTS, replace(CHATML, system=None), OPENS_THOUGHT]
STYLES = [THINK, THINK_FORCED, NONE]


@st.composite
def builders(draw, words, bytes_):
    tokenizer = draw(st.sampled_from([words, bytes_]))
    template = draw(st.sampled_from(TEMPLATES))
    style = THINK_FORCED if template.generation_opening else draw(st.sampled_from(STYLES))
    budget = draw(st.integers(10, 14))
    return make_builder(
        tokenizer,
        template,
        style,
        system=draw(st.sampled_from([None, "rules"])),
        max_context=budget + draw(st.integers(10, 120)),
        reply_budget=budget,
        window=draw(st.sampled_from([None, None, 0, 1, 2])),
    )


@st.composite
def replies(draw, builder):
    """Return (sampled ids, reasoning span, ids without the thought, finish): anything that sampling may bring."""
    tokenizer, style, budget = builder.tokenizer, builder.style, builder.reply_budget
    anything = st.lists(
        st.integers(0, len(tokenizer) - 1).filter(lambda token: token not in builder.stop_ids), max_size=4
    )
    before, thought, answer = (tuple(draw(anything)) for _ in range(3))
    opening = () if style.forced_opening else ids_of(tokenizer, style.opening)
    closing = ids_of(tokenizer, style.closing)
    before = () if style.forced_opening else before
    if thought and style.closing and draw(st.booleans()):
        sampled = before + opening + thought + closing + answer
        start = len(before + opening)
        span, without = slice(start, start + len(thought)), before + answer
    else:
        sampled, span = before + thought + answer, None
        without = sampled
    truncated = draw(st.booleans())
    end = () if truncated else (draw(st.sampled_from(sorted(builder.stop_ids))),)
    if len(sampled + end) > budget or not sampled + end:
        sampled, span, end = sampled[: budget - 1], None, end or (5,)
        without = sampled
    return sampled + end, span, without + end, "length" if truncated else "stop"


def expected_ids(builder, steps, state):
    """The context of these turns, put together naively: every text encoded anew, every sampled id as it was sampled."""
    tokenizer, template, style = builder.tokenizer, builder.template, builder.style
    opening = template.generation_opening or (style.opening if style.forced_opening else "")
    bos = tokenizer.bos_token if template.bos is None else template.bos
    system, folded = builder.system, ""
    if system is not None and template.system is None:
        system, folded = None, f"{builder.system}\n\n"
    before = template.default_system if system is None else system.join(template.system)
    ids = ids_of(tokenizer, bos + before)
    for step in steps:
        ids += ids_of(tokenizer, (folded + step.past.state).join(template.user) + template.assistant[0])
        dropped = template.drops_earlier_reasoning and step.past.reasoning is not None
        ids += step.without_thought if dropped else ids_of(tokenizer, opening) + step.past.sampled_ids
        suffix = template.assistant[1]
        if template.end_of_turn and step.past.sampled_ids[-1] == tokenizer.convert_tokens_to_ids(template.end_of_turn):
            suffix = suffix.removeprefix(template.end_of_turn)
        ids += ids_of(tokenizer, suffix)
        folded = ""
    return (
        ids
        + ids_of(tokenizer, (folded + state).join(template.user) + template.assistant[0])
        + ids_of(tokenizer, opening)
    )


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_contexts_hold_sampled_ids_as_sampled_and_nothing_else_but_template_and_states(words, bytes_, data):
    builder = data.draw(builders(words, bytes_))
    limit = builder.max_context - builder.reply_budget
    states = st.text("PG 12\n√.<", max_size=8) if builder.tokenizer is bytes_ else st.sampled_from(["P 1 2", "G", ""])
    steps, previous = [], None
    for _ in range(data.draw(st.integers(1, 6))):
        state = data.draw(states)
        past = [step.past for step in steps]
        if len(expected_ids(builder, [], state)) > limit:
            with pytest.raises(ContextLengthError, match=f"at most {limit} of {builder.max_context}"):
                builder.build(past, state)
            break
        prompt = builder.build(past, state)
        dropped = prompt.dropped_turns
        assert prompt.ids == expected_ids(builder, steps[dropped:], state)
        assert len(prompt.ids) + builder.reply_budget <= builder.max_context

        outside = 0 if builder.window is None else max(0, len(steps) - builder.window)
        assert dropped >= outside
        if dropped > outside:
            assert len(expected_ids(builder, steps[dropped - 1 :], state)) > limit, (
                "one turn less would not have fitted"
            )

        if previous is not None and dropped == previous.dropped_turns:
            last = steps[-1].past
            if not (builder.template.drops_earlier_reasoning and last.reasoning is not None):
                known = previous.ids + last.sampled_ids
                assert prompt.ids[: len(known)] == known, "nothing was rewritten: the context only grew"

        sampled, span, without, finish = data.draw(replies(builder))
        record = Turn(prompt.ids, sampled, logprobs=(-1.0,) * len(sampled), finish=finish, reasoning=span)
        steps.append(Step(PastTurn(state, record.sampled_ids, record.reasoning), without, record))
        previous = prompt

    episode = Episode("e", turns=tuple(step.record for step in steps))
    for turn in episode.turns:
        assert (turn.sampled_ids[-1] in builder.stop_ids) == (turn.finish == "stop"), "no end that was not sampled"
        assert len(turn.prompt_ids + turn.sampled_ids) <= builder.max_context
    assert episode.num_sampled_tokens == sum(len(step.past.sampled_ids) for step in steps)
