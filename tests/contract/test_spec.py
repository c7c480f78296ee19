"""A job's document survives kitctl's YAML, Kubernetes' variable expansion and kittrain's parser."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitjob.document import selection
from kitjob.sections import Nccl, Policy, Snapshots
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
        policy=Policy(max_restarts=other, grace_period=f"{number}s", hang_timeout=f"{other}s"),
    )
    node, rank = read(spec)
    assert (node.job.nccl.interface, node.run.log_dir) == (text, f"{path}/logs")
    assert rank.snapshot_dir == Path(path)
    assert selection(rank.job) == selection(node.job) == selection(spec.in_namespace("default"))
