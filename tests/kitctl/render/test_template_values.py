from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kitctl.base import names
from kitctl.cli.main import main
from kitctl.render import objects as render
from kitctl.render.template_values import resources
from kitctl.spec.job_spec import JobSpec
from kitjob.fields import Kind
from kitjob.sections import Nccl, Policy, Resources
from tests import fast_yaml
from tests.kitctl.rendered import env_of, job_of


@pytest.mark.parametrize("kind", ["IndexedJob", "PyTorchJob"])
def test_a_users_variable_overrides_and_none_is_set_twice(kind: Kind) -> None:
    spec = JobSpec(name="job", kind=kind, env={"NCCL_DEBUG": "TRACE", "PYTHONUNBUFFERED": "0"}, nccl=Nccl(debug="INFO"))
    assert (env_of(spec)["NCCL_DEBUG"], env_of(spec)["PYTHONUNBUFFERED"]) == ("TRACE", "0")


def test_the_operator_sets_torchruns_variables_itself() -> None:
    spec = JobSpec(name="job", kind="PyTorchJob", nodes="2:4", procs_per_node=3)
    ours = {name for name in env_of(spec) if name.startswith("PET_")}
    assert ours == {"PET_LOCAL_ADDR"}
    body = job_of(spec)["spec"]
    assert body["nprocPerNode"] == "3"
    assert (body["elasticPolicy"]["minReplicas"], body["elasticPolicy"]["maxReplicas"]) == (2, 4)
    assert {"key": "join_timeout", "value": "900"} in body["elasticPolicy"]["rdzvConf"]


def test_secrets_are_references_and_override_the_kits_variables() -> None:
    spec = JobSpec(name="job", secrets={"TOKEN": "hub/token", "NCCL_DEBUG": "net/level"}, nccl=Nccl(debug="INFO"))
    assert env_of(spec)["TOKEN"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert env_of(spec)["NCCL_DEBUG"] == {"secretKeyRef": {"name": "net", "key": "level"}}


def expanded(text: str, variables: dict[str, str]) -> str:
    """Kubernetes' expansion of a command, an argument or a variable: ``$$`` is ``$``, ``$(NAME)`` is looked up."""
    return re.sub(
        r"\$(\$|\(([^)]*)\))",
        lambda match: "$" if match[1] == "$" else variables.get(match[2], match[0]),
        text,
    )


@example(["$(V1) and $(HOME)", "$$", "costs $5", "$$$(V0)", "$"])
@settings(max_examples=30)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("$()")), max_size=4))
def test_any_text_reaches_the_process_unchanged(texts: list[str]) -> None:
    env = {f"V{number}": text for number, text in enumerate(texts)}
    spec = JobSpec(name="job", args=tuple(texts), env=env)
    (job,) = fast_yaml.load_all(render.to_yaml(render.manifests(spec)[-1:]))
    container = job["spec"]["template"]["spec"]["containers"][0]
    got = [expanded(text, env) for text in container["args"]]
    assert got == [*names.PYTHON, names.AGENT, "--", *spec.command, *texts]
    values = {variable["name"]: expanded(variable.get("value", ""), env) for variable in container["env"]}
    assert {name: values[name] for name in env} == env


@pytest.mark.parametrize(
    ("policy", "deadline", "ttl"),
    [
        (Policy(), None, None),
        (Policy(ttl="7d"), None, 604800),
        (Policy(deadline="12h"), 43200, None),
        (Policy(deadline="90s", ttl="0"), 90, 0),
    ],
)
@pytest.mark.parametrize("kind", ["IndexedJob", "PyTorchJob"])
def test_a_deadline_and_a_time_to_live_are_independent(
    policy: Policy, deadline: int | None, ttl: int | None, kind: Kind
) -> None:
    spec = job_of(JobSpec(name="job", kind=kind, policy=policy))["spec"]
    found = spec if kind == "IndexedJob" else spec["runPolicy"]
    assert (found.get("activeDeadlineSeconds"), found.get("ttlSecondsAfterFinished")) == (deadline, ttl)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Resources(), {"requests": {"cpu": "100m", "memory": "512Mi"}}),
        (Resources(requests={"memory": "8Gi"}), {"requests": {"cpu": "100m", "memory": "8Gi"}}),
        # A limit that is lower than the default request; Kubernetes uses the limit as the request.
        (Resources(limits={"memory": "256Mi"}), {"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}}),
        (Resources(limits={"cpu": "50m", "memory": "1Mi"}), {"limits": {"cpu": "50m", "memory": "1Mi"}}),
        (
            Resources(requests={"memory": "1Gi"}, limits={"memory": "1Gi", "cpu": "2"}),
            {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi", "cpu": "2"}},
        ),
    ],
)
def test_a_pod_without_resources_gets_default_requests(given: Resources, expected: dict[str, dict[str, str]]) -> None:
    assert resources(JobSpec(name="job", resources=given)) == expected


AMOUNTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(["1m", "100m", "1", "4"]), "memory": st.sampled_from(["1Mi", "512Mi", "1T"])}
)


@given(AMOUNTS, AMOUNTS)
def test_default_requests_never_exceed_limits(requests: dict[str, str], limits: dict[str, str]) -> None:
    found = resources(JobSpec(name="job", resources=Resources(requests=requests, limits=limits)))
    for name in found.get("requests", {}).keys() & limits.keys():
        assert found["requests"][name] == requests[name], "only the user's own request may be higher"
    promised = {**limits, **found.get("requests", {})}  # Kubernetes' default for a limit without a request
    assert promised.keys() >= {"cpu", "memory"}, "requests are never empty"
    if limits.keys() == {"cpu", "memory"} and all(limits[name] == requests[name] for name in requests):
        assert promised == limits, "the class that is evicted last"


def test_the_default_is_shown_by_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "--dry-run=client", "--nodes", "2", "--name", "run"]) == 0
    assert 'requests:\n            cpu: "100m"\n            memory: "512Mi"\n' in capsys.readouterr().out
