"""Importing a part of the package ``kubernetes``, and all of it after that."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

SHOW = "print(json.dumps(found))"
LOADED = """
import json, sys
from kitctl.targets.cluster.connection import client_modules
own = client_modules.load()
"""


def run(code: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_only_what_a_connection_takes_is_imported() -> None:
    assert run(f"{LOADED}\nfound = sorted(sys.modules)\n{SHOW}").count("urllib3") == 1
    heavy = "{'pydantic', 'requests', 'oauthlib', 'requests_oauthlib', 'websocket', 'dateutil', 'kubernetes'}"
    assert not run(f"{LOADED}\nfound = sorted({heavy} & sys.modules.keys())\n{SHOW}")


def test_a_script_that_imports_the_whole_package_afterwards_gets_it() -> None:
    code = f"""{LOADED}
import kubernetes
from kubernetes import client, config, watch
found = [client.CoreV1Api.__name__, client.V1Pod.__name__, config.kube_config is own.config.kube_config]
{SHOW}"""
    assert run(code) == ["CoreV1Api", "V1Pod", False]


def test_a_package_that_is_imported_already_is_used() -> None:
    code = f"""
import kubernetes
{LOADED}
found = [own.config is kubernetes.config, 'kubernetes' in sys.modules]
{SHOW}"""
    assert run(code) == [True, True]


def test_what_renews_an_openid_token_is_there_once_it_is_used() -> None:
    code = f"""{LOADED}
module = own.config.kube_config
before = 'oauthlib' in sys.modules
names = [
    module.ApiClient(configuration=own.configuration.Configuration()).__class__.__module__,
    module.OAuth2Session(client_id='x').__class__.__module__,
    module.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError.__name__,
]
found = [before, *names]
{SHOW}"""
    assert run(code) == [
        False,
        "kubernetes.client.api_client",
        "requests_oauthlib.oauth2_session",
        "InvalidClientIdError",
    ]
