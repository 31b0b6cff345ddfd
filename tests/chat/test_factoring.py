"""Chat templates as they are found in the wild, in their own language, taken apart and put together again."""

import copy
from dataclasses import replace

import pytest

from tether.chat import CHATML, THINK, THINK_FORCED, PastTurn, PromptBuilder, template_from_tokenizer
from tether.errors import ConfigError

CHATML_JINJA = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# A default system message, as in Qwen2.5.
DEFAULT_SYSTEM_JINJA = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe helpful.<|im_end|>\n' }}{% endif %}" + CHATML_JINJA
)

# Thoughts before the last user message are stripped, with the blanks behind them, as in Qwen3.
DROPS_JINJA = """{%- for m in messages %}{% set content = m.content %}
{%- if m.role == 'assistant' and not loop.last and '</think>' in content %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}
{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"""

# Opens the thought itself and strips earlier ones, without the blanks behind them, as in the R1 distillations.
OPENS_THOUGHT_JINJA = """{{- bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{{ '<|im_start|>' + m.content }}
{%- else %}{{ '<|im_end|>' + m.content.split('</think>')[-1] + '</s>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_end|><think>\n' }}{% endif %}"""

# Keeps thoughts, and puts an empty one where there is none.
FILLS_JINJA = """{% for m in messages %}{% set content = m.content %}
{%- if m.role == 'assistant' and '</think>' not in content %}{% set content = '<think></think>' + content %}{% endif %}
{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# No system role, as in Gemma.
REFUSES_SYSTEM_JINJA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML_JINJA
)

# The system message goes to the head of the first user message, as in Gemma 3.
FOLDS_SYSTEM_JINJA = """{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}
{%- set turns = messages[1:] %}{% else %}{% set first = '' %}{% set turns = messages %}{% endif %}
{%- for m in turns %}{{ '<|im_start|>' + m.role + '\n' + (first if loop.first else '') + m.content + '<|im_end|>\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# No special token before a reply, and none for roles, as in Mistral.
INSTRUCT_JINJA = """{{- bos_token }}{% for m in messages %}
{%- if m.role == 'user' %}{{ ' [INST] ' + m.content + ' [/INST] ' }}
{%- elif m.role == 'assistant' %}{{ m.content + '</s>' }}{% else %}{{ raise_exception('no such role') }}{% endif %}
{%- endfor %}"""

UNREADABLE = {
    "the system message": """{% for m in messages %}{% if m.role == 'user' %}
{%- if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '|' }}{% endif %}
{{- '<|im_start|>' + m.content }}{% elif m.role == 'assistant' %}{{ '<|im_end|>' + m.content + '</s>' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_end|>' }}{% endif %}""",
    "later turns": CHATML_JINJA.replace("m.role + '\n'", "m.role ~ loop.index ~ '\n'").replace(
        "assistant\n", "assistant' ~ (messages | length + 1) ~ '\n"
    ),
    "the start of a reply": CHATML_JINJA.replace("assistant\n' }}{% endif", "model\n' }}{% endif"),
    "the end of a reply": "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}{{ 'assistant:' }}",
    "a message of the user": CHATML_JINJA.replace("+ m.content", "+ m.content + m.content"),
    "earlier thoughts": DROPS_JINJA.replace("not loop.last", "loop.index0 < 2"),
    "a conversation of 3 messages without a system message": "{{ messages | length }}" + CHATML_JINJA,
    "a conversation of 3 messages with a system message": CHATML_JINJA.replace(
        "m.content +", "m.content + ('.' if m.role == 'assistant' and messages[0].role == 'system' else '') +"
    ),
    "a plain conversation": "{{ raise_exception('never') }}",
}


def with_template(tokenizer, source):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = source
    return tokenizer


def test_chatml_is_recognised(bytes_):
    assert template_from_tokenizer(with_template(bytes_, CHATML_JINJA)) == replace(CHATML, name="the tokenizer's own")


def test_the_default_system_message_is_replaced_by_a_given_one(bytes_):
    template = template_from_tokenizer(with_template(bytes_, DEFAULT_SYSTEM_JINJA))
    assert template == replace(CHATML, name=template.name, default_system="<|im_start|>system\nBe helpful.<|im_end|>\n")
    assert template.head("Be brief.") == "<|im_start|>system\nBe brief.<|im_end|>\n"


@pytest.mark.parametrize(
    ("source", "drops", "strips", "opening"),
    [
        (CHATML_JINJA, False, False, ""),
        (FILLS_JINJA, False, False, ""),
        (DROPS_JINJA, True, True, ""),
        (OPENS_THOUGHT_JINJA, True, False, "<think>\n"),
    ],
)
def test_what_becomes_of_thoughts_is_found_out(bytes_, source, drops, strips, opening):
    template = template_from_tokenizer(with_template(bytes_, source))
    assert template.drops_earlier_reasoning == drops
    assert template.strips_blanks_after_reasoning == strips
    assert template.generation_opening == opening


def test_options_reach_the_template(bytes_):
    template = template_from_tokenizer(with_template(bytes_, DROPS_JINJA), enable_thinking=False)
    assert template.generation_opening == "<think>\n\n</think>\n\n"


@pytest.mark.parametrize("source", [REFUSES_SYSTEM_JINJA, FOLDS_SYSTEM_JINJA, INSTRUCT_JINJA])
def test_without_a_system_role_the_instructions_head_the_first_user_message(bytes_, source):
    template = template_from_tokenizer(with_template(bytes_, source))
    assert template.system is None
    assert template.first_user_text("Be brief.", "Go.") == "Be brief.\n\nGo."


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_told_apart_is_named(bytes_, what):
    with pytest.raises(ConfigError, match=f"chat template: {what} cannot be told apart"):
        template_from_tokenizer(with_template(bytes_, UNREADABLE[what]))


def test_a_tokenizer_without_a_template_is_an_error(words):
    with pytest.raises(ConfigError, match="has no chat template.*PLAIN"):
        template_from_tokenizer(words)


WITHOUT_SYSTEM = [REFUSES_SYSTEM_JINJA, INSTRUCT_JINJA]
WITH_SYSTEM = [CHATML_JINJA, DEFAULT_SYSTEM_JINJA, DROPS_JINJA, OPENS_THOUGHT_JINJA, FOLDS_SYSTEM_JINJA]


@pytest.mark.parametrize(
    ("source", "system"),
    [(source, None) for source in WITH_SYSTEM + WITHOUT_SYSTEM] + [(source, "Be brief.") for source in WITH_SYSTEM],
)
def test_the_builder_writes_what_the_template_writes(bytes_, source, system):
    """The first context has the very ids of the template; later ones its text, thoughts dropped where it drops them."""
    tokenizer = with_template(bytes_, source)
    template = template_from_tokenizer(tokenizer)
    style = THINK_FORCED if template.generation_opening else THINK
    builder = PromptBuilder(tokenizer, template=template, style=style, system=system, max_context=1000, reply_budget=10)
    messages = [{"role": "system", "content": system}] if system else []
    past = []
    for state in ("State:\nP _ G", "_ O _"):
        messages.append({"role": "user", "content": state})
        rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = builder.build(past, state).ids
        assert tokenizer.decode(ids) == rendered
        if not past:
            assert list(ids) == tokenizer.encode(rendered, add_special_tokens=False)
        opening, thought, closing, answer = "<think>\n", "look, go", "</think>", "\n\n<answer>Up</answer>"
        parts = [tokenizer.encode(text) for text in ("" if style.forced_opening else opening, thought, closing, answer)]
        start = len(parts[0])
        sampled = (*sum(parts, []), tokenizer.convert_tokens_to_ids(template.end_of_turn))
        past.append(PastTurn(state, sampled, slice(start, start + len(parts[1]))))
        messages.append({"role": "assistant", "content": opening + thought + closing + answer})
