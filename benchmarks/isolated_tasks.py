"""The application that `benchmarks.isolation` measures."""

from holdfast import App

app = App()


@app.task("bench.here")
async def here() -> None:
    pass


@app.task("bench.isolated", executor="process", timeout=60)
def isolated() -> None:
    pass


@app.task("bench.limited", executor="process", timeout=60, memory="1G")
def limited() -> None:
    pass
