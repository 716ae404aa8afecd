"""For tests of the plugin: an app of each test's own."""

import pytest

from holdfast import App
from holdfast.testing import Sandbox


@pytest.fixture
def app(holdfast: Sandbox) -> App:
    return holdfast.use(App(name="shop"))
