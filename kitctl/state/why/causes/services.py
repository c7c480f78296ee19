"""Causes in what a script asks other machines for: names, connections, downloads, keys. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

_HUB: Final = (
    "download it once to a volume, and set HF_HOME to that folder and HF_HUB_OFFLINE=1; or name the proxy: "
    "--env HTTPS_PROXY=..."
)
_PROXY: Final = "with http_proxy or https_proxy set, it is the proxy that refuses: --env NO_PROXY=..."
SERVICES: Final = Family(
    "Services and downloads",
    "Failed",
    (
        Rule(
            "hub-unreachable",
            r"couldn't connect to 'https://huggingface\.co'|LocalEntryNotFoundError|OfflineModeIsEnabled",
            "",
            _HUB,
            seen="We couldn't connect to 'https://huggingface.co' to load the files",
        ),
        Rule(
            "hub-rate-limited",
            r"429 Client Error.*?huggingface\.co",
            "",
            f"all ranks ask at once: {_HUB.partition(';')[0]}; or give a token, which may ask more: --env HF_TOKEN",
            seen="429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/x",
        ),
        Rule(
            "hub-access-denied",
            r"gated repo|40[13] Client Error.*?huggingface\.co|Access to model .* is restricted",
            "",
            "give the ranks a token that may read it: --env HF_TOKEN, which takes yours; and accept the model's terms",
            seen="You are trying to access a gated repo.",
        ),
        Rule(
            "credentials-not-found",
            r"NoCredentialsError: |Unable to locate credentials(?! \w)|DefaultCredentialsError: ",
            "",
            "give the ranks credentials: --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY, which take yours; or "
            "--secret, or a service account that has the right",
            local="give the ranks credentials: --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY, which take yours, "
            "or their file in your home folder",
            seen="NoCredentialsError: Unable to locate credentials",
        ),
        Rule(
            "credentials-lack-permission",
            r"\((?:AccessDenied|403|Forbidden)\) when calling the (\w+) operation",
            "",
            "the credentials that the ranks have may not do that ({0}): use others, or have it allowed for that "
            "bucket and path",
            seen="ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied",
        ),
        Rule(
            "http-rate-limited",
            r"\b429 Client Error: |\b429 Too Many Requests\b",
            "",
            "all ranks ask at once: let rank 0 ask and share what it gets, ask more seldom, or wait longer before each "
            "further try",
            seen="429 Client Error: Too Many Requests for url: https://api.example.com/v1/embed",
        ),
        Rule(
            "http-access-denied",
            r"\b40[13] Client Error: ",
            "",
            "the server at that address refuses: give the ranks the key or token that it asks for: --env NAME, which "
            "takes yours",
            seen="403 Client Error: Forbidden for url: https://data.example.com/train.tar",
        ),
        Rule(
            "wandb-api-key-missing",
            r"api_key not configured|WANDB_API_KEY",
            "",
            "--env WANDB_API_KEY, which takes yours; or --env WANDB_MODE=offline",
            seen="api_key not configured (no-tty)",
        ),
        Rule(
            "host-name-not-resolved",
            r"Name or service not known|failure in name resolution|NameResolutionError: "
            r"|No address associated with hostname|Could not resolve host",
            "",
            "check the host's name; if it is right, the node's DNS, or its proxy: --env HTTPS_PROXY=...; what is "
            "downloaded can be sent as well (--workdir, --send), or be on a volume",
            seen="[Errno -2] Name or service not known",
        ),
        Rule(
            "local-address-unavailable",
            r"Cannot assign requested address",
            "",
            "the node has no such address: listen at 0.0.0.0, and leave MASTER_ADDR as kitctl sets it",
            seen="[Errno 99] Cannot assign requested address",
        ),
        Rule(
            "proxy-connection-failed",
            r"ProxyError\(|ProxyError: |Cannot connect to proxy|Tunnel connection failed",
            "",
            "http_proxy or https_proxy of the ranks names a proxy that does not answer, or refuses: mend it, or except "
            "the host: --env NO_PROXY=...",
            seen="ProxyError: HTTPSConnectionPool(...): Cannot connect to proxy",
        ),
        quoted(
            "database-or-table-unavailable",
            r"(?:OperationalError: (?:no such table: |unable to open database file)"
            r"|relation \"[^\"]+\" does not exist)",
            "the database is another one than expected, or empty: check its path or address as the ranks see it; a "
            "file is made in the folder of a volume (--volume), and its tables by rank 0 before the others ask",
            "sqlite3.OperationalError: no such table: trials",
        ),
        quoted(
            "remote-resource-not-found",
            r"\((?:NoSuchBucket|NoSuchKey|404)\) when calling the (\w+) operation|\b404 Client Error: "
            r"|HTTP Error 404: |"
            r"HTTPError: 404\b|The specified (?:bucket|key) does not exist",
            "nothing is at that address: check the name and the path, and the region or endpoint that the ranks use",
            "ClientError: An error occurred (NoSuchBucket) when calling the ListObjectsV2 operation",
        ),
        quoted(
            "credentials-invalid-or-expired",
            r"\((?:ExpiredToken\w*|InvalidAccessKeyId|InvalidToken|SignatureDoesNotMatch|RequestTimeTooSkewed"
            r"|TokenRefresh\w*)\)"
            r"|RefreshError: |password authentication failed|invalid_grant",
            "the ranks' credentials are wrong or have expired: give them new ones (--env NAME takes yours), or a "
            "service account, whose token is renewed; check the machine's clock",
            "ClientError: An error occurred (ExpiredToken) when calling the GetObject operation: ...",
        ),
        quoted(
            "service-overloaded-or-unavailable",
            r"\((?:SlowDown|503|Throttling\w*|RequestLimitExceeded|ServiceUnavailable|InternalError)\) when calling"
            r"|\b5\d\d Server Error: |HTTP Error 5\d\d: |StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED)",
            "the server is overloaded, or away: ask with fewer ranks and loader workers, and try again after a "
            "growing wait",
            "ClientError: An error occurred (SlowDown) when calling the GetObject operation: ...",
        ),
        quoted(
            "http-access-denied",
            r"HTTP Error 40[13]: |google\.api_core\.exceptions\.Forbidden|^Forbidden: 403 |^Unauthorized: 401 ",
            "the server at that address refuses: give the ranks the key or token that it asks for: --env NAME, which "
            "takes yours",
            "HTTPError: HTTP Error 403: Forbidden",
        ),
        Rule(
            "sqlite-file-unusable",
            r"sqlite3\.OperationalError: (?:database (?:table )?is locked|disk I/O|attempt to write a readonly"
            r"|database or disk)"
            r"|^OperationalError: (?:database is locked|disk I/O error)",
            "",
            "SQLite's file is for the processes of one machine, and one writer: let rank 0 alone use it, or give each "
            "rank a file of its own, not on a network volume",
            seen="sqlite3.OperationalError: database is locked",
        ),
        Rule(
            "service-connection-failed",
            r"Could not connect to the endpoint URL|(?:URLError|HTTPConnectionPool|HTTPSConnectionPool|ConnectError"
            r"|ClientConnectorError|OperationalError|ConnectionError: Error \d+ connecting to)\b"
            r".*?(?:refused|timed out|unreachable|Max retries|No route to host)"
            # Of a client of the script's own.
            r"|^(?:[\w.]+\.)?RuntimeError: [^\n]*[Cc]onnection refused (?:by|to|at) ",
            "",
            "check that the service is up, and reached at that address from the nodes: one on your own machine is not; "
            f"{_PROXY}",
            local=f"check that the service is up, and listens at that address; {_PROXY}",
            seen="URLError: <urlopen error [Errno 111] Connection refused>",
        ),
        Rule(
            "tls-certificate-not-verified",
            r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
            "",
            "send or mount the file with your organization's certificates, and name it: --env SSL_CERT_FILE=... and "
            "--env REQUESTS_CA_BUNDLE=...",
            seen="[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
        ),
        Rule(
            "prompt-without-terminal",
            r"EOFError: EOF when reading a line",
            "",
            "no rank has a terminal to ask at: give the answer as an argument of the script",
            seen="EOFError: EOF when reading a line",
        ),
    ),
)
