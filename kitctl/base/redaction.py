"""Take secrets out of what is handed to others: reports, pictures, and files for a bug report. Pure.

What is taken out: the values of variables, options and keys that have a secret's name; tokens of known shapes; private
keys; passwords in URLs; and each value that was found so, wherever else it occurs. What has no such name, shape or
place is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

MARK: Final = "[redacted]"
LEAST: Final = 8  # characters of a value that is looked for elsewhere: shorter ones are in other words, too

# Patterns are compiled by `re` when they are first used, and kept there: kitctl starts sooner.
# Names; TOKENIZERS_PARALLELISM and MAX_TOKENS are no credentials.
NAME: Final = r"(?i)_KEY(_|$)|API_?KEY|TOKEN(?!IZ|S(_|$))|SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL"
# Values: the prefixes that providers use so that scanners can find them.
VALUE: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(gh[opsur]_|github_pat_|glpat-|hf_|sk-|[rs]k_live_|xox[abpr]-|xapp-|npm_|dckr_pat_|pypi-AgE|AIza|ya29\.)[A-Za-z0-9_-]{16}"
    r"|\bdapi[0-9a-f]{32}\b|hooks\.slack\.com/services/\w+/\w+/\w+"
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."
)
# In a URL: user:password@, or a long name alone, which is a token. pip replaces ${NAME} by a variable.
URL_LOGIN: Final = r"://([^/@\s]*:(?!\$\{)[^/\s?#]+|(?!\$\{)[^/@:\s]{20,})@"
_KEY_BLOCK: Final = r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)"
# In names of any spelling, as in `api-key`, `X-Amz-Signature` and `client-key-data`.
_WORD: Final = (
    r"(?i)api[_-]?key|access[_-]?key|secret|passw(or)?d|passphrase|credential|client-(key|certificate)-data"
    r"|private[_-]?key|account[_-]?key|signature|(?<![a-z])token(?!s|iz)|[_-]key(?![a-z])"
    r"|(?<![a-z])(auth|sig|authorization|cookie)(?![a-z])|(?<![a-z])(?<!forward[_-])(?<!backward[_-])pass(?![a-z_-])"
)
# A tokenizer's words, in settings and in what a training prints.
_TOKENIZER: Final = (
    r"(?i)\b(pad|eos|bos|unk|mask|sep|cls|special|image|additional|num|max|min|new|per)_tokens?"
    r"|\btoken_?(count|ids?|loss|acc(uracy)?|len(gth)?|types?|embeddings?)(?![a-z])"
)
# In each line that has any of it: most have not, and are not searched for the rest.
_LIKELY: Final = r"(?i)key|token|secret|pass|credential|sig|auth|cookie|bearer|basic|cert|://|eyj|akia|asia"
_PREFIXES: Final = (
    r"gh[opsur]_|github_pat_|glpat-|hf_|sk-|k_live_|xox|xapp-|npm_|dckr_pat_|pypi-|AIza|ya29|dapi|hooks\."
)
# As YAML has a variable: its name in one line, its value in the next.
_PAIR: Final = r"(?P<name>name:\s*[\"']?(?P<key>[\w.-]{1,80})[\"']?)(?P<sign>\s*\n\s*-?\s*value:\s*)(?P<value>[^\n]+)"
# A value in the lines after its name, as YAML and JSON have it.
_BELOW: Final = (
    r"(?P<name>(?<![\w.-])(?P<key>[\w.-]{1,80})[\"']?)"
    r"(?P<sign>[ \t]*:[ \t]*(?:[|>][-+]?[ \t]*\n[ \t]+|\n\s*(?=[\"'])))(?P<value>[^\n]+)"
)
# A name and the sign after it; then its value. Names are tried at their beginnings alone: a line may have megabytes.
_ASSIGNED: Final = r"(?<![\w.-])(?P<name>[\w.-]++)\\?[\"']?[ \t]{0,8}[=:][ \t]{0,8}"
_OPTION: Final = r"(?<![^\s\"'])--?(?P<name>[\w-]++)[ \t]+(?![\s-])"
_CONTENT: Final = r"(?P<quote>\\?[\"'])(?P<quoted>.*?)(?:(?P=quote)|$)|(?P<bare>[^\s,;&'\"\]}<>\\]+)"
_HEADER: Final = r"(?i)\b(?P<name>Bearer|Basic)(?P<sign>\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,})"
# All of these, whatever their scheme, and a .netrc's words.
_WHOLE_HEADER: Final = (
    r"(?i)(?<![\w\"'-])(?P<name>(?:proxy-)?authorization|(?:set-)?cookie)(?P<sign>:\s*(?:(?:bearer|basic|token)\s+)?)"
    r"(?P<value>[^\s\"'][^\"']*)"
)
_NETRC: Final = r"(?P<name>\blogin\s+\S+\s+password)(?P<sign>\s+)(?P<value>\S+)"
# A token that was cut short.
_CUT: Final = r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|npm_|dckr_pat_|pypi-|AKIA|eyJ)[A-Za-z0-9_.-]{4,}(?=…|\.\.\.)"
_SHELL: Final = r"\$\{?\w+\}?"  # a variable's name in place of its value: no secret
_HARMLESS: Final = rf"(?i){_SHELL}|null|none|true|false|\d{{1,6}}|\W*|\[redacted.*"
_REFERENCES: Final = frozenset({"secretName", "rendezvousSecret"})  # their values name a Secret, or say whether one is


class Redactor:
    """Takes out secrets, also values that are known to be some.

    Args:
        known: such values; those with less than ``LEAST`` characters are not looked for.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = {one for one in known if len(one) >= LEAST and not re.fullmatch(_HARMLESS, one)}
        self.count = 0
        """How many values were taken out so far."""

    def text(self, text: str) -> str:
        """A text without secrets."""
        if self._known:
            text = self._occurring.sub(self._marked, text)
        if "PRIVATE KEY" in text:
            text = re.sub(_KEY_BLOCK, self._marked, text, flags=re.DOTALL)
        if "value:" in text:
            text = self._of_keys(_PAIR, text)
        if ":" in text and "\n" in text:
            text = self._of_keys(_BELOW, text)
        return "\n".join(map(self._line, text.split("\n")))

    def _of_keys(self, pattern: str, text: str) -> str:
        return re.sub(pattern, lambda found: self._named(found) if is_secret_name(found["key"]) else found[0], text)

    def _line(self, text: str) -> str:
        if not (re.search(_LIKELY, text) or re.search(_PREFIXES, text)):
            return text
        if "://" in text:
            text = re.sub(URL_LOGIN, lambda found: f"://{self._marked(found)}@", text)
        text = re.sub(rf"(?:{VALUE})[A-Za-z0-9._~+/=-]*|{_CUT}", self._marked, text)
        for pattern in (_WHOLE_HEADER, _HEADER, _NETRC):
            text = re.sub(pattern, self._named, text)
        for pattern in (_ASSIGNED, _OPTION):
            text = self._without(text, pattern)
        return text

    def _without(self, text: str, pattern: str) -> str:
        """A line without the values of secrets' names."""
        pieces, at = [], 0
        for start, end in _values(text, pattern):
            pieces += [text[at:start], self._mark()]
            at = end
        return "".join((*pieces, text[at:]))

    def tree(self, value: Any) -> Any:
        """The same of mappings and sequences, as JSON and YAML have them; values of a secret's name go as a whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, Sequence):
            return self._words(value)
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> dict[Any, Any]:
        # A variable of a pod: {"name": NAME, "value": VALUE}.
        named = str(value.get("name", "")) if "value" in value else ""
        return {
            self.text(key) if isinstance(key, str) else key: (
                self._mark() if _hides(one, named if key == "value" else str(key)) else self.tree(one)
            )
            for key, one in value.items()
        }

    def _words(self, value: Sequence[Any]) -> list[Any]:
        """A list, perhaps of a command's words: what follows ``--token`` is a secret."""
        before = ["", *(one.lstrip("-") if _is_option(one) else "" for one in value)]
        return [
            self._mark() if _hides(one, name) and not _is_option(one) else self.tree(one)
            for name, one in zip(before, value, strict=False)
        ]

    @cached_property
    def _occurring(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self._known, key=len, reverse=True))))

    def _named(self, found: re.Match[str]) -> str:
        value = found["value"].strip("\"'\\")
        if re.fullmatch(_HARMLESS, value):
            return found[0]
        return f"{found['name']}{found['sign']}{found['value'].replace(value, self._mark())}"

    def _marked(self, _found: re.Match[str]) -> str:
        return self._mark()

    def _mark(self) -> str:
        self.count += 1
        return MARK


def secrets_of(value: Any) -> set[str]:
    """The values that have a secret's name, in variables, in arguments and anywhere else in nested data."""
    found: set[str] = set()
    if isinstance(value, Mapping):
        named = str(value.get("name", "")) if "value" in value else ""
        for key, one in value.items():
            if _hides(one, named if key == "value" else str(key)):
                found.add(str(one))
            else:
                found |= secrets_of(one)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for name, one in zip(["", *value], value, strict=False):
            if _is_option(name) and not _is_option(one) and _hides(one, name.lstrip("-")):
                found.add(str(one))
            elif isinstance(one, str):
                found |= _assigned(one)
            else:
                found |= secrets_of(one)
    elif isinstance(value, str):
        found |= _assigned(value)
    return found


def is_secret_name(name: str) -> bool:
    """Whether a variable, an option or a key of that name holds a secret."""
    rest = re.sub(_TOKENIZER, "", name)
    return name not in _REFERENCES and bool(re.search(NAME, rest) or re.search(_WORD, rest))


def _assigned(text: str) -> set[str]:
    return {line[start:end] for line in text.split("\n") for start, end in _values(line, _ASSIGNED)}


def _values(line: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Where the values of secrets' names are in a line."""
    at = 0
    for found in re.finditer(pattern, line):
        if found.start() < at or not is_secret_name(found["name"]):
            continue
        value = re.compile(_CONTENT).match(line, found.end())
        kind = value and ("bare" if value["bare"] else "quoted")
        if value and kind and value[kind] and not re.fullmatch(_HARMLESS, value[kind]):
            at = value.end(kind)
            yield value.span(kind)


def _is_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-") and "=" not in word


def _hides(value: Any, name: str) -> bool:
    return isinstance(value, str) and bool(value) and is_secret_name(name) and not re.fullmatch(_HARMLESS, value)
