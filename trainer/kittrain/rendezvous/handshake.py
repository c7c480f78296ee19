"""Proof that both ends of a connection know the run's secret, and that each message comes from who has proved it.

    node:  greeting {nonce, secret}       its nonce, and whether it has a secret
    hub:   answer {nonce, secret, mac}    the same of the hub, and HMAC-SHA256 by a key of secret, run and both nonces
    node:  proof {mac}                    the same code, of the other end
    both:  mac, message                   from here on: by that key, over direction, number and message

A message that was forged, repeated, left out or moved ends the connection. Nothing is encrypted. Without a secret the
run's id takes its place: that keeps other runs and port scanners out, and nobody who can read the id.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from kittrain.system import typed

PROTOCOL: Final = b"kitctl rendezvous 2\0"
NONCE: Final = 16  # bytes
MAC: Final = 32  # hexadecimal digits of a message's: 128 bits


class ForgedError(Exception):
    """The other end does not know the run's secret, or somebody has changed what it said."""


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """A node's first words: its nonce, and whether it has a secret."""

    nonce: str
    secret: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The hub's: the same, and its proof."""

    nonce: str
    secret: bool
    mac: str


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The node's proof."""

    mac: str


@dataclass(frozen=True)
class Key:
    """What the nodes of one run know, and nobody else.

    Args:
        secret: of the job; None for one without.
        run: its id.
    """

    secret: bytes | None
    run: str

    def greet(self) -> Greeting:
        """A node's first words on a new connection."""
        return Greeting(nonce=secrets.token_hex(NONCE), secret=self.secret is not None)

    def answer(self, greeting: Greeting) -> tuple[Answer, Session]:
        """The hub's answer, and its end of the connection."""
        nonce = secrets.token_hex(NONCE)
        session = Session(self.derive(f"{nonce}\0{greeting.nonce}".encode()), b"hub", b"node")
        return Answer(nonce=nonce, secret=self.secret is not None, mac=session.proof), session

    def accept(self, greeting: Greeting, answer: Answer) -> Session:
        """A node's end of a connection whose hub has proved itself.

        Raises:
            ForgedError: it has not, or one of them has a secret and the other has none.
        """
        if answer.secret and self.secret is None:
            raise ForgedError("node 0 has the run's secret, and this node has none")
        if not answer.secret and self.secret is not None:
            raise ForgedError("node 0 has no secret, and this node has the run's")
        session = Session(self.derive(f"{answer.nonce}\0{greeting.nonce}".encode()), b"node", b"hub")
        session.verify(answer.mac)
        return session

    def derive(self, purpose: bytes) -> bytes:
        """A key for one purpose."""
        return hmac.new(self.secret or b"", PROTOCOL + self.run.encode() + b"\0" + purpose, "sha256").digest()


class Session:
    """One end of a connection, whose messages it signs and checks.

    Args:
        key: of the connection.
        own: what this end's messages are marked with.
        other: what the other end's are.
    """

    def __init__(self, key: bytes, own: bytes, other: bytes) -> None:
        self._own, self._other = (hmac.new(key, whose + b"\0", "sha256") for whose in (own, other))
        self._sent = self._heard = 0
        self.proof = _mac(self._own, b"proof").decode()
        self._expected = _mac(self._other, b"proof")

    def verify(self, proof: str) -> None:
        """Check the other end's proof.

        Raises:
            ForgedError: it is none.
        """
        if not hmac.compare_digest(proof.encode(), self._expected):
            raise ForgedError("it does not know the secret of this run: another secret, or another run")

    def seal(self, text: bytes) -> bytes:
        """A message as its line."""
        self._sent += 1
        return _mac(self._own, b"%d\0%b" % (self._sent, text)) + text + b"\n"

    def open(self, line: bytes) -> bytes:
        """The message of a line, without its end.

        Raises:
            ForgedError: it is not the next one from the other end.
        """
        self._heard += 1
        mac, text = line[:MAC], line[MAC:]
        if not hmac.compare_digest(mac, _mac(self._other, b"%d\0%b" % (self._heard, text))):
            raise ForgedError("a message was changed on its way")
        return text


def _mac(begun: hmac.HMAC, text: bytes) -> bytes:
    code = begun.copy()  # unlike hmac.digest, it keeps the interpreter's lock: giving that up costs more than the code
    code.update(text)
    return code.hexdigest()[:MAC].encode()


def line(words: Greeting | Answer | Proof) -> bytes:
    """What is said before both ends have proved themselves, as a line."""
    return typed.dump(words) + b"\n"
