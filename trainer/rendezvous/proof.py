"""Proof that both ends of a connection know the run's secret, and that each message comes from who has proved it.

    hub:   challenge {nonce, secret}
    node:  proof {nonce, mac}             HMAC-SHA256 over both nonces, by a key of secret and run
    hub:   proof {nonce, mac}             the same, of the other end
    both:  mac, message                   from here on: by a key of this connection, over direction, number and message

A message that was forged, repeated, left out or moved ends the connection. Nothing is encrypted. Without a secret the
run's id takes its place: that keeps other runs and port scanners out, and nobody who can read the id.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final, Self

from trainer.system import typed

PROTOCOL: Final = b"kitctl rendezvous 1\0"
NONCE: Final = 16  # bytes
MAC: Final = 32  # hexadecimal digits of a message's: 128 bits


class ForgedError(Exception):
    """The other end does not know the run's secret, or somebody has changed what it said."""


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """The hub's first words: its nonce, and whether it has a secret."""

    nonce: str
    secret: bool


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One end's nonce, and its proof."""

    nonce: str
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

    def challenge(self) -> Challenge:
        """The hub's first words on a new connection."""
        return Challenge(nonce=secrets.token_hex(NONCE), secret=self.secret is not None)

    def answer(self, challenge: Challenge) -> tuple[Proof, Session]:
        """A node's answer, and its end of the connection.

        Raises:
            ForgedError: the hub has a secret and this node has none, or the other way round.
        """
        if challenge.secret and self.secret is None:
            raise ForgedError("node 0 has the run's secret, and this node has none")
        if not challenge.secret and self.secret is not None:
            raise ForgedError("node 0 has no secret, and this node has the run's")
        nonce = secrets.token_hex(NONCE)
        session = Session.between(self, challenge.nonce, nonce, is_hub=False)
        return Proof(nonce=nonce, mac=session.proof), session

    def accept(self, challenge: Challenge, proof: Proof) -> Session:
        """The hub's end of a connection whose node has proved itself.

        Raises:
            ForgedError: it has not.
        """
        session = Session.between(self, challenge.nonce, proof.nonce, is_hub=True)
        session.verify(proof.mac)
        return session

    def derive(self, purpose: bytes) -> bytes:
        """A key for one purpose."""
        return hmac.digest(self.secret or b"", PROTOCOL + self.run.encode() + b"\0" + purpose, "sha256")


class Session:
    """One end of a connection, whose messages it signs and checks.

    Args:
        key: of the connection.
        own: what this end's messages are marked with.
        other: what the other end's are.
    """

    def __init__(self, key: bytes, own: bytes, other: bytes) -> None:
        self._key = key
        self._own, self._other = own, other
        self._sent = self._heard = 0
        self.proof = self._mac(own, b"proof").decode()
        self._expected = self._mac(other, b"proof")

    @classmethod
    def between(cls, key: Key, hub_nonce: str, node_nonce: str, *, is_hub: bool) -> Self:
        """The session that two nonces make."""
        own, other = (b"hub", b"node") if is_hub else (b"node", b"hub")
        return cls(key.derive(b"%b\0%b" % (hub_nonce.encode(), node_nonce.encode())), own, other)

    def verify(self, proof: str) -> None:
        """Check the other end's proof.

        Raises:
            ForgedError: it is none.
        """
        if not hmac.compare_digest(proof.encode(), self._expected):
            raise ForgedError("the other end does not know the secret of this run")

    def seal(self, text: bytes) -> bytes:
        """A message as its line."""
        self._sent += 1
        return self._mac(self._own, b"%d\0%b" % (self._sent, text)) + text + b"\n"

    def open(self, line: bytes) -> bytes:
        """The message of a line, without its end.

        Raises:
            ForgedError: it is not the next one from the other end.
        """
        self._heard += 1
        mac, text = line[:MAC], line[MAC:]
        if not hmac.compare_digest(mac, self._mac(self._other, b"%d\0%b" % (self._heard, text))):
            raise ForgedError("a message was changed on its way")
        return text

    def _mac(self, whose: bytes, text: bytes) -> bytes:
        return hmac.digest(self._key, whose + b"\0" + text, "sha256").hex()[:MAC].encode()


def line(words: Challenge | Proof) -> bytes:
    """What is said before both ends have proved themselves, as a line."""
    return typed.dump(words) + b"\n"
