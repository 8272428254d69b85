"""Markdown that reads well in a terminal too: tables, figures, names.

Guarantee: pure. A caller's names cannot break a table or reach a terminal's controls.
"""

import re
from collections.abc import Sequence

from services.contract.reports.parts import Interval, Proportion

NOTHING = "–"
LONGEST_NAME = 40
# What Markdown acts on, entities and mentions among it, and what makes a link of a bare address.
_ACTIVE = re.compile(r"[\\|`*_\[\]<>#&~@]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    rule = [":" + "-" * (widths[0] - 1 or 1), *("-" * (width - 1 or 1) + ":" for width in widths[1:])]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(head), line(rule), *map(line, rows)])


def counted(proportion: Proportion) -> tuple[str, str, str]:
    """Count, rate and interval, each for a cell of its own."""
    return f"{proportion.count} of {proportion.n}", percent(proportion.rate), interval(proportion.wilson)


def brief(proportion: Proportion) -> str:
    """Count and rate in one cell."""
    return f"{proportion.count} of {proportion.n} ({percent(proportion.rate)})"


def whole(proportion: Proportion) -> str:
    """Rate, count and interval in a sentence."""
    count, rate, ends = counted(proportion)
    return f"{rate} ({count}, 95 % {ends})"


def percent(rate: float | None) -> str:
    """A rate in per cent."""
    return NOTHING if rate is None else f"{rate:.1%}".replace("%", " %")


def interval(ends: Interval | None) -> str:
    """An interval of a rate, in per cent."""
    return NOTHING if ends is None else f"{100 * ends.low:.1f} to {100 * ends.high:.1f}"


def number(value: float | None) -> str:
    """A figure with two decimals."""
    return NOTHING if value is None else f"{value:.2f}"


def span(ends: Interval | None) -> str:
    """An interval of such a figure."""
    return NOTHING if ends is None else f"{ends.low:.2f} to {ends.high:.2f}"


def plain(text: str) -> str:
    """A caller's name on one line, cut, and with nothing in it that Markdown or a terminal would act on.

    One that shows nothing stands in quotation marks.
    """
    line = "".join(character if character.isprintable() else " " for character in text)
    cut = line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…"
    return _ACTIVE.sub(r"\\\g<0>", cut) if cut.strip() else f'"{cut}"'
