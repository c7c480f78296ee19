"""Properties of each kind of job; no other module of kitctl depends on a particular kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kitctl import kinds
from kitctl.base import names
from kitctl.kinds import KINDS
from kitctl.kinds.job_set import SET_NAME, SET_UID
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "kitctl"
OTHERS = sorted(path for path in PACKAGE.rglob("*.py") if (PACKAGE / "kinds") not in path.parents)
# Strings that name a kind in any context. `Job` and `jobs` have other meanings, too, except in comparisons.
NAMES = {kind.name for kind in KINDS.values()} | {kind.template for kind in KINDS.values()}
COMPARED = NAMES | {kind.resource for kind in KINDS.values()} | {kind.plural for kind in KINDS.values()}
# Substrings that only occur in one kind's manifests, API paths and labels.
MARKS = ["batch/v1", "batch.kubernetes.io", "kubeflow.org", "pytorchReplicaSpecs", "runPolicy", "elasticPolicy"]

MINE = {"metadata": {"name": "run", "uid": "mine"}}
LABELS = {names.LABEL_INSTANCE: "run", SET_NAME: "run"}


def strings(tree: ast.AST) -> Iterator[str]:
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def constant(key: ast.expr | None) -> object:
    return key.value if isinstance(key, ast.Constant) else None


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [
                one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ]
    return tree


def knowledge_of_kinds(source: str) -> list[str]:
    """Strings of a module that depend on a kind and belong in that kind's module."""
    tree = without_docstrings(ast.parse(source))
    compared = [text for node in ast.walk(tree) if isinstance(node, ast.Compare) for text in strings(node)]
    matched = [text for node in ast.walk(tree) if isinstance(node, ast.MatchValue) for text in strings(node)]
    keys = [text for node in ast.walk(tree) if isinstance(node, ast.Dict) for text in map(constant, node.keys)]
    own = {f"kitctl.kinds.{kind.__class__.__module__.rpartition('.')[2]}" for kind in KINDS.values()}
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in own]
    marked = [text for text in strings(tree) if any(mark in text for mark in MARKS)]
    return [
        *(text for text in strings(tree) if text in NAMES),
        *(str(text) for text in (*compared, *matched, *keys) if text in COMPARED),
        *marked,
        *map(str, imported),
    ]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_depends_on_a_kind(path: Path) -> None:
    assert knowledge_of_kinds(path.read_text(encoding="utf-8")) == []


def test_templates_depend_on_no_kind_but_their_own() -> None:
    own = {f"{kind.template}.yaml.j2" for kind in KINDS.values()}
    for path in (ROOT / "manifests").glob("*.j2"):
        text = path.read_text(encoding="utf-8")
        assert [word for word in (*NAMES, *MARKS, "job.kind ==") if word in text and path.name not in own] == []


@pytest.mark.parametrize(
    "source",
    [
        'if spec.kind == "PyTorchJob": pass',
        'count = 1 if job["kind"] == "Job" else 2',
        'codes = {"IndexedJob": 75}',
        'match kind:\n    case "Job": pass',
        'spec["runPolicy"]["suspend"]',
        "from kitctl.kinds.pytorch_job import PyTorchJob",
    ],
)
def test_knowledge_of_a_kind_is_found(source: str) -> None:
    assert knowledge_of_kinds(source)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_kind_reads_what_it_renders(kind: kinds.JobKind) -> None:
    job = render.manifests(JobSpec(name="run", kind=kind.name, nodes="2:4"), suspended=True, run="a1")[-1]
    assert (job["apiVersion"], job["kind"]) == (kind.api_version, kind.resource)
    assert kinds.of_object(job) is kinds.of_spec(kind.name) is kinds.of_key(kind.key) is kind
    assert (kind.nodes(job), kind.desired_nodes(job), kind.suspended(job)) == ("2:4", 4, True)
    assert kind.pod_template(job)["spec"]["containers"]
    assert kind.run_id(job) == ("" if kind.pods_know_uid else "a1")
    assert set(kind.exit_codes) == {"done", "drained", "retryable", "fatal"}


def test_auto_is_the_kind_that_every_cluster_has() -> None:
    assert kinds.of_spec(kinds.AUTO) is kinds.DEFAULT
    assert next(iter(KINDS.values())) is kinds.DEFAULT
    assert kinds.DEFAULT.operator == ""
    assert kinds.of_key("Pod.") is None


def test_an_indexed_job_is_scaled_by_both_numbers_or_kubernetes_refuses() -> None:
    assert KINDS["IndexedJob"].scale(3) == {"spec": {"parallelism": 3, "completions": 3}}


def test_an_operator_restarts_pods_for_large_exit_codes_only() -> None:
    codes = KINDS["PyTorchJob"].exit_codes
    assert {outcome for outcome, code in codes.items() if code >= 128} == {"drained", "retryable"}


def test_a_pod_belongs_to_the_job_of_its_uid_not_to_an_earlier_one_of_that_name() -> None:
    """TrainJobs do not know their JobSet's uid: see ``test_train_job``."""
    for name in ("IndexedJob", "PyTorchJob"):
        owners = [{"kind": KINDS[name].resource, "name": "run", "uid": uid} for uid in ("earlier", "mine")]
        pods = [{"metadata": {"labels": LABELS, "ownerReferences": [owner]}} for owner in owners]
        assert [KINDS[name].owns_pod(MINE, pod) for pod in pods] == [False, True], name
        assert not KINDS[name].owns_pod(MINE, {"metadata": {"labels": LABELS}}), name
    pods = [{"metadata": {"labels": LABELS | {SET_UID: uid}}} for uid in ("earlier", "mine")]
    assert [KINDS["JobSet"].owns_pod(MINE, pod) for pod in pods] == [False, True]
    assert not KINDS["JobSet"].owns_pod(MINE, {"metadata": {"labels": LABELS}})


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        (
            "IndexedJob",
            {
                "SuccessCriteriaMet": "Succeeded",  # a moment before Complete
                "Complete": "Succeeded",
                "FailureTarget": "Failed",  # a moment before Failed
                "Failed": "Failed",
            },
        ),
        ("PyTorchJob", {"Succeeded": "Succeeded", "Failed": "Failed"}),
        ("JobSet", {"Completed": "Succeeded", "Failed": "Failed"}),
        ("TrainJob", {"Complete": "Succeeded", "Failed": "Failed"}),
    ],
)
def test_each_condition_that_ends_a_job_has_its_result(kind: str, ends: dict[str, str]) -> None:
    assert KINDS[kind].terminal_conditions == ends
