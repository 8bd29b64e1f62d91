"""The report as one HTML page without references to other files, and as Markdown."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2
from markupsafe import Markup, escape

from cobalt.figures import Picture
from cobalt.statistics import Estimate
from cobalt.tables import Cell, Table, show
from studies.reports.examples import Example

_PAGE = """\
{%- macro text(table, column) %}{% if table.is_text(column) %} class="text"{% endif %}{% endmacro -%}
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
  h1 { margin-bottom: 0; } h2 { margin: 3rem 0 .6rem; border-bottom: 1px solid #888; }
  h3 { margin: 2rem 0 .3rem; font-size: 1.1rem; }
  .note { color: #555; margin: 0 0 .6rem; max-width: 60rem; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
  th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
  th { border-bottom: 2px solid #888; vertical-align: bottom; }
  th:first-child, td:first-child, .text { text-align: left; }
  td .interval { display: block; color: #777; font-size: 11px; white-space: nowrap; }
  .figures { display: flex; flex-wrap: wrap; gap: 1rem; }
  figure { margin: 0; flex: 0 1 570px; } figure.wide { flex-basis: 100%; } figure img { max-width: 100%; height: auto; }
  .case { display: grid; grid-template-columns: 1fr 3fr; gap: 0 1.5rem; border-bottom: 1px solid #ddd; }
  .case h4 { grid-column: 1 / -1; margin: .8rem 0 0; font-size: 1rem; } .case h5 { margin: .4rem 0 0; font-size: 12px; }
  pre { margin: .2rem 0 .6rem; font-size: 12px; overflow-x: auto; }
  footer { margin-top: 3rem; color: #777; font-size: 12px; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="note">{{ opening }}</p>
{%- for section in sections %}
<h2>{{ section.title }}</h2>
{%- if section.pictures %}
<div class="figures">
{%- for picture in section.pictures %}
<figure{% if picture.wide %} class="wide"{% endif %}>
<img alt="{{ picture.alt }}" src="data:image/png;base64,{{ picture.png | base64 }}">
</figure>
{%- endfor %}
</div>
{%- endif %}
{%- for table in section.tables %}
<section id="{{ table.key }}">
<h3>{{ table.title }}</h3>
<p class="note">{{ table.note }}</p>
<div class="scroll"><table>
<thead><tr>
{%- for name in table.columns %}<th{{ text(table, loop.index0) }}>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in table.rows %}
<tr>{% for cell in row %}<td{{ text(table, loop.index0) }}>{{ cell | cell }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody></table></div>
</section>
{%- endfor %}
{%- if section.examples %}
<div id="cases">
<h3>{{ cases_title }}</h3>
<p class="note">Taken in turn from each run and judge-free category. The wrong test is the one that the policy was shown
before; its new program satisfies it and every benign public test.</p>
{%- for example in section.examples %}
<article class="case">
<h4>{{ example.title }}</h4>
<div><p>{{ example.category }}</p><h5>Wrong test: input</h5><pre>{{ example.wrong_input }}</pre>
<h5>Output asked for</h5><pre>{{ example.wrong_output }}</pre></div>
<div><h5>What changed in the program</h5><pre>{{ example.patch }}</pre></div>
</article>
{%- endfor %}
</div>
{%- endif %}
{%- endfor %}
<footer>Files: {% for name, paths in files.items() %}{{ name }}: {{ paths | join(", ") }}. {% endfor %}</footer>
</body>
</html>
"""


CASES_TITLE = "Hacking cases side by side"


@dataclass(frozen=True)
class Section:
    """A part of the report, in the order of its fields' contents on the page: figures, tables, cases."""

    title: str
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    examples: Sequence[Example] = ()


def render_html(title: str, opening: str, sections: Sequence[Section], files: Mapping[str, Sequence[str]]) -> str:
    """One self-contained page; every text from outside is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["base64"] = lambda png: base64.b64encode(png).decode()
    environment.filters["cell"] = _html_cell
    template = environment.from_string(_PAGE)
    return template.render(title=title, opening=opening, sections=sections, files=files, cases_title=CASES_TITLE)


def _html_cell(cell: Cell) -> Markup:
    """A cell as ``show`` gives it, with an interval on a line of its own."""
    if not isinstance(cell, Estimate):
        return escape(show(cell))
    value, bracket, interval = show(cell).partition(" [")
    return Markup('{}<span class="interval">{}</span>').format(value, bracket.strip() + interval)


def render_markdown(title: str, opening: str, sections: Sequence[Section]) -> str:
    """The same; pictures are links to the PNG files beside it."""
    parts = [f"# {title}", opening]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += [f"![{picture.alt}]({picture.key}.png)" for picture in section.pictures]
        parts += [table.to_markdown_section(level=3) for table in section.tables]
        if section.examples:
            parts += [f"### {CASES_TITLE}", *map(_markdown_example, section.examples)]
    return "\n\n".join(parts) + "\n"


def _markdown_example(example: Example) -> str:
    wrong = f"Input:\n{example.wrong_input}\nOutput asked for:\n{example.wrong_output}"
    return f"#### {example.title}\n\n{example.category}\n\n{_fenced(wrong)}\n\n{_fenced(example.patch, 'diff')}"


def _fenced(text: str, language: str = "") -> str:
    """Indentation-free code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"
