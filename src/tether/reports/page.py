"""From a template to one file that works offline: styles inside, pictures inside, no script at all.

Everything that a template prints is escaped, and the page's content-security policy lets nothing run or load: no
script, no network, only the style sheet with the stated hash and pictures that are part of the page.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tether.files import atomic_file
from tether.reports import words
from tether.reports.compare import reads_as
from tether.reports.gauge import gauge
from tether.reports.palette import style_rules

TEMPLATES = "templates"


def write_page(path: str | Path, template: str, **content: Any) -> None:
    """Render a template and write it; the file appears when it is complete."""
    style = style_sheet()
    page = (
        _environment()
        .get_template(template)
        .render(
            **content,
            style=Markup(style),  # noqa: S704 - our own file, not the reader's data
            policy=content_security_policy(style),
        )
    )
    with atomic_file(path) as file:
        file.write(page.encode("utf-8", errors="replace"))


def style_sheet() -> str:
    """Return all styles of a page."""
    sheet = files("tether.reports").joinpath(TEMPLATES, "style.css").read_text(encoding="utf-8")
    return style_rules() + "\n" + sheet


def content_security_policy(style: str) -> str:
    """Return the policy of a page with this style sheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tether.reports", TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "counted": words.counted,
        "interval": words.interval_of,
        "label": words.label,
        "number": words.number,
        "reads_as": reads_as,
        "share": words.share,
        "value": words.value_of,
        "visible": words.visible,
    }
    environment.globals |= {"decimals_of": words.decimals_of, "gauge": gauge, "status_words": words.STATUS_WORDS}
    return environment
