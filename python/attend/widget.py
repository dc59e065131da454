"""A page as a widget (Widget), for notebooks that should keep no copy of the page, or show another page in its place."""

import numbers
import pathlib
import re
from typing import Any

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError("attend.widget needs anywidget: pip install 'attend-cpu[widget]'") from error

from ._core import Page, Trace
from ._recording import Recording

__all__ = ["Widget"]

_LENGTH = re.compile(r"(\d{1,5}(?:\.\d{1,5})?)(px|em|rem|ch|ex|vh|vw|cm|mm|in|pt|pc)", re.ASCII)


class _Length(traitlets.TraitType[str, Any]):
    """A CSS length, or pixels, which it makes one of."""

    def validate(self, obj: Any, value: Any) -> str:
        return _length(value)


class Widget(anywidget.AnyWidget):
    """An attend.Page, Recording or Trace, shown at the end of a notebook's cell by its widgets.

    The page is the one that the object shows by itself, in a frame too. But it stays in the kernel: the notebook's file has no copy of
    it, and shows it only while the kernel runs. `page` may be set; every place that shows the widget then shows the new page. height
    is a CSS length or a number of pixels.

    >>> import attend.widget
    >>> widget = attend.widget.Widget(attend.explain("the cat sat"), height="30em")
    >>> widget.page = attend.explain("the dog sat")
    >>> widget.height
    '30em'
    """

    _esm = pathlib.Path(__file__).with_name("_widget.js").read_text()
    _html = traitlets.Bytes().tag(sync=True)
    _title = traitlets.Unicode().tag(sync=True)
    height = _Length("50em").tag(sync=True)

    def __init__(self, page: Page | Recording | Trace, height: str | float = "50em") -> None:
        html, title = _html_and_title(page)
        super().__init__(_html=html, _title=title, height=_length(height))
        self._page = page

    @property
    def page(self) -> Page | Recording | Trace:
        """What is shown."""
        return self._page

    @page.setter
    def page(self, page: Page | Recording | Trace) -> None:
        html, title = _html_and_title(page)
        with self.hold_sync():  # one message
            self._html, self._title = html, title
        self._page = page


def _html_and_title(page: Any) -> tuple[bytes, str]:
    if isinstance(page, Trace):
        return page.to_html().encode(), "Attention, step by step"
    if isinstance(page, Recording):
        page = page.show()
    if isinstance(page, Page):
        return page.html.encode(), "Attention, head by head"
    raise TypeError(f"Widget: page: expected an attend.Page, Recording or Trace, got {type(page).__name__}")


def _length(height: Any) -> str:
    text = height
    if isinstance(height, numbers.Real) and not isinstance(height, bool):
        try:
            text = f"{float(height):.5g}px"
        except OverflowError:
            text = ""
    if not isinstance(text, str):
        raise TypeError(f"Widget: height: expected a CSS length such as '50em' or a number of pixels, got {type(height).__name__}")
    found = _LENGTH.fullmatch(text)
    if not found or float(found[1]) == 0:
        raise ValueError(f"Widget: height: expected a CSS length such as '50em' or a number of pixels above 0, got {height!r:.100}")
    return str(text)
