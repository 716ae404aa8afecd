"""The command line."""

from planted.bug import Bug

BUGS = [
    Bug(
        "a command that prints JSON ends with 0 although it failed",
        "cli/report.py",
        "        if self.exit_code:\n",
        "        if self.exit_code and not as_json:\n",
        "tests/cli/test_frame.py",
    ),
    Bug(
        "a command acts on many tasks without asking",
        "cli/frame.py",
        "    if not yes:\n",
        "    if yes:\n",
        "tests/cli/test_frame.py",
    ),
]
