"""docs/reference/errors.md names every kind of error that an attempt can end with."""

import re

from support.documents import REFERENCE, ROOT, rows, sections

# Written as a kind where it is reported, judged or kept.
_PATTERNS = [
    r'"kind": "(\w+)"',
    r'error_of\("(\w+)"',
    r'(?:failed|retry|_failed)\(\s*(?:job(?:\.attempt)?, )?"(\w+)"',
    r'return "(\w+)", f?"',
    r'\["kind"\] = "(\w+)"',
    r'^        "(\w+_(?:limit|malformed|died)|timeout)": f?"',
    r'"\w+": \("(killed_on_\w+)"',
]


def _in_code() -> set[str]:
    files = [*(ROOT / "src/holdfast/_worker").glob("*.py"), *(ROOT / "src/holdfast/isolation").glob("*.py")]
    text = "\n".join(path.read_text() for path in [*files, ROOT / "src/holdfast/_serialization/failure.py"])
    return {kind for pattern in _PATTERNS for kind in re.findall(pattern, text, re.MULTILINE)}


def test_every_kind_is_described_and_no_other() -> None:
    described = {
        cells[0] for cells in rows(sections(REFERENCE / "errors.md")["Kinds of attempts that went wrong"])
    }
    assert _in_code() - described == set()
    text = "\n".join(
        path.read_text() for path in (ROOT / "src/holdfast").rglob("*.*") if path.suffix in (".py", ".sql")
    )
    assert {kind for kind in described if f'"{kind}"' not in text and f"'{kind}'" not in text} == set()
