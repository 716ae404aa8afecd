"""Tasks of a shop. `shop.tasks:app` is what the worker and the HTTP server load."""

from holdfast import App

app = App(name="shop")


@app.task("shop.greet")
def greet(name: str) -> str:
    return f"Hello, {name}."
