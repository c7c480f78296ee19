"""A job's document survives kitctl's YAML, Kubernetes' variable expansion and kittrain's parser."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kitctl.base import names
from kitctl.kinds import KINDS
from kitctl.render import objects as render
from kitctl.render.environment import SPEC_VERSION, TOO_OLD
from kitctl.spec.job_spec import JobSpec
from kitctl.spec.sections import Nccl, Policy, Snapshots
from kittrain.job import job_spec
from kittrain.job.env import NodeEnv, RankEnv, node_env, rank_env
from tests.kitctl.render.test_template_values import expanded
from tests.kitctl.rendered import env_in

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("$()<>&\"'\\\n"))
NUMBER = st.integers(1, 999_999_999)
HOSTILE = {"HOME": "/root", "KIT_POD": "a-pod", "A": '","job":"another'}  # the value that ``$(NAME)`` would expand to


def read(spec: JobSpec) -> tuple[NodeEnv, RankEnv]:
    """The settings that an agent and a rank read from a job that was rendered, applied and started."""
    objects = list(yaml.safe_load_all(render.to_yaml(render.manifests(spec))))
    variables = {name: value for name, value in env_in(objects).items() if isinstance(value, str)}
    environ = {name: expanded(text, HOSTILE) for name, text in variables.items()}
    return node_env(environ), rank_env(environ)


@example("$(HOME) $$(A) $", 1_000_000, 999_999_999)
@example("<&>\u2028 \"quoted\" \\ 'single'\n😀", 1, 1)
@settings(max_examples=50, deadline=None)
@given(TEXT, NUMBER, NUMBER)
def test_any_job_survives_a_round_trip(text: str, number: int, other: int) -> None:
    path = f"/a{''.join(letter for letter in text if letter.isprintable() and letter not in ':/')}"
    spec = JobSpec(
        name="job",
        nccl=Nccl(interface=text),
        virtual_ranks=number,
        snapshots=Snapshots(path=path, every_steps=number, keep_every=other, keep_best=f"max:{path}"),
        policy=Policy(max_restarts=other, grace_period=str(number), hang_timeout=str(other)),
    )
    node, rank = read(spec)
    assert (node.interface, node.log_dir) == (text or None, Path(path, "logs"))
    assert (rank.snapshot_dir, rank.snapshot_every, rank.snapshot_keep_every) == (Path(path), number, other)
    assert (rank.snapshot_keep_best, rank.virtual_ranks) == (f"max:{path}", number)
    assert (node.max_restarts, node.grace_seconds, node.hang_timeout) == (other, number, float(other))


def test_both_packages_define_the_same_format() -> None:
    assert job_spec.VERSION == SPEC_VERSION
    assert job_spec.VARIABLE == names.KIT_SPEC


def test_an_agent_older_than_the_document_reports_its_version() -> None:
    """Such an agent checks only this variable, against a list of kinds, before any other of kitctl's."""
    value = env_in(render.manifests(JobSpec(name="job")))[names.KIT_EXIT_CODES]
    assert value == TOO_OLD
    assert value not in KINDS
    assert not re.search(r"\$", value)
