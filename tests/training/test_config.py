"""The configuration: what is understood, and what bad input is told."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tether.errors import ConfigError
from tether.runs import RunFolder
from tether.training import RunConfig, dump_config, load_config, parse_config


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_no_input_is_the_default_run():
    config = load_config()
    assert config == RunConfig()
    assert (config.model, config.env.name, config.select.strategy) == ("tiny", "frozen_lake", "top_p")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("grup_size=4", "unknown key 'grup_size'; did you mean 'group_size'"),
        ("selct.top_p=0.5", "unknown key 'selct'; did you mean 'select'"),
        ("select.topp=0.5", "unknown key 'select.topp'; did you mean 'top_p'"),
        ("optim.learning_rate=1", r"unknown key 'optim.learning_rate'.*; keys of optim: lr, betas"),
        ("loss.clip_hi=0.3", "did you mean 'clip_high'"),
    ],
)
def test_an_unknown_key_names_the_nearest_and_the_known_ones(word, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, [word])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["steps"], "cannot read 'steps': key=value is expected"),
        (["=3"], "cannot read '=3': key=value is expected"),
        (["name=[a"], r"cannot read 'name=\[a'"),
        (["steps=ten"], "steps='ten': .*valid integer"),
        (["steps=1.5"], "steps=1.5: "),
        (["seed=-1"], "seed=-1: .*greater than or equal to 0"),
        (["optim.lr=0"], "optim.lr=0: .*greater than 0"),
        (["optim.lr=inf"], "optim.lr='inf': .*finite"),
        (["loss.kl_coef=nan"], "loss.kl_coef='nan': "),
        (["select.top_p=90"], "select.top_p=90: .*less than or equal to 1"),
        (["select.strategy=topp"], "select.strategy='topp': .*'top_p'"),
        (["select=top_p"], "select='top_p': "),
        (["env.options=holes"], "env.options='holes': .*dictionary"),
        (["env.options=[1]"], "env.options=.*dictionary"),
        (["env=null"], "env=None: "),
        (["model="], "model=None: "),
        (["model=' '"], "model=' ': an empty name; give a model folder or 'tiny'"),
        (["name=${nothing}"], r"Interpolation key 'nothing' not found.*\$\{reference\}"),
        (["group_size=1"], "group_size=1 with .*select.strategy=top_p.*set group_size=2 or more"),
        (["group_size=1", "select.strategy=none"], "group_size=1 with recipe=grpo.*set group_size=2 or more"),
        (["select.strategy=none", "select.control=dose"], "select.control=dose .*; set select.strategy=top_p"),
        (["resume=true"], "resume=true without a name; set name=RUN"),
    ],
)
def test_bad_input_names_the_field_and_what_is_expected(words, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        load_config(None, words)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- a\n- b\n", "holds a list; a mapping of keys to values is expected"),
        ("just words", "holds a str; a mapping"),
        ("steps: [1\n", "is not readable YAML"),
        (b"\xff\xfe\x00", "is not readable YAML"),
        ("1: 2\n", "1=1: "),
        ("name: 2020-01-01\n", "'date' is not a supported primitive type.*quote what is meant as text"),
        ("name: ${nothing}\n", "Interpolation key 'nothing' not found"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        load_config(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.yaml: No such file or directory; give a YAML file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="Is a directory; give a YAML file"):
        load_config(tmp_path)


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_config({"stps": 1, "seed": -1, "optim": {"lr": 0}})
    assert [line.split(":")[0].split(";")[0] for line in str(caught.value).splitlines()] == [
        "seed=-1",
        "optim.lr=0",
        "unknown key 'stps'",
    ]


def test_only_a_mapping_is_a_configuration():
    with pytest.raises(ConfigError, match="the configuration is a list; a mapping"):
        parse_config([])


def test_words_win_over_the_file_and_later_words_over_earlier_ones(tmp_path):
    path = write(tmp_path, "steps: 7\noptim: {lr: 0.5, weight_decay: 0.1}\n")
    config = load_config(path, ["optim.lr=1e-3", "steps=8", "steps=9"])
    assert (config.steps, config.optim.lr, config.optim.weight_decay) == (9, 1e-3, 0.1)


def test_an_empty_file_is_the_default_run(tmp_path):
    assert load_config(write(tmp_path, "")) == RunConfig()


def test_numbers_may_be_given_as_text(tmp_path):
    path = write(tmp_path, "steps: '7'\noptim: {lr: 1e-3, betas: ['0.8', 0.9]}\n")  # 1e-3 is text for PyYAML
    config = load_config(path, ["seed='3'", "loss.dual_clip=3"])
    assert (config.steps, config.seed, config.optim.lr, config.optim.betas) == (7, 3, 1e-3, (0.8, 0.9))
    assert config.loss.dual_clip == 3.0


@pytest.mark.parametrize(
    ("file", "words", "name", "options"),
    [
        ("", ["env=bandit"], "bandit", {}),
        ("", ["env=bandit", "env.arms=3"], "bandit", {"arms": 3}),
        ("", ["env.holes=2"], "frozen_lake", {"holes": 2}),
        ("", ["env.holes=2", "env.options.size=5"], "frozen_lake", {"holes": 2, "size": 5}),
        ("", ["env=lake.maker:Lake", "env.view=grid"], "lake.maker:Lake", {"view": "grid"}),
        ("env: bandit\n", ["env.arms=3"], "bandit", {"arms": 3}),
        ("env: {name: bandit, format_penalty: 0.2}\n", ["env=identity"], "identity", {}),
        ("env: {holes: 2, options: {holes: 3, size: 5}}\n", [], "frozen_lake", {"holes": 2, "size": 5}),
    ],
)
def test_an_environment_is_a_name_with_options(tmp_path, file, words, name, options):
    env = load_config(write(tmp_path, file), words).env
    assert (env.name, env.options) == (name, options)


def test_keys_of_the_section_are_no_options_of_the_environment():
    env = load_config(None, ["env=bandit", "env.format_penalty=0.2", "env.prompt_style=full"]).env
    assert (env.format_penalty, env.prompt_style, env.options) == (0.2, "full", {})


overrides = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["run", "7", "a b", "null", "ünïcode", None]),
        "seed": st.integers(0, 2**63),
        "runs_dir": st.sampled_from(["runs", "/tmp/other place"]),
        "env": st.sampled_from(["bandit", {"name": "frozen_lake", "holes": 2, "view": "grid", "success_rate": 1 / 3}]),
        "optim": st.fixed_dictionaries({"lr": st.floats(1e-12, 10)}),
        "loss": st.fixed_dictionaries(
            {"dual_clip": st.one_of(st.none(), st.floats(1.01, 9)), "kl_kind": st.just("k3")}
        ),
        "select": st.sampled_from([{"strategy": "none"}, {"strategy": "top_k", "fraction": 0.5, "control": "dose"}]),
    },
)


@given(overrides)
def test_what_is_printed_reads_back_as_the_same_configuration(tree):
    config = parse_config(tree)
    assert parse_config(yaml.safe_load(dump_config(config))) == config


def test_a_runs_own_config_file_reads_back(tmp_path):
    config = load_config(None, ["env=bandit", "optim.lr=1e-5", "name=first"])
    run = RunFolder.create(tmp_path, "first")
    run.save_config(config.model_dump(mode="json"), {"tether": "1.0"})
    assert load_config(run.config_path) == config


def test_every_setting_is_described():
    sections = {name: type(value) for name, value in RunConfig() if isinstance(value, BaseModel)}
    settings = {(): RunConfig, **{(name,): section for name, section in sections.items()}}
    silent = [
        (*path, name)
        for path, section in settings.items()
        for name, field in section.model_fields.items()
        if not field.description and name not in sections
    ]
    assert silent == []
