"""The page's document: page.html with its style and its script put in, and the policy that allows them and no more.

`document()` makes it once, when the server starts. The files are beside this module, are written by hand and need no
build step; the scripts are put in as one.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources

from agent.observe.drawing.look import COLOURS, themed_sheet

SCRIPTS = ("lib.js", "picture.js", "tables.js", "page.js")
STYLE, SCRIPT = "/*style*/", "/*script*/"
"""Where they go in page.html."""


@dataclass(frozen=True, slots=True)
class Document:
    """What `/` answers.

    Attributes:
        body: the HTML.
        policy: the Content-Security-Policy: this style, this script, this origin, nothing else; no text becomes
            markup (Trusted Types), no frame may hold the page.
    """

    body: bytes
    policy: str


def document() -> Document:
    """Put it together."""
    held = "".join(f".k{number}{{background:{fill};color:{ink}}}" for number, (fill, ink) in enumerate(COLOURS))
    style = _file("page.css") + themed_sheet() + held
    script = "".join(map(_file, SCRIPTS))
    for text, end in ((style, "</style"), (script, "</script")):
        if end in text.lower():
            raise ValueError(f"{end} ends the element early")
    html = _file("page.html").replace(STYLE, style).replace(SCRIPT, script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return Document(html.encode(), policy)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
