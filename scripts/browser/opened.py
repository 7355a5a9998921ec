"""A page in which nothing may go wrong, and the screens on which pages are looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

_PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}
SCREENS: list[tuple[str, dict[str, Any]]] = [
    ("light", {"color_scheme": "light"}),
    ("dark", {"color_scheme": "dark"}),
    ("phone", {"color_scheme": "light", **_PHONE}),
    ("phone-dark", {"color_scheme": "dark", **_PHONE}),
]
TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@contextmanager
def page(browser: Browser, url: str, **settings: Any) -> Iterator[Page]:
    """Opens it; at the end nothing went wrong in it, and it asked nobody but its own server or file."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    opened = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    # A refused token is a failed request to the console; the test that gives a wrong one expects that.
    opened.on(
        "console",
        lambda said: wrong.append(said.text) if said.type == "error" and "401" not in said.text else None,
    )
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(url)
    yield opened
    assert wrong == []
    origin = re.match(r"https?://[^/]+/|file://.*", url)
    assert origin is not None
    assert [one for one in asked if not one.startswith((origin[0], "data:"))] == []
    context.close()
