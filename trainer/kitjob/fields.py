"""The types of the fields of a job file, with their patterns.

The patterns also go into the JSON Schema and the chart's values, so they use only what regular expressions of Python,
Go and JavaScript share: no lookahead, and [0-9] for a digit, which in Python may be of any script. Names follow the
grammar of Kubernetes, so that no API server rejects an object of a job.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from kitjob.record import SENT, Record

_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_PART}(\.{_PART})*"  # as in Kubernetes, which does not limit the parts
_MIRROR: Final = r"s3://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9_.=-]+)+"
_WORD: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"  # of labels, and of names with the same grammar
_SPAN: Final = r"0|([0-9]{1,9}[dhms]){1,4}"  # 12 is seconds to some, minutes or hours to others
_ENV_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.-]*"
_KEY: Final = rf"({_SUBDOMAIN}/)?{_WORD}"
# A number with a power of ten, a decimal or a binary unit: 1E is an exa, 1E1 is ten.
QUANTITY: Final = r"^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?$"
# Of memory and disks: 4 and 4m would be less than a sector. A plain number is of bytes from a million on.
BYTES: Final = r"^(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3}|[kMGTPE]|[KMGTPE]i)|[0-9]{7,}|0)$"
RESOURCES_IN_BYTES: Final = r"^(memory|ephemeral-storage|hugepages-.+)$"
DURATION: Final = rf"^({_SPAN})$"
TIMEOUT: Final = rf"^({_SPAN}|auto|off)$"

T = TypeVar("T")
Sent: TypeAlias = Annotated[T, SENT]  # a field that agents and ranks read: it is in the job's document


class Meta(Record):
    """Constraints of a field, and how a value may look; called with a value, whether it fulfils them."""

    pattern: str = ""
    """Regular expression of a text."""
    ge: int | None = None
    """Least value."""
    le: int | None = None
    """Greatest value."""
    max_length: int | None = None
    """Characters."""
    examples: tuple[str, ...] = ()
    """Values that are right."""

    def __call__(self, value: Any) -> bool:
        """Whether a value of the field's type is allowed."""
        if isinstance(value, str):
            # in Python, $ also matches before a last line break
            fits = re.search(self.pattern, value) is not None and not (self.pattern and value.endswith("\n"))
            return fits and (self.max_length is None or len(value) <= self.max_length)
        return (self.ge is None or value >= self.ge) and (self.le is None or value <= self.le)


def is_name(text: str) -> bool:
    """Whether a Kubernetes object can have that name. Such a name is safe as a part of a path, too."""
    return re.fullmatch(_SUBDOMAIN, text) is not None


def is_mirror_url(text: str) -> bool:
    """Whether this is the address of a mirror of snapshots, with its bucket and its prefix."""
    return re.fullmatch(_MIRROR, text) is not None


Kind: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9]*$", examples=("auto",))]
Duration: TypeAlias = Annotated[str, Meta(pattern=DURATION, examples=("90s", "1h30m"))]
Timeout: TypeAlias = Annotated[str, Meta(pattern=TIMEOUT, examples=("auto", "10m"))]
Quantity: TypeAlias = Annotated[str, Meta(pattern=QUANTITY, examples=("4", "500m", "10Gi"))]
Bytes: TypeAlias = Annotated[str, Meta(pattern=BYTES, examples=("512Mi", "10Gi"))]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
Size: TypeAlias = (
    Positive | Annotated[str, Meta(pattern=r"^[0-9]{1,9}(:[0-9]{1,9})?(\+[0-9]{1,9})?$", examples=("2:4", "8+1"))]
)
Processes: TypeAlias = (
    Positive | Annotated[str, Meta(pattern=r"^(auto|[1-9][0-9]{0,4}(,[1-9][0-9]{0,4})+)$", examples=("auto", "2,4"))]
)
Trainer: TypeAlias = Literal["auto", "image", "travels"]
Resume: TypeAlias = bool | Literal["state"]  # from earlier runs: not at all, exactly, or in a new order of the data
EnvName: TypeAlias = Annotated[str, Meta(pattern=rf"^{_ENV_NAME}$", examples=("LEARNING_RATE",))]
EnvPrefix: TypeAlias = Annotated[str, Meta(pattern=rf"^({_ENV_NAME})?$", examples=("SHARED_",))]
Image: TypeAlias = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9\[][-A-Za-z0-9._:/@\]]*$", examples=("registry.example/team/image:1.2.3",))
]
IndexUrl: TypeAlias = Annotated[
    str, Meta(pattern=r"^((https?|file)://[^ ]+)?$", examples=("https://index.example/simple",))
]
MirrorUrl: TypeAlias = Annotated[str, Meta(pattern=rf"^({_MIRROR})?$", examples=("s3://bucket/prefix",))]
Domain: TypeAlias = Annotated[str, Meta(pattern=rf"^{_SUBDOMAIN}$", max_length=253, examples=("cluster.local",))]
ObjectName: TypeAlias = Annotated[str, Meta(pattern=rf"^({_SUBDOMAIN})?$", max_length=253, examples=("my-name",))]
GivenName: TypeAlias = Annotated[str, Meta(pattern=rf"^{_SUBDOMAIN}$", max_length=253, examples=("my-name",))]
QueueName: TypeAlias = Annotated[str, Meta(pattern=rf"^({_SUBDOMAIN})?$", max_length=63, examples=("my-queue",))]
SecretKey: TypeAlias = Annotated[str, Meta(pattern=rf"^{_SUBDOMAIN}/[-._A-Za-z0-9]+$", examples=("my-secret/token",))]
CapabilityName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$", examples=("IPC_LOCK",))]
LabelKey: TypeAlias = Annotated[str, Meta(pattern=rf"^{_KEY}$", max_length=317, examples=("topology.example/rack",))]
LabelValue: TypeAlias = Annotated[str, Meta(pattern=rf"^({_WORD})?$", examples=("rack-7",))]
TaintKey: TypeAlias = Annotated[str, Meta(pattern=rf"^({_KEY})?$", max_length=317, examples=("dedicated",))]
LeavingTaint: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{_KEY}$", max_length=317, examples=("karpenter.sh/disrupted",))
]
ResourceName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=rf"^(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMG]i|{_SUBDOMAIN}/{_WORD})$",
        max_length=317,
        examples=("cpu", "rdma/hca"),
    ),
]
DeviceName: TypeAlias = Annotated[
    str, Meta(pattern=rf"^{_SUBDOMAIN}/{_WORD}$", max_length=317, examples=("nvidia.com/gpu",))
]
