from __future__ import annotations

import json

import yaml

import kitctl
from kitctl.output.schema import json_schema
from kitctl.spec.job_spec import JobSpec
from kitjob import typed
from kitjob.record import Record, camel
from tests.charts.helm import CHART, KUBERNETES, helm, rendered
from tools.chart_values import CHART_ONLY

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["$defs"]


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == kitctl.__version__


def test_the_keys_are_those_of_a_job_file_and_a_few_of_the_charts_own() -> None:
    job = json_schema()["$defs"]
    assert SCHEMA.keys() == job.keys()
    for name, section in job.items():
        more = {*CHART_ONLY, "global"} if name == "JobSpec" else set()
        assert SCHEMA[name]["properties"].keys() == section["properties"].keys() | more
        assert SCHEMA[name]["additionalProperties"] is False


def test_the_defaults_are_those_of_the_spec() -> None:
    own = {key: field["default"] for key, field in CHART_ONLY.items()}
    assert everything(JobSpec()) | {"name": ""} | own == VALUES


def everything(section: Record) -> dict[str, object]:
    """A section with its defaults, by the keys of a job file."""
    values = {camel(name): getattr(section, name) for name in section.__fields__}
    return {
        key: everything(value) if isinstance(value, Record) else typed.encode(value) for key, value in values.items()
    }


def test_an_umbrella_chart_may_set_global_values() -> None:
    assert rendered("--set", "global.registry=example")


def test_lint_accepts_the_chart_and_no_mistyped_key() -> None:
    lint = ("lint", "--strict", "--kube-version", KUBERNETES, str(CHART))
    assert helm(*lint).returncode == 0
    done = helm(*lint, "--set", "polcy.ttl=1h")
    assert done.returncode != 0
    assert "'polcy' not allowed" in done.stdout + done.stderr
