from pathlib import Path

import pytest

from holdfast.errors import InvalidArgument
from holdfast.messages import Template
from holdfast.messages.templates import load_template

EVIL = '<script>alert("x")</script> & Co'


def test_html_is_escaped_and_text_is_not() -> None:
    template = Template("For {{ name }}", "Dear {{ name }}", "<p>Dear {{ name }}</p>")
    made = template.render({"name": EVIL})
    assert made.subject == f"For {EVIL}"
    assert made.text == f"Dear {EVIL}"
    assert made.html == "<p>Dear &lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp; Co</p>"


def test_a_value_that_is_missing_is_refused() -> None:
    for part in ("subject", "text", "html"):
        with pytest.raises(InvalidArgument, match=f"the {part} of the template .*'code' is undefined"):
            Template(**{part: "Your code is {{ code }}"}).render({"name": "Ada"})


def test_a_template_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="the text of the template cannot be rendered"):
        Template(text="{% if %}").render()


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ().__class__.__bases__[0].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ given.append(1) }}",
        "{{ given.__class__ }}",
        "{{ function.__globals__ }}",
        "{{ '{0.__class__}'.format(given) }}",
    ],
)
def test_a_template_runs_no_code(source: str) -> None:
    given = [7]
    with pytest.raises(InvalidArgument, match="cannot be rendered"):
        Template(text=source).render({"given": given, "function": test_a_template_runs_no_code})
    assert given == [7]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "welcome.subject.txt").write_text("Welcome, {{ name }}\n")
    (tmp_path / "mail" / "welcome.txt").write_text("Hello {{ name }},\n\nwelcome.\n")
    (tmp_path / "mail" / "welcome.html").write_text(
        "{% extends 'base.html' %}{% block body %}<p>{{ name }}</p>{% endblock %}"
    )
    (tmp_path / "base.html").write_text("<html>{% block body %}{% endblock %}</html>")
    (tmp_path / "only.txt").write_text("Code {{ code }}")
    return tmp_path


def test_templates_are_read_from_files(directory: Path) -> None:
    made = load_template("mail/welcome", directory).render({"name": "<Ada>"}, directory=directory)
    assert made.subject == "Welcome, <Ada>"
    assert made.text == "Hello <Ada>,\n\nwelcome."
    assert made.html == "<html><p>&lt;Ada&gt;</p></html>"


def test_a_template_may_be_text_alone(directory: Path) -> None:
    made = load_template("only", directory).render({"code": 7})
    assert (made.subject, made.text, made.html) == (None, "Code 7", None)


def test_a_template_that_is_not_there_is_refused_with_the_place(directory: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"template 'none' is not in {directory}"):
        load_template("none", directory)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "mail/../only", "only.txt", "", "a\0b", "mail//welcome"]
)
def test_a_name_leads_nowhere_else(directory: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a valid template name"):
        load_template(name, directory)
