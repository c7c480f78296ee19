"""Authenticates both ends of a connection by the run's secret, and every message after that.

    node:  greeting {nonce, secret}       its nonce, and whether it has a secret
    hub:   answer {nonce, secret, hub, elsewhere, serves, mac}
                                          its own, who it is, and an HMAC-SHA256 keyed by secret, run id and these
    node:  proof {mac}                    the same HMAC for the node's direction
    both:  mac, message                   an HMAC by that key over direction, sequence number and message

A message that is forged, replayed, dropped or reordered ends the connection. Nothing is encrypted. Without a secret the
key depends on the run id alone: this keeps out other runs and port scanners, but not
anything that can read the run id.

Why: decision 28.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from kitjob import typed

PROTOCOL: Final = b"kitctl rendezvous 4\0"
NONCE: Final = 16  # bytes
MAC: Final = 32  # hexadecimal digits of a message's HMAC: 128 bits


class AuthenticationError(Exception):
    """The other end does not know the run's secret, or a message was modified in transit."""


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """A node's first message: its nonce, and whether it has a secret."""

    nonce: str
    secret: bool


@dataclass(frozen=True, kw_only=True)
class Introduction:
    """Who answers.

    Attributes:
        hub: its name, which no other hub has: the index of its node, and a random part.
        elsewhere: address of the hub that serves instead, as ``address:port``; empty: none is known.
        serves: whether its nodes may form a round, or are in one.
    """

    hub: str = "0"
    elsewhere: str = ""
    serves: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The hub's reply: its nonce, whether it has a secret, who it is, and its HMAC."""

    nonce: str
    secret: bool
    hub: Introduction
    mac: str


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The node's HMAC, which completes the handshake."""

    mac: str


@dataclass(frozen=True)
class Key:
    """What the nodes of one run share.

    Args:
        secret: of the job; None if it has none.
        run: id of the run.
    """

    secret: bytes | None
    run: str

    def greet(self) -> Greeting:
        """A node's first message on a new connection."""
        return Greeting(nonce=secrets.token_hex(NONCE), secret=self.secret is not None)

    def answer(self, greeting: Greeting, hub: Introduction) -> tuple[Answer, Session]:
        """The hub's reply, and its end of the session."""
        nonce = secrets.token_hex(NONCE)
        session = Session(self._of_connection(nonce, greeting, hub), b"hub", b"node")
        return Answer(nonce=nonce, secret=self.secret is not None, hub=hub, mac=session.proof), session

    def accept(self, greeting: Greeting, answer: Answer) -> Session:
        """A node's end of the session, once the hub's reply is verified.

        Raises:
            AuthenticationError: the HMAC is wrong, or one end has a secret and the other has none.
        """
        if answer.secret and self.secret is None:
            raise AuthenticationError("node 0 has the run's secret, and this node has none")
        if not answer.secret and self.secret is not None:
            raise AuthenticationError("node 0 has no secret, and this node has the run's secret")
        session = Session(self._of_connection(answer.nonce, greeting, answer.hub), b"node", b"hub")
        session.verify_proof(answer.mac)
        return session

    def _of_connection(self, nonce: str, greeting: Greeting, hub: Introduction) -> bytes:
        return self.derive(f"{nonce}\0{greeting.nonce}\0".encode() + typed.dump(hub))

    def derive(self, purpose: bytes) -> bytes:
        """A key for one purpose."""
        return hmac.new(self.secret or b"", PROTOCOL + self.run.encode() + b"\0" + purpose, "sha256").digest()


class Session:
    """One end of a connection: signs what it sends and verifies what it receives.

    Args:
        key: of the connection.
        own: label of this end's direction.
        other: label of the other end's direction.
    """

    def __init__(self, key: bytes, own: bytes, other: bytes) -> None:
        self._own, self._other = (hmac.new(key, label + b"\0", "sha256") for label in (own, other))
        self._sent = self._received = 0
        self.proof = _mac(self._own, b"proof").decode()
        self._expected = _mac(self._other, b"proof")

    def verify_proof(self, proof: str) -> None:
        """Verify the other end's HMAC of the handshake.

        Raises:
            AuthenticationError: it is wrong.
        """
        if not hmac.compare_digest(proof.encode(), self._expected):
            raise AuthenticationError("the other end does not know this run's secret: another secret, or another run")

    def sign(self, text: bytes) -> bytes:
        """A message as a signed line."""
        self._sent += 1
        return _mac(self._own, b"%d\0%b" % (self._sent, text)) + text + b"\n"

    def verify(self, line: bytes) -> bytes:
        """The message in a signed line, which is given without its newline.

        Raises:
            AuthenticationError: it is not the other end's next message.
        """
        self._received += 1
        mac, text = line[:MAC], line[MAC:]
        if not hmac.compare_digest(mac, _mac(self._other, b"%d\0%b" % (self._received, text))):
            raise AuthenticationError("a message was modified in transit")
        return text


def _mac(initial: hmac.HMAC, text: bytes) -> bytes:
    code = initial.copy()  # unlike hmac.digest, this keeps the GIL: releasing it costs more than the HMAC
    code.update(text)
    return code.hexdigest()[:MAC].encode()


def line(message: Greeting | Answer | Proof) -> bytes:
    """A handshake message as an unsigned line."""
    return typed.dump(message) + b"\n"
