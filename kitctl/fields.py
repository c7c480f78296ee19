"""The kinds of values that the fields of a job file take, each with the pattern that it is checked by."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

Kind: TypeAlias = Literal["auto", "IndexedJob", "PyTorchJob"]
Duration: TypeAlias = Annotated[str, Meta(pattern=r"^(\d+[dhms])+$|^\d+$", examples=["90s", "1h30m"])]
Quantity: TypeAlias = Annotated[str, Meta(pattern=r"^\d+(\.\d+)?(m|[kMGTPE]i?)?$", examples=["4", "500m", "10Gi"])]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
Size: TypeAlias = Positive | Annotated[str, Meta(pattern=r"^\d+(:\d+)?$", examples=["2:4"])]
EnvName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", examples=["LEARNING_RATE"])]
