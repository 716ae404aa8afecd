"""The tables of docs/reference/codes.md, from the words of each code.

Run it after a change of the words; a test compares the page with them.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from holdfast._words.explanation import EXPLANATION
from holdfast._words.health import HEALTH
from holdfast._words.limits import CAUSES
from holdfast._words.template import Words

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "codes.md"
TABLES = {"health": HEALTH, "causes": CAUSES, "explain": EXPLANATION}
_BLOCK = r"(?<=<!-- codes of {name} -->\n\n).*?(?=<!-- end of codes -->)"


def table(words: Mapping[str, Words]) -> str:
    rows = [
        f"| `{code}` | {_shown(one.message)} | {_shown(one.advice or '')} |" for code, one in words.items()
    ]
    return "\n".join(["| code | message | advice |", "|---|---|---|", *rows, "", ""])


def _shown(template: str) -> str:
    """Facts in braces; of singular and plural, the plural."""
    counted = re.sub(
        r"\{(\w+):[^{}|]*\|([^{}]*)\}", lambda found: found[2].replace("#", f"{{{found[1]}}}"), template
    )
    plain = re.sub(r"\{(\w+):\w+\}", r"{\1}", counted)
    return re.sub(r"[<>|]", lambda found: f"&#{ord(found[0])};", plain)


def filled(page: str) -> str:
    for name, words in TABLES.items():
        block = re.search(_BLOCK.format(name=name), page, flags=re.DOTALL)
        assert block, name  # noqa: S101 - a mark of the page is missing
        page = page[: block.start()] + table(words) + page[block.end() :]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
