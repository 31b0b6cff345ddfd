"""Whole reports: complete, escaped, readable without a network, and honest about what is not there."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tether.errors import InputError
from tether.reports import DemoArm, write_demo_picture, write_demo_report, write_report, write_run_report
from tether.reports.page import content_security_policy
from tether.results import Diagnosis, Estimate, Finding, skipped, void
from tether.runs import RunFolder

MakeRun = Callable[..., RunFolder]
Demo = tuple[list[DemoArm], RunFolder]
VOID_ELEMENTS = {"meta", "img", "line", "rect", "circle", "br"}


class Page(HTMLParser):
    """What a report is made of: tags with their attributes, the text, the headings, and whether tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.style = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def demo_page(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_demo_report(*demo, path)
    return read(path)


def check_sound(page: Page) -> None:
    """What holds for every report: one file, no code, a policy that says so, pictures with words, tables with heads."""
    assert page.open == []
    (policy,) = [tag["content"] for tag in page.all("meta") if tag.get("http-equiv") == "Content-Security-Policy"]
    assert policy == content_security_policy(page.style)
    assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert not any(name == "style" or name.startswith("on") or "href" in name for name in attributes if tag != "a")
    assert [tag["href"] for tag in page.all("a")] == ["#main"]
    assert "url(" not in page.style
    assert "@import" not in page.style
    assert all(str(image["src"]).startswith("data:image/svg+xml;base64,") and image["alt"] for image in page.all("img"))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert not re.search(r"\bnan\b|\bNone\b|Undefined", page.text)


def test_the_demo_report_is_sound(demo_page: Page) -> None:
    check_sound(demo_page)


def test_the_demo_report_tells_its_story_in_order(demo_page: Page) -> None:
    story = [
        "Is the reasoning still about the problem in front of it?",
        "Lost without the filter, kept with it",
        "Where each arm ended",
        "The regime plane",
        "What may not be concluded",
        "The template mode was planted.",
        "The dose control",
        "one turn an episode",
        "What each arm spent",
        "The default run",
        "Success on unseen states",
        "gap closed",
        "Retrieval matrix, before and after",
        "Reward variance by group",
        "Traces",
        "First and later turns",
        "What the monitor cost",
        "Findings",
        "template_collapse",
        "Skipped, and why",
        "episodes have one turn",
        "How to reproduce it",
        "select.strategy",
    ]
    places = [demo_page.text.find(part) for part in story]
    assert -1 not in places
    assert demo_page.text.index("Where each arm ended") < demo_page.text.index("What may not be concluded")
    sections = [story.index(part) for part in ("Where each arm ended", "The regime plane", "The default run", "Traces")]
    assert [places[n] for n in sections] == sorted(places[n] for n in sections)


def test_the_demo_report_has_every_seed_with_interval_bound_and_p(demo: Demo, demo_page: Page) -> None:
    for arm in demo[0]:
        assert arm.label in demo_page.text
        for run in arm.runs:
            line = run.read_metrics().rows[-1]
            for key, decimals in (("success", 2), ("first_turn/mi_sequence", 2), ("first_turn/conditional_entropy", 3)):
                value, low, high = (line[f"eval/{key}{end}"] for end in ("", "/low", "/high"))
                text = f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]".replace("-", "−")
                assert text.replace("−0.00", "0.00") in demo_page.text
    assert "chance 0, bound 3.18" in demo_page.text
    assert demo_page.text.count("0.001") >= 4


def test_equal_folders_give_equal_bytes(demo: Demo, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_run_report(demo[1], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_picture_of_the_demo_is_a_png(demo: Demo, tmp_path: Path) -> None:
    write_demo_picture(demo[0], tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_demo_without_measurements_still_reports(make_run: MakeRun, tmp_path: Path) -> None:
    empty = RunFolder.create(make_run().path.parent, "empty")
    empty.save_config({"name": "empty"}, {})
    arms = [DemoArm("none", "no filter", (empty,)), DemoArm("filter", "filter", (empty,))]
    write_demo_report(arms, empty, tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    check_sound(page)
    assert "This time the expected contrast did not show." in page.text
    assert "no usable I(X;Z)" in page.text
    with pytest.raises(InputError, match="2 arms without"):
        write_demo_picture(arms, tmp_path / "demo.png")
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.parametrize("plan", [{"max_turns": 3, "dead": 0.0}, {"rollouts": False}, {"prompts": 2}, {"steps": 4}])
def test_run_reports_are_sound(make_run: MakeRun, tmp_path: Path, plan: dict[str, object]) -> None:
    run = make_run(**plan)
    write_run_report(run, tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    check_sound(page)
    assert "Success on unseen states" in page.text
    assert "Limits of the rules, which are judgements: collapse share 0.1" in page.text


def test_a_run_report_says_what_was_skipped(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(prompts=2, samples=2, rollouts=False)
    write_run_report(run, tmp_path / "report.html")
    text = read(tmp_path / "report.html").text
    assert "no interval" in text
    assert "no training rollouts were written (checkpoint.rollouts_every)" in text


def test_groups_that_cannot_be_judged_become_a_gap(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    run.rollouts_path(1, "eval").unlink(missing_ok=True)
    for step in (1, 10):
        run.rollouts_path(step).write_bytes(run.rollouts_path(0, "eval").read_bytes())
    config = run.read_config()
    run.save_config({**config, "select": {**config["select"], "statistic": "no such statistic"}}, {})
    write_run_report(run, tmp_path / "report.html")
    assert "reward variance by group, iteration 10" in read(tmp_path / "report.html").text


ESTIMATE = Estimate(
    "mi_sequence",
    0.21,
    "nats",
    0.1,
    0.3,
    num_prompts=8,
    num_samples=32,
    num_contexts=8,
    bound=2.08,
    chance=0.0,
    p_value=0.004,
)


def diagnose(**changes: object) -> Diagnosis:
    scope = {
        "mi_sequence": ESTIMATE,
        "conditional_entropy": skipped("conditional_entropy", "nats/token", "withheld: a critic scored"),
        "mi_upper": void("mi_upper", "nats", "a score is NaN"),
    }
    return replace(Diagnosis(estimates={"first_turn": scope}), **changes)


def test_a_diagnosis_shows_every_part_of_an_estimate(tmp_path: Path) -> None:
    write_report(diagnose(notes=("two broken lines",), coverage={"valid_share": 0.5}), tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    check_sound(page)
    for part in ("0.21", "[0.10, 0.30]", "2.08", "0.004", "ok", "skipped", "void", "two broken lines", "0.500"):
        assert part in page.text
    assert "withheld: a critic scored" in page.text
    assert "a score is NaN" in page.text
    assert "2 estimates could not be computed" in page.text
    assert "No problem found in what could be measured." in page.text


def test_findings_stand_worst_first_with_evidence_and_advice(tmp_path: Path) -> None:
    findings = (
        Finding("dead_signal", "info", "all failed"),
        Finding("template_collapse", "critical", "mi 0", since=12, advice="filter groups"),
        Finding("length_growth", "warning", "twice as long"),
    )
    diagnosis = replace(diagnose(findings=findings), thresholds={"collapse_share": 0.2, "window": 5})
    write_report(diagnosis, tmp_path / "report.html")
    text = read(tmp_path / "report.html").text
    assert "collapse share 0.2 ; window 5 ." in text
    assert text.index("Critical: template collapse.") < text.index("Warning: length growth.") < text.index("Info: dead")
    assert text.index("mi 0") < text.index("twice as long") < text.index("all failed")
    assert "since step 12" in text
    assert "filter groups" in text


def test_what_is_void_or_skipped_is_never_drawn(tmp_path: Path) -> None:
    broken = {step: {"first_turn": {"mi_sequence": void("mi_sequence", "nats", "NaN")}} for step in (0, 10)}
    write_report(diagnose(history=broken), tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    assert page.all("img") == []
    rows = [n for n, (tag, attributes) in enumerate(page.tags) if tag == "tr" and attributes.get("class") == "absent"]
    assert len(rows) == 2
    assert all("svg" not in {tag for tag, _ in page.tags[n : n + 12]} for n in rows)


def test_lower_bounds_are_drawn_but_have_no_regime(tmp_path: Path) -> None:
    bound = replace(ESTIMATE, status="critic_bound", reason="a critic scored")
    entropy = replace(bound, name="conditional_entropy", bound=None, chance=None)
    history = {step: {"first_turn": {"mi_sequence": bound, "conditional_entropy": entropy}} for step in (0, 10)}
    write_report(diagnose(history=history), tmp_path / "report.html")
    described = [str(image["alt"]) for image in read(tmp_path / "report.html").all("img")]
    assert any("lower bound" in text for text in described)
    assert not any("regime plane" in text for text in described)


def test_an_empty_diagnosis_claims_nothing(tmp_path: Path) -> None:
    write_report(Diagnosis(), tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    check_sound(page)
    assert "Nothing could be measured." in page.text


def test_a_history_of_regimes_is_drawn(tmp_path: Path) -> None:
    entropy = Estimate("conditional_entropy", 1.0, "nats/token", 0.9, 1.1)
    history = {step: {"first_turn": {"mi_sequence": ESTIMATE, "conditional_entropy": entropy}} for step in (0, 10)}
    write_report(diagnose(history=history), tmp_path / "report.html")
    page = read(tmp_path / "report.html")
    check_sound(page)
    assert len(page.all("img")) == 3


def test_nothing_is_written_when_a_report_fails(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    run.scores_path(0, "eval.first_turn").write_bytes(b"broken")
    with pytest.raises(ValueError, match="no cross scores"):
        write_run_report(run, tmp_path / "out" / "report.html")
    assert not (tmp_path / "out").exists()
