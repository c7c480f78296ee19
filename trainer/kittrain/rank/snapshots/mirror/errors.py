"""Why a mirror cannot be used, with the fix."""

from __future__ import annotations

import re
from typing import Final

CREDENTIALS: Final = (
    "give the pods AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a Secret (secrets in the job file), or an identity "
    "by security.serviceAccount; on your own machine, set them in the shell"
)
# The code of an S3 server's answer, or a word of the library's error, and what it means with its fix. First match wins.
CAUSES: Final = {
    "RequestTimeTooSkewed": ("this machine's clock is off, so the store refuses its signatures", "set the clock"),
    "NoSuchBucket": ("the bucket does not exist", "create it, or correct snapshots.mirror"),
    "InvalidBucketName": ("the bucket's name is not valid", "correct snapshots.mirror"),
    "InvalidAccessKeyId": ("the store does not know the access key", CREDENTIALS),
    "SignatureDoesNotMatch": ("the secret key is not that of the access key", CREDENTIALS),
    "ExpiredToken": ("the credentials have expired", CREDENTIALS),
    "AccessDenied": ("the credentials may not read and write there", "grant s3:GetObject, PutObject and DeleteObject"),
    "PermanentRedirect": ("the bucket is in another region", "set AWS_REGION, by env"),
    "AuthorizationHeaderMalformed": ("the bucket is in another region", "set AWS_REGION, by env"),
    "403 Forbidden": ("the store refuses the credentials", CREDENTIALS),
    "169.254.169.254": ("there are no credentials", CREDENTIALS),
    "169.254.170.2": ("there are no credentials", CREDENTIALS),
    "Missing SecretAccessKey": ("there is an access key without its secret key", CREDENTIALS),
    "Missing AccessKeyId": ("there is a secret key without its access key", CREDENTIALS),
    "NotImplemented": ("the store does not know conditional writes", "use one that does: S3, or MinIO, Ceph, R2, ..."),
}
BRIEF: Final = 200  # characters of a library's error
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_TOOK: Final = re.compile(r" in [0-9.]+(ns|µs|ms|s)\b")  # differs each time, where a log tells each failure once
_SECRET: Final = re.compile(r"(Credential=|Signature=|AWSAccessKeyId>|<AWSAccessKeyId>)[^<,\s\"]+")


class MirrorError(Exception):
    """The mirror cannot be used, now or ever, until somebody changes something; says what."""


class MirrorLibraryError(MirrorError):
    """The library that speaks to stores is not installed."""


class MirrorTakenError(MirrorError):
    """Another run, or another node of this one, writes this mirror now."""


class MirrorHandedOverError(MirrorTakenError):
    """Another node of this run writes it now."""


class MirrorUnavailableError(Exception):
    """The store does not answer, or says that it cannot at the moment."""


class MirrorDamagedError(Exception):
    """What the mirror has is not what was uploaded."""


def explained(error: Exception, url: str) -> MirrorError | MirrorUnavailableError:
    """An error of the store's library as one of these: with its fix if it stays, else unavailable."""
    text = str(error)
    code = code_of(error)
    for word, (cause, fix) in CAUSES.items():
        if code == word or word in text:
            return MirrorError(f"snapshots.mirror: {url}: {cause} ({code or word}); fix: {fix}")
    return MirrorUnavailableError(f"{url} does not answer: {brief(text)}")


def code_of(error: Exception) -> str:
    """The code of an S3 server's answer; empty if there is none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def brief(text: str, *, whole: bool = False) -> str:
    """A library's error in a line, without what a signature was made of."""
    told = _TOOK.sub("", text.partition("\n\nDebug source")[0])
    line = " ".join(_SECRET.sub(r"\1...", told).split())
    return line if whole or len(line) <= BRIEF else f"{line[: BRIEF - 1]}…"
