"""Tables without lines: they fit a terminal without losing what matters, and in a pipe nothing is cut."""

from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from services.cli.escapes import printable
from services.cli.output import out, write

_GAP: Final = "  "
_SQUEEZED_CELLS: Final = 8
"""As many cells of the squeezed column stay on a narrow terminal."""
_LAST_CELLS: Final = 14
"""What the last column gets before the squeezed one gets more than its least."""


class Listing:
    """Rows under a header. On a terminal that is too narrow, the column `squeeze` and the last one are cut, never
    another: ids and states are there to be copied and read."""

    def __init__(self, *columns: str, squeeze: str | None = None) -> None:
        self._columns = columns
        self._squeeze = None if squeeze is None else columns.index(squeeze)
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """One row; plain text is made printable."""
        self._rows.append([cell if isinstance(cell, Text) else Text(printable(cell)) for cell in cells])

    def print(self) -> None:
        """Print the table: cut to the terminal's width, or whole where the output is piped."""
        header = [Text(name, "bold") for name in self._columns]
        lines = [header, *self._rows]
        widths = [max(cell_len(row[at].plain) for row in lines) for at in range(len(self._columns))]
        if out.is_terminal:
            widths = self._fitted(widths, out.width)
            for row in lines:
                out.print(Text(_GAP).join(_cell(row[at], width) for at, width in enumerate(widths)))
        else:
            for row in lines:
                padded = (set_cell_size(row[at].plain, width) for at, width in enumerate(widths))
                write(_GAP.join(padded).rstrip() + "\n")

    def _fitted(self, widths: list[int], terminal: int) -> list[int]:
        last = len(widths) - 1
        cut = {last} if self._squeeze is None else {last, self._squeeze}
        spare = terminal - sum(width for at, width in enumerate(widths) if at not in cut) - len(_GAP) * last
        fitted = list(widths)
        if self._squeeze is not None:
            others = min(widths[last], max(_LAST_CELLS, spare * 2 // 3))
            fitted[self._squeeze] = min(widths[self._squeeze], max(_SQUEEZED_CELLS, spare - others))
            spare -= fitted[self._squeeze]
        fitted[last] = max(min(widths[last], spare), 1)
        return fitted


def _cell(text: Text, width: int) -> Text:
    cut = text.copy()
    cut.truncate(width, overflow="ellipsis", pad=True)
    return cut
