"""``tether train``: what is printed, which exit code, and that bad input leaves nothing behind."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from tether import __version__
from tether.cli import app, main
from tether.runs import RunFolder
from tether.training import RunConfig, load_config

SMALL = [
    "env=identity",
    "steps=1",
    "prompts=4",
    "group_size=4",
    "generate.max_reply_tokens=10",
    "eval.prompts=4",
    "eval.samples=2",
    "monitor.max_reasonings=8",
]


@pytest.fixture
def tether(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tether", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def in_a_process(folder, *words):
    code = "from tether.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=False, env=os.environ
    )


def test_a_real_process_ends_bad_input_with_2_one_message_and_nothing_written(tmp_path):
    done = in_a_process(tmp_path, "train", "grup_size=4")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown key 'grup_size'; did you mean 'group_size'")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_real_process_prints_a_configuration_that_reads_back(tmp_path):
    words = ["env=bandit", "env.arms=3", "optim.lr=1e-5", "name=a", "select.strategy=none"]
    first = in_a_process(tmp_path, "train", *words, "--print-config")
    assert (first.returncode, first.stderr) == (0, "")
    (tmp_path / "config.yaml").write_text(first.stdout)
    second = in_a_process(tmp_path, "train", "config.yaml", "--print-config")
    assert second.stdout == first.stdout
    assert load_config(tmp_path / "config.yaml") == load_config(None, words)


def test_the_printed_configuration_is_the_resolved_one():
    printed = CliRunner().invoke(app, ["train", "steps=7", "--print-config"])
    assert printed.exit_code == 0
    tree = yaml.safe_load(printed.output)
    assert tree["steps"] == 7
    assert set(tree) == set(RunConfig.model_fields)


def test_options_may_stand_before_and_after_the_settings():
    ways = (["train", "--print-config", "steps=7"], ["train", "steps=7", "--print-config"])
    before, after = (CliRunner().invoke(app, words) for words in ways)
    assert before.output == after.output


@pytest.mark.parametrize("flag", ["--print-confg", "--dryrun"])
def test_an_unknown_flag_ends_with_2_and_the_nearest(flag):
    result = CliRunner().invoke(app, ["train", flag])
    assert result.exit_code == 2
    assert flag in result.output
    assert "--print-config" in result.output or "--dry-run" in result.output


def test_an_unknown_verb_ends_with_2_and_the_nearest():
    result = CliRunner().invoke(app, ["trian"])
    assert result.exit_code == 2
    assert "train" in result.output


def test_help_and_version():
    assert __version__ in CliRunner().invoke(app, ["--version"]).output
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(word in shown for word in ("demo", "train", "Look", "Train"))
    assert "KEY=VALUE" in CliRunner().invoke(app, ["train", "--help"]).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["selct.top_p=1"], "unknown key 'selct'; did you mean 'select'"),
        (["steps"], "cannot read the configuration steps: No such file or directory"),
        (["absent.yaml"], "cannot read the configuration absent.yaml"),
        (["group_size=1"], "group_size=1 with .* set group_size=2 or more"),
        (["env=identty"], "unknown environment 'identty'; .*did you mean 'identity'"),
        (["env=identity", "env.wrds=3"], "environment 'identity' has no option 'wrds'; .*did you mean 'words'"),
        (["env=bandit"], "model=tiny with env=bandit: .*give a model folder, model=PATH"),
        (["model=nowhere", "env=identity"], "model folder 'nowhere' does not exist"),
        (
            [*SMALL, "generate.max_reply_tokens=100000"],
            "generate.max_reply_tokens=100000 with model .*, whose window is .*; lower generate.max_reply_tokens",
        ),
        ([*SMALL, "generate.max_reply_tokens=62"], "generate.max_reply_tokens=62 with model .*lower the reply budget"),
        ([*SMALL, "name=absent", "resume=true"], "absent: no such run folder"),
        ([*SMALL, "resume=true"], "resume=true without a name; set name=RUN"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_bad_input_ends_with_2_names_the_field_and_writes_nothing(
    tether, tmp_path, identity_model, words, message, flags
):
    code, out, err = tether("train", *words, *flags)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert re.search(f"(?s){message}", err), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["steps: [1\n", "- 1\n", "name: ${nothing}\n"])
def test_an_unreadable_configuration_ends_with_2_and_writes_nothing(tether, tmp_path, content):
    (tmp_path / "broken.yaml").write_text(content)
    code, _, err = tether("train", "broken.yaml")
    assert code == 2
    assert "broken.yaml" in err
    assert [path.name for path in tmp_path.iterdir()] == ["broken.yaml"]


def test_a_model_folder_without_a_tokenizer_ends_with_2_and_writes_nothing(tether, tmp_path, identity_model):
    model = shutil.copytree(identity_model, tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    code, _, err = tether("train", *SMALL, f"model={model}")
    assert code == 2
    assert "has no tokenizer" in err
    assert "tokenizer.save_pretrained(folder)" in err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_that_does_not_know_the_words_ends_with_2(tether, tmp_path, identity_model):
    code, _, err = tether("train", "env=bandit", f"model={identity_model}", "generate.max_reply_tokens=10")
    assert code == 2
    assert "does not know all words of 'bandit'" in err
    assert list(tmp_path.iterdir()) == []


def test_a_reference_with_another_vocabulary_ends_with_2(tether, identity_model, lake_model):
    code, _, err = tether("train", *SMALL, "loss.kl_coef=0.1", f"reference={lake_model}")
    assert code == 2
    assert "has another vocabulary than model" in err


def test_a_dry_run_prints_the_cost_and_writes_nothing(tether, tmp_path, identity_model):
    code, out, _ = tether("train", *SMALL, "steps=40", "eval.every=10", "--dry-run")
    assert code == 0
    rows = {line[:28].strip(): line[28:].strip() for line in out.splitlines()}
    assert rows["configuration"] == "valid"
    assert rows["episodes"] == "16 an iteration, 640 in all, 40 for validation"
    tokens, in_all = (int(word) for word in re.findall(r"\d+", rows["sampled tokens"].replace(",", "")))
    assert 16 < tokens <= 16 * 10
    assert in_all == pytest.approx(40 * tokens, rel=0.01)
    assert "MiB" in rows["memory (weights, optimiser)"]
    assert "% of the time" in rows["monitor"]
    assert list(tmp_path.iterdir()) == []


def test_a_run_ends_by_saying_where_its_results_are(tether, tmp_path, identity_model):
    code, out, err = tether("train", *SMALL)
    run = RunFolder.open(tmp_path / "runs" / "run-0001")
    assert code == 0
    assert "results: runs/run-0001" in out
    assert "report:  runs/run-0001/report.html" in out
    assert "step 1/1" in err
    assert "<html" in run.report_path.read_text()
    assert [json.loads(line)["step"] for line in run.metrics_path.read_text().splitlines()] == [0, 1]


def test_a_name_that_is_no_folder_name_ends_with_2(tether, tmp_path, identity_model):
    code, _, err = tether("train", *SMALL, "name=a/b")
    assert code == 2
    assert "run name 'a/b': one folder name is expected" in err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_name_ends_with_2_and_offers_to_resume(tether, tmp_path, identity_model):
    RunFolder.create(tmp_path / "runs", "mine")
    before = sorted(tmp_path.rglob("*"))
    for flags in ([], ["--dry-run"]):
        code, _, err = tether("train", *SMALL, "name=mine", *flags)
        assert code == 2
        assert "run runs/mine exists" in err
        assert "resume=true" in err
    assert sorted(tmp_path.rglob("*")) == before
