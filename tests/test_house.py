"""The house as a whole: what an import costs, and that what the pages promise exists."""

import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tether.diagnostics.input_dependence import ESTIMATES
from tether.diagnostics.thresholds import Thresholds

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
HEAVY = ("torch", "transformers", "accelerate")


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def commands(program):
    """Every ``program word`` that stands alone on a line of a fenced block, or in backticks, in any page."""
    pattern = re.compile(rf"(?:^|`){program} ([a-z][a-z-]*)", flags=re.MULTILINE)
    return sorted({word for page in PAGES for word in pattern.findall(page.read_text())})


def torch_free_rooms():
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "no-torch")
    return contract["source_modules"]


@pytest.mark.parametrize("module", ["tether", "tether.cli"])
def test_importing_the_package_and_its_command_line_loads_no_model_library(module):
    done = python(f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_rooms_below_the_models_load_no_model_library():
    imports = "; ".join(f"import {room}" for room in torch_free_rooms())
    done = python(f"{imports}; import sys; print([name for name in {HEAVY} if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_every_direct_dependency_has_a_tested_version():
    constraints = (ROOT / "constraints.txt").read_text()
    pinned = {name.lower() for name in re.findall(r"^([\w.-]+)==", constraints, flags=re.MULTILINE)}
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(requirement for extra in extras for requirement in extra)]
    names = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in wanted} - {"tether"}
    assert names <= pinned, sorted(names - pinned)


def test_every_make_target_in_the_pages_exists():
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    named = commands("make")
    assert {"demo", "test"} <= set(named) <= set(targets)


@pytest.mark.parametrize("verb", commands("tether"))
def test_every_verb_in_the_pages_exists(verb):
    done = python("import sys; from tether.cli import main; sys.argv[0] = 'tether'; main()", verb, "--help")
    assert done.returncode == 0, done.stderr
    assert verb in done.stdout


def test_the_python_of_the_readme_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "kept 1 of 2" in done.stdout


def test_every_file_that_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_no_page_of_the_documentation_is_left_out_of_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} == listed


def test_every_finding_has_a_page_and_every_page_a_finding():
    pages = {page.stem for page in (ROOT / "docs" / "findings").glob("*.md")} - {"index"}
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "tether").rglob("*.py"))
    assert set(re.findall(r'Finding\(\s*"(\w+)"', source)) <= pages
    assert [page for page in sorted(pages) if f'"{page}"' not in source] == []


def test_the_pages_of_the_findings_state_the_thresholds_in_force():
    pages = [page.read_text() for page in (ROOT / "docs" / "findings").glob("*.md")]
    for name, value in dataclasses.asdict(Thresholds()).items():
        if name != "window":
            assert any(f"`{name}`" in page and f"{value:g}" in page for page in pages), name
    assert f"the last {Thresholds().window} steps" in (ROOT / "docs" / "findings" / "index.md").read_text()


def test_every_estimate_is_described():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "metrics").glob("*.md"))
    assert [name for name in ESTIMATES if f"`{name.split('@')[0]}`" not in pages] == []
