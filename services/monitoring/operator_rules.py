# ruff: noqa: INP001 - a script
"""Write the rules as the Prometheus operator takes them; a script without arguments.

Prometheus reads plain rule files and the operator an object that holds the same groups; neither
reads the other's, and a test keeps the copy equal.
"""

from __future__ import annotations

from pathlib import Path

import yaml

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "k8s/overlays/prometheus-operator/rules.yaml"
_HEAD = """\
# Written by services/monitoring/operator_rules.py from services/monitoring/rules.
# yamllint disable rule:line-length
"""


class _Indented(yaml.SafeDumper):
    """Indents lists below their key, as the other files do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Go one level in."""
        super().increase_indent(flow, False)


def rendered() -> str:
    """Return the file's text."""
    groups = []
    for path in sorted((HERE / "rules").glob("*.yml"), reverse=True):  # records first
        groups += yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "verso", "labels": {"app.kubernetes.io/name": "verso-rules"}},
        "spec": {"groups": groups},
    }
    return _HEAD + yaml.dump(rule, Dumper=_Indented, sort_keys=False, width=100)


if __name__ == "__main__":
    TARGET.write_text(rendered(), encoding="utf-8")
