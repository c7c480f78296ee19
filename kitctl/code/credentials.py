"""Find likely credentials in a job: everyone who may read the job's objects could read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from kitctl.base.redaction import NAME, URL_LOGIN, VALUE
from kitctl.code.code_tree import Sources
from kitctl.spec.job_spec import JobSpec

# Patterns are compiled by `re` when they are first used, and kept there: kitctl starts sooner.
# One of these is in each text that VALUE finds.
_MARKS: Final = (
    *("PRIVATE KEY-----", "gh", "glpat-", "hf_", "sk-", "xox", "AKIA", "ASIA", ".eyJ"),
    *("npm_", "dckr_", "pypi-", "AIza"),
)
# In a file: a line that sets a variable of such a name to a long value with a digit, as a shell or Python does.
_SET: Final = (
    r"(?m)^[ \t]*(export[ \t]+)?[A-Z0-9_]*(API_?KEY|TOKEN|SECRET(_ACCESS)?_KEY|PASSWORD)"
    r"(=|[ \t]*=[ \t]*(?=[\"']))[\"']?(?=[^\s\"']*[0-9])[A-Za-z0-9+/_=.-]{20,}[\"']?[ \t]*$"
)
_FILE: Final = (
    r"(?i).*\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|\.git-credentials|kubeconfig.*|id_(rsa|dsa|ecdsa|ed25519)"
    r"|.*\.(pem|key|p12|pfx|jks)|.*(credential|secret|password|(?<![a-z])token(?!s|iz)).*(?<!\.py)"
)


_PLACE: Final = r"(.*/)?(\.kube/config|\.aws/(config|credentials)|\.docker/config\.json)"


def is_credential_file(path: str, text: str = "") -> bool:
    """Whether a file looks like a credential, by its name, its place or its content."""
    likely = any(mark in text for mark in _MARKS)  # 50 times as fast as the search, which few texts need then
    sets = any(word in text for word in ("KEY", "TOKEN", "PASSWORD"))
    named = re.fullmatch(_FILE, PurePath(path).name) or re.fullmatch(_PLACE, path)
    return bool(named or (likely and re.search(VALUE, text)) or (sets and re.search(_SET, text)))


def has_credential(line: str) -> bool:
    """Whether a line of a requirements file has a token, or a URL with a password."""
    return bool(re.search(VALUE, line) or re.search(URL_LOGIN, line))


def warnings(spec: JobSpec, sources: Sources) -> Iterator[str]:
    """A warning for each variable, argument and file that looks like one, with the fix."""
    for name, value in spec.env.items():
        if value and (re.search(NAME, name) or re.search(VALUE, value)):
            fix = f"keep it in a Secret: --secret {name}=SECRET/KEY"
            yield f"env.{name} looks like a credential, and is stored in the job as plain text; {fix}"
    for number, value in enumerate(spec.args):
        if re.search(VALUE, value):
            fix = "keep it in a Secret, and let the script read a variable: --secret NAME=SECRET/KEY"
            yield f"args[{number}] looks like a credential, and is stored in the job as plain text; {fix}"
    urls = (spec.requirements.index_url, *spec.requirements.extra_index_urls)
    if any(map(has_credential, urls)):
        fix = "write ${NAME} in its place, and keep it in a Secret: --secret NAME=SECRET/KEY"
        yield f"an index of requirements has a password, and is stored with the job as plain text; {fix}"
    for path in sources.requirements.credentials if sources.requirements else ():
        fix = "write ${NAME} in its place, and keep it in a Secret: --secret NAME=SECRET/KEY"
        yield f"a line of {path} has a password or token, and is stored with the job as plain text; {fix}"
    sent = sources.workdir.credentials if sources.workdir else ()
    for path in (*sent, *(path for path, text in sources.files.items() if is_credential_file(path, text))):
        fix = "leave it out of send; mount a Secret under volumes instead"
        yield f"the file {path} looks like a credential, and is stored with the job as plain text; {fix}"
