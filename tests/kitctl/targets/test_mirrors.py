"""A bucket that cannot be used is told before anything is created, by a look at a real S3 server."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from kitctl.base.errors import UsageError
from kitctl.code.code_tree import NO_SOURCES, Sources
from kitctl.code.workdir.collecting import collect
from kitctl.spec.job_spec import JobSpec
from kitctl.targets import Submission, mirrors
from kitctl.targets.local import local_checks
from kitjob.sections import Snapshots
from kittrain.rank.snapshots.mirror.index import Owner
from kittrain.rank.snapshots.mirror.store import Store
from kittrain.rank.snapshots.mirror.writing import Mirror
from tests.s3 import S3, SECRET, serving
from tests.s3_proxy import Fault, Rule, Seen, in_front_of

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        server.bucket("snapshots")
        yield server


@pytest.fixture
def url() -> str:
    return f"s3://snapshots/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def reached(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server, by this shell's environment."""
    for name, value in s3.environ().items():
        monkeypatch.setenv(name, value)


def job(url: str, *, resume: bool = False, env: Mapping[str, str] = MappingProxyType({})) -> JobSpec:
    return JobSpec(name="job", snapshots=Snapshots(mirror=url), resume=resume, env=dict(env))


def looked(spec: JobSpec, state: Path) -> tuple[str, ...]:
    """What submit on this machine warns of."""
    return local_checks.require_mirror(Submission(spec=spec, sources=NO_SOURCES, folder=state), state)


def taken(url: str, s3: S3) -> None:
    """Another run has that prefix."""
    Mirror(
        Store(url, s3.environ()), Owner(run="r1", job="digits", claim="c", host="h", since=1.0), resume=False
    ).claim()


@pytest.mark.usefixtures("reached")
def test_a_bucket_that_can_be_used_is_left_as_it_was(s3: S3, url: str, tmp_path: Path) -> None:
    assert looked(job(url), tmp_path) == ()
    assert Store(url, s3.environ()).list("") == []
    assert not [*tmp_path.iterdir()], "nothing is created here either"


@pytest.mark.usefixtures("reached")
@pytest.mark.parametrize(
    ("env", "where", "what"),
    [
        ({}, "s3://nowhere/run", "the bucket does not exist"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "", "the store does not know the access key"),
    ],
)
def test_what_only_a_person_can_mend_is_refused_with_the_fix(
    url: str, tmp_path: Path, env: dict[str, str], where: str, what: str
) -> None:
    with pytest.raises(UsageError, match=rf"^snapshots\.mirror: {where or url}: {what}") as refusal:
        looked(job(where or url, env=env), tmp_path)
    assert refusal.value.fix
    assert SECRET not in str(refusal.value)


@pytest.mark.usefixtures("reached")
def test_the_prefix_of_another_run_is_refused_unless_this_job_continues_it(s3: S3, url: str, tmp_path: Path) -> None:
    taken(url, s3)
    with pytest.raises(UsageError, match=r"is that of run r1 \(job 'digits'\)") as refusal:
        looked(job(url), tmp_path)
    assert refusal.value.fix.endswith(f"kitctl submit --continue {url}")
    (warning,) = looked(job(url, resume=True), tmp_path)
    assert warning.startswith(f"resume: {url} has no snapshot to continue from; ")


def ignores(condition: str) -> Rule:
    """A store that writes whatever the condition says."""

    def rule(seen: Seen) -> Fault | None:
        there = seen.method == "PUT" and condition.lower() in {name.lower() for name in seen.headers}
        return Fault(replayed=b"") if there else None

    return rule


def denies(seen: Seen) -> Fault | None:
    return Fault(status=403, replayed=DENIED) if seen.method == "PUT" else None


@pytest.mark.usefixtures("reached")
@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (denies, "the credentials may not read and write there"),
        (ignores("If-Match"), "the store ignores If-Match"),
        (lambda seen: Fault(replayed=b"1") if seen.method in {"PUT", "GET"} and ".probe" in seen.path else None,
         "the store ignores If-None-Match"),
    ],
)  # fmt: skip
def test_a_store_that_does_not_do_what_the_mirror_needs_is_refused(
    s3: S3, url: str, tmp_path: Path, rule: Rule, what: str
) -> None:
    with in_front_of(s3.url) as proxy:
        proxy.rule = rule
        with pytest.raises(UsageError, match=what) as refusal:
            looked(job(url, env={"AWS_ENDPOINT_URL": proxy.url}), tmp_path)
    assert refusal.value.fix


@pytest.mark.usefixtures("reached")
def test_a_store_that_never_answers_is_a_warning_and_ends_the_look(url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert looked(job(url, env={"AWS_ENDPOINT_URL": endpoint}), tmp_path) == (
            f"snapshots.mirror: {url} does not answer within 2 s; the job's node 0 asks again",
        )


@pytest.mark.usefixtures("reached")
def test_without_the_library_it_is_refused_unless_requirements_may_have_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "obstore.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs the Python package obstore"):
        looked(job(url), tmp_path)
    sent = Sources(requirements=collect(tmp_path, ()))
    assert local_checks.require_mirror(Submission(spec=job(url), sources=sent, folder=tmp_path), tmp_path) == ()


def test_jobs_without_a_mirror_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", pytest.fail)
    assert looked(job(""), tmp_path) == ()
    assert mirrors.warnings_from_afar(job("")) == ()


def test_from_another_machine_it_is_a_warning(s3: S3, url: str) -> None:
    shell, taken_already = {**os.environ, **s3.environ()}, job(url, env={"AWS_ENDPOINT_URL": s3.url})
    assert mirrors.warnings_from_afar(taken_already, shell) == ()
    taken(url, s3)
    (warning,) = mirrors.warnings_from_afar(taken_already, shell)
    assert "is that of run r1" in warning
    assert warning.endswith("(as seen from this machine, with your shell's credentials)")
    without = {name: value for name, value in shell.items() if name != "AWS_ACCESS_KEY_ID"}
    assert mirrors.warnings_from_afar(taken_already, without) == ()


def test_an_address_for_pods_alone_is_no_news(s3: S3, url: str) -> None:
    shell = {**os.environ, **s3.environ()}
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert mirrors.warnings_from_afar(job(url, env={"AWS_ENDPOINT_URL": endpoint}), shell) == ()
