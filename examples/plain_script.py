"""A plain script: ask for some work, wait for its result.

To run it:

    holdfast worker plain_script:app                     # in one terminal
    python plain_script.py "to be or not to be"          # in another
"""

import sys
from collections import Counter

from holdfast import App

app = App()  # DATABASE_URL, else an embedded PostgreSQL


@app.task("report.count_words", max_attempts=5)
def count_words(text: str, most: int = 3) -> list[tuple[str, int]]:
    return Counter(text.lower().split()).most_common(most)


if __name__ == "__main__":
    # The key makes it one task, however often the script is run with the same words.
    handle = count_words.using(key=sys.argv[1]).enqueue(sys.argv[1])
    print("asked for" if handle.created else "already asked for", handle.task_id)
    print(handle.result(timeout=60))
    app.close()
