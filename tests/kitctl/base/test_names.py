"""Reserved names of variables."""

from __future__ import annotations

import pytest

from kitctl.base.errors import SpecError
from kitctl.spec.job_spec import JobSpec

# Variables that torchrun (LocalElasticAgent) sets for each rank, and Kubernetes for each pod.
LAUNCHERS = [
    *("LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK"),
    *("LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
    *("TORCHELASTIC_ERROR_FILE", "PET_NNODES", "PET_RDZV_ID", "KIT_NAME"),
]


@pytest.mark.parametrize("name", LAUNCHERS)
@pytest.mark.parametrize("field", ["env", "secrets"])
def test_variables_of_the_launcher_are_reserved(name: str, field: str) -> None:
    with pytest.raises(SpecError, match=rf"{field}\.{name}: is set by the launcher for every rank"):
        JobSpec(env={name: "a/b"}) if field == "env" else JobSpec(secrets={name: "a/b"})


@pytest.mark.parametrize("name", ["MASTER", "PETS", "MY_RANK", "TORCH_LOGS", "TORCH_NCCL_BLOCKING_WAIT"])
def test_other_names_are_free(name: str) -> None:
    JobSpec(env={name: "1"})
