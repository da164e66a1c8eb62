"""Write docs/CAUSES.md from the docstrings of the causes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from textwrap import dedent

from _breakdown.analysis.causes import NAMES, Rule, rule_named

INTRODUCTION = """\
# Causes

The mode `bottleneck` looks for these patterns in the step's program, in the trace and on other
devices. `--explain CAUSE` prints a section of this page.
`python -m _breakdown.analysis.causes >docs/CAUSES.md` writes the page from the docstrings of the
files in `_breakdown/analysis/causes/`.

The line of a cause is the line to change; if it is in an installed package, the sentence also names
the line that calls it. The confidence is `seen` if the pattern is unambiguous, and `likely` if
there can be another explanation. Gains are estimates, and overlap, so do not add them up. Causes
that gain less than 0.5 % of the step or period are omitted.

The time that a step saves without a collective is not the collective's exposed time: the next
collective may wait instead, or other collectives get the links earlier. So the tool simulates the
program's ops: the core runs them in the order of the trace, and collectives of at least 1 MiB use
the links one after another. The speed of the links is chosen so that the simulated step takes as
long as the step in the trace.
"""


def causes_page() -> str:
    rules = [rule_named(name) for name in sorted(NAMES)]
    contents = [f"- [`{rule.name}`](#{rule.name}): {rule.summary}" for rule in rules]
    sections = ["\n\n".join(section_of(rule)) for rule in rules]
    return "\n\n".join([unwrapped(INTRODUCTION), "\n".join(contents), *sections]) + "\n"


def section_of(rule: Rule) -> Iterator[str]:
    yield f"## {rule.name}"
    yield f"{rule.summary} The rule needs {rule.needs}."
    for heading, text in rule.sections.items():
        if heading == "Example":
            yield f"**{heading}**"
            yield f"```python\n{dedent(text)}\n```"
        else:
            yield f"**{heading}.** {unwrapped(text)}"


def unwrapped(text: str) -> str:
    """Join the lines of each paragraph and of each item of a list."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(
        "\n- ".join(" ".join(item.split()) for item in paragraph.split("\n- "))
        for paragraph in paragraphs
    )


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    print(causes_page(), end="")
