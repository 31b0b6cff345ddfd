"""Reports in a real browser: hostile text stays text, nothing is loaded, and the page can be looked at."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tether.records import Rollouts, Turn
from tether.reports import DemoArm, write_demo_report, write_report, write_run_report
from tether.results import Diagnosis, Estimate, Finding, skipped
from tether.runs import RunFolder

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api")

ATTACKS = (
    "<script>alert('script')</script>",
    "</style><style>body{display:none}</style><img src=x onerror=alert('image')>",
    "</title></head><body onload=alert('body')><svg onload=alert('svg')>",
    '"><iframe src="https://example.com/frame"></iframe><a href="javascript:alert(1)">x</a>',
    "'; import('https://example.com/x.js'); {{ 7 * 7 }} {% raw %} ${7*7} \\u003cscript\\u003e",
    "]]></text><script xmlns='http://www.w3.org/2000/svg'>alert('cdata')</script> \x00\x1b[31m \u202e\u2066",
    "<meta http-equiv=refresh content='0;url=https://example.com/'><base href='https://example.com/'>",
    "<link rel=stylesheet href=https://example.com/a.css><object data=https://example.com/o></object>",
)
ATTACK = " ".join(ATTACKS)


@dataclass
class Watched:
    """A page and everything it did that a report must not do."""

    page: Any
    events: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=program, args=flags)
        yield running
        running.close()


def watch(browser: Any, path: Path, *, width: int = 1280, colours: str = "light") -> Watched:
    """Open a report without a network and note dialogs, requests, console messages and errors."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=colours, offline=True)
    page = context.new_page()
    watched = Watched(page)

    def on_dialog(dialog: Any) -> None:
        watched.events.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def on_request(request: Any) -> None:
        if not request.url.startswith("data:") and request.url != path.as_uri():
            watched.events.append(f"request {request.url}")

    page.on("dialog", on_dialog)
    page.on("request", on_request)
    page.on("console", lambda message: watched.events.append(f"console {message.text}"))
    page.on("pageerror", lambda error: watched.events.append(f"error {error}"))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    return watched


def check_harmless(watched: Watched) -> None:
    """Nothing happened, nothing of the text became markup, and the policy would stop it if it had."""
    page = watched.page
    assert watched.events == []
    assert page.evaluate("document.querySelectorAll('script, iframe, object, embed, link, base').length") == 0
    assert page.evaluate("document.styleSheets.length") == 1
    attributes = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert page.evaluate(f"{attributes}.filter(name => name.startsWith('on') || name === 'style')") == []
    broken = "[...document.images].filter(image => !image.complete || image.naturalWidth === 0).length"
    assert page.evaluate(broken) == 0
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    assert page.evaluate("window.ran") is None
    with page.expect_event("requestfailed") as blocked:
        page.evaluate("document.body.append(Object.assign(new Image(), {src: 'https://example.com/pixel.png'}))")
    assert blocked.value.failure == "csp"


def attack_run(run: RunFolder) -> None:
    """Put hostile text wherever a run folder holds text."""
    for step in (0, 10):
        path = run.rollouts_path(step, "eval")
        episodes = [
            replace(
                episode,
                episode_id=f"{episode.episode_id}{ATTACKS[0]}",
                turns=tuple(_attacked(turn) for turn in episode.turns or ()),
            )
            for episode in Rollouts.from_parquet(path).episodes
        ]
        Rollouts.from_episodes(episodes).to_parquet(path)
    run.append_finding(10, Finding(ATTACKS[1], "critical", ATTACK, since=1, advice=ATTACK))
    run.save_config({**run.read_config(), "model": ATTACK, ATTACKS[0]: ATTACK}, {ATTACKS[0]: ATTACK})


def _attacked(turn: Turn) -> Turn:
    return replace(turn, prompt=ATTACK, reasoning_text=ATTACK, action=ATTACK, observation=ATTACK)


def test_hostile_rollouts_cannot_act(browser: Any, make_run: Any, tmp_path: Path) -> None:
    run = make_run("<img src=x onerror=alert('name')>")
    attack_run(run)
    write_run_report(run, tmp_path / "report.html")
    watched = watch(browser, tmp_path / "report.html")
    assert watched.page.title() == "<img src=x onerror=alert('name')> – Tether"
    shown = watched.page.inner_text("body")
    assert "<script>alert('script')</script>" in shown
    assert "{{ 7 * 7 }}" in shown
    assert "⟨U+202E⟩" in shown
    check_harmless(watched)


def test_hostile_diagnosis_cannot_act(browser: Any, tmp_path: Path) -> None:
    mi = Estimate("mi_sequence", 1.0, "nats", 0.9, 1.1, bound=2.0, chance=0.0)
    entropy = replace(mi, name="conditional_entropy", unit=ATTACK, bound=None, chance=None)
    scope = {"mi_sequence": mi, "conditional_entropy": entropy, ATTACK: skipped(ATTACK, ATTACK, ATTACK)}
    diagnosis = Diagnosis(
        findings=(Finding(ATTACK, "warning", ATTACK, advice=ATTACK),),
        estimates={ATTACK: scope},
        history={step: {ATTACK: scope} for step in (0, 1)},
        coverage={ATTACK: ATTACK},
        notes=(ATTACK,),
    )
    write_report(diagnosis, tmp_path / "report.html")
    watched = watch(browser, tmp_path / "report.html")
    assert watched.page.evaluate("document.images.length") == 3
    check_harmless(watched)


@pytest.fixture(scope="module")
def demo_page(demo: tuple[list[DemoArm], RunFolder], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    write_demo_report([replace(arm, label=f"{arm.label} <b onclick=alert(1)>") for arm in demo[0]], demo[1], path)
    return path


def test_the_demo_report_opens_without_a_sound(browser: Any, demo_page: Path) -> None:
    watched = watch(browser, demo_page)
    assert watched.page.evaluate("document.images.length") > 15
    check_harmless(watched)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_demo_report_fits_every_screen(browser: Any, demo_page: Path, width: int, colours: str) -> None:
    page = watch(browser, demo_page, width=width, colours=colours).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(ground.removeprefix("rgb(").split(",")[0])
    assert red > 200 if colours == "light" else red < 60
    assert len(page.screenshot()) > 20_000


def test_pictures_follow_light_and_dark(browser: Any, demo_page: Path) -> None:
    shots = [
        watch(browser, demo_page, colours=c).page.locator("figure img").first.screenshot() for c in ("light", "dark")
    ]
    assert all(len(shot) > 2_000 for shot in shots)
    assert shots[0] != shots[1]


def test_the_demo_report_prints(browser: Any, demo_page: Path) -> None:
    page = watch(browser, demo_page, width=680).page
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 680  # A4 with margins
    assert len(page.pdf(format="A4")) > 50_000
