"""Never two rounds of a number train, whatever is lost or late: the rules, and a model of nodes that follow them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kittrain.agent.rendezvous.membership import Membership, Node
from kittrain.agent.rendezvous.succession import Configuration, Known, configuration, is_ranges, newest, verdict


def of(number: int, *nodes: int) -> Configuration:
    return configuration(number, nodes)


def granted(known: Sequence[Configuration], *here: int, ended: dict[int, int] | None = None) -> bool:
    return verdict(tuple(known), here=set(here), ended=ended or {}, claimed=set()).granted


@pytest.mark.parametrize(("nodes", "text"), [((0,), "0"), ((2, 0, 1), "0-2"), ((0, 1, 3, 7, 8, 9), "0-1,3,7-9")])
def test_members_are_ranges(nodes: tuple[int, ...], text: str) -> None:
    assert of(1, *nodes) == Configuration(number=1, members=text)
    assert of(1, *nodes).nodes == set(nodes)
    assert is_ranges(text)


@pytest.mark.parametrize("text", ["", "-1", "1-", "3-1", "0,0", "0-2,1", "0-9999999", "a", "1, 2", "²"])
def test_other_texts_are_no_members(text: str) -> None:
    assert not is_ranges(text)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_of_each_way_to_cut_a_round_in_two_only_a_majority_goes_on(size: int) -> None:
    everyone = set(range(size))
    for here in (set(some) for count in range(size + 1) for some in combinations(everyone, count)):
        one, other = granted([of(7, *everyone)], *here), granted([of(7, *everyone)], *(everyone - here))
        assert (one, other) == (2 * len(here) > size, 2 * len(here) < size)


def test_half_of_a_round_goes_on_only_with_a_claim() -> None:
    known = (of(7, 0, 1),)
    tied = verdict(known, here={1}, ended={}, claimed=set())
    assert (tied.granted, tied.ties) == (False, (7,))
    assert tied.reason == "only 1 of the 2 nodes of round 7 are here, and the others may train without them"
    assert verdict(known, here={1}, ended={}, claimed={7}).granted
    assert not verdict(known, here=set(), ended={}, claimed={7}).granted


def test_nodes_that_have_ended_have_no_vote_in_rounds_until_then() -> None:
    assert granted([of(7, 0, 1, 2)], 2, ended={0: 7, 1: 7})
    assert not granted([of(7, 0, 1, 2)], 2, ended={0: 6, 1: 6})
    assert granted([of(7, 0)], ended={0: 7})


def test_until_a_round_is_settled_the_one_before_it_decides_too() -> None:
    grown = [of(8, 0, 1, 2, 3, 4), of(7, 0, 1, 2)]
    assert not granted(grown, 0, 3, 4)
    assert granted(grown, 0, 1, 3)
    assert granted(grown[:1], 0, 3, 4)


def test_the_newest_round_counts_and_of_two_with_a_number_the_settled_one() -> None:
    old, unsettled = (of(7, 0, 1, 2),), (of(8, 0, 1), of(7, 0, 1, 2))
    other, settled = (of(8, 0, 2), of(7, 0, 1, 2)), (of(8, 0, 2),)
    assert newest(old, unsettled) == newest(unsettled, old) == unsettled
    assert newest(unsettled, settled) == newest(settled, unsettled) == settled
    assert set(newest(unsettled, other)) == {*unsettled, *other}
    assert newest((), old) == old


@dataclass(eq=False)
class Agent:
    """A node's agent, as far as the rendezvous goes."""

    index: int
    hub: Membership
    known: Known = ()
    place: int | None = None
    gone: dict[int, int] = field(default_factory=dict)
    at: Agent | None = None  # whose hub it has joined
    node: Node = field(default_factory=lambda: Node(index=-1, started_at=0.0))
    dead: bool = False
    drained: bool = False


@dataclass(eq=False)
class Formed:
    """A round that a hub has formed, and who has been told."""

    hub: Agent
    number: int
    known: Known
    members: dict[Agent, int]  # with their places
    told: set[Agent] = field(default_factory=set)
    trained: bool = False
    left: bool = False  # by one of them


class Model:
    """Agents that join hubs, leave them when they please, and die; every message may be late, lost, or overtaken."""

    def __init__(self, size: int, least: int) -> None:
        self.size, self.least = size, least
        self.agents = [self.agent(index, first=index == 0) for index in range(size)]
        self.former: list[Agent] = []
        self.rounds: list[Formed] = []
        self.trained: list[int] = []
        self.claims: dict[int, Agent] = {}
        self.now = 0.0

    def agent(self, index: int, *, first: bool) -> Agent:
        hub = Membership(min_nodes=self.least, max_nodes=self.size, last_call_timeout=0.0, first=first)
        return Agent(index, hub)

    def join(self, one: int, other: int) -> None:
        """An agent joins a hub; it has left another, which may not have noticed."""
        if self.agents[one].drained:
            return
        self.leave(one, other)
        agent, host = self.agents[one], self.agents[other]
        before = host.hub._nodes.get(agent.index)
        if before:
            host.hub.remove(before)
        agent.node = Node(index=agent.index, started_at=id(agent))
        agent.at = host
        host.hub.add(agent.node)
        agent.node.hub_port = 1
        host.hub.join(agent.node, known=agent.known, place=agent.place, gone=agent.gone)

    def leave(self, one: int, _: int) -> None:
        """An agent loses its hub; the hub may notice later."""
        agent = self.agents[one]
        agent.at = None
        for formed in self.rounds:
            formed.left = formed.left or agent in formed.members

    def notice(self, one: int, other: int) -> None:
        """A hub notices that a node is gone, if it is."""
        host = self.agents[one]
        node = host.hub._nodes.get(other)
        current = self.agents[other]
        if node and not (current.node is node and current.at is host):
            host.hub.remove(node)

    def suspect(self, one: int, other: int) -> None:
        """A hub holds a node for lost that is not."""
        host = self.agents[one]
        if node := host.hub._nodes.get(other):
            host.hub.remove(node)
            if self.agents[other].node is node:
                self.leave(other, one)

    def form(self, one: int, _: int) -> None:
        """A hub forms a round, if it may."""
        host = self.agents[one]
        self.now += 10.0
        host.hub.form_round(self.now)
        host.hub.form_round(self.now + 5.0)
        if host.hub.group and not any(f.hub is host and f.number == host.hub.round for f in self.rounds):
            owners = {agent.node: agent for agent in (*self.former, *self.agents)}
            members = {owners[node]: place for place, node in enumerate(host.hub.group) if node in owners}
            formed = Formed(host, host.hub.round, host.hub.known, members)
            formed.left = len(members) < len(host.hub.group) or any(member.at is not host for member in members)
            self.rounds.append(formed)

    def end(self, one: int, _: int) -> None:
        """The hub's round ends: its nodes will join again."""
        hub = self.agents[one].hub
        if hub.group:
            hub.end_round(hub.group[0])

    def tell(self, one: int, _: int) -> None:
        """A node hears of its hub's round, if it still listens to it."""
        agent = self.agents[one]
        host = agent.at
        formed = next((formed for formed in reversed(self.rounds) if formed.hub is host), None)
        if not formed or not host or agent not in formed.members or agent in formed.told or formed.left:
            return
        formed.told.add(agent)
        agent.known, agent.place = formed.known, formed.members[agent]
        agent.gone.clear()
        if agent.node.active:
            host.hub.heard(agent.node)
        if formed.told == formed.members.keys():
            self.train(formed)

    def train(self, formed: Formed) -> None:
        """All ranks start: nobody alive may have been in such a round, or a later one."""
        formed.trained = True
        for earlier in (one for one in self.rounds if one.trained and one is not formed):
            alive = [agent.index for agent in earlier.told if not agent.dead]
            assert not alive or earlier.number < formed.number, (earlier, formed)
        self.trained.append(formed.number)

    def settle(self, one: int, _: int) -> None:
        """A node of a round hears that all have heard of it."""
        agent = self.agents[one]
        if agent.known and any(f.trained and f.known[0] == agent.known[0] and agent in f.told for f in self.rounds):
            agent.known = agent.known[:1]

    def claim(self, one: int, _: int) -> None:
        """A hub claims what it is tied for."""
        host = self.agents[one]
        if not host.hub.group and host.hub.ready:
            for number in host.hub.verdict.ties:
                if self.claims.setdefault(number, host) is host:
                    host.hub.claim(number)

    def gather(self, one: int, other: int) -> None:
        """Some agents meet at a hub, which forms a round, of which some are told."""
        some = [index for index in range(self.size) if (index * 7 + other * 5 + one) % 5 != 2]
        host = self.agents[one]
        for index in [*host.hub._nodes]:
            self.notice(one, index)
        self.end(one, one)
        for index in some:
            self.join(index, one)
        self.form(one, one)
        for index in some[other % 2 :]:
            self.tell(index, 0)

    def drain(self, one: int, other: int) -> None:
        """An agent is drained, and its own hub hands over: of the nodes there, some hear of it, maybe much later."""
        agent, hub = self.agents[one], self.agents[one].hub
        if agent.at is not agent or hub._nodes.get(one) is not agent.node or not hub.known:
            return
        agent.node.draining = True
        hub.depart(one, at=agent.node.last)
        hub.retire()
        hub.remove(agent.node)
        self.leave(one, one)
        agent.drained = True
        self.hand_over(one, other)

    def hand_over(self, one: int, other: int) -> None:
        """A hub that has retired tells the nodes that are there who has no vote, and where to go."""
        host = self.agents[one]
        if not host.drained or (heir := host.hub.heir) is None:
            return
        for node in host.hub.ready:
            agent = self.agents[node.index]
            if agent.node is node and agent.at is host and (node.index + other) % 4:
                number = agent.known[0].number if agent.known else 0
                agent.gone |= dict.fromkeys(host.hub.ended, number)
                self.join(node.index, heir.index)

    def die(self, one: int, other: int) -> None:
        """An agent is killed with its hub, and another one starts in its place, which knows nothing.

        Those that it was connected to may notice that it has ended.
        """
        if not any(agent.known for agent in self.agents if agent.index != one):
            return  # then the run starts anew
        old = self.agents[one]
        if other % 2 and old.at and old.at is not old and old.at.hub._nodes.get(one) is old.node:
            old.at.hub.remove(old.node)
            old.at.hub.depart(one, at=old.node.last)
        for agent in self.agents:
            if agent.at is old:
                if other < 3 and agent.known and agent.node.last == old.hub.round and agent is not old:
                    agent.gone[one] = agent.known[0].number
                self.leave(agent.index, one)
        self.leave(one, one)
        old.dead = True
        self.former.append(old)
        self.agents[one] = self.agent(one, first=False)


ACTIONS: Sequence[Callable[[Model, int, int], None]] = (
    *(Model.join, Model.join, Model.join, Model.leave, Model.notice, Model.suspect),
    *(Model.form, Model.form, Model.end, Model.tell, Model.tell, Model.tell, Model.settle, Model.claim, Model.die),
    *(Model.drain, Model.drain, Model.hand_over),
    *(Model.gather, Model.gather, Model.gather, Model.gather),
)


def a_run(seed: int, length: int) -> Model:
    """A model after random actions; a seed finds more than lists of actions, which hypothesis keeps short."""
    rng = random.Random(seed)
    size = rng.randint(2, 5)
    model = Model(size, rng.randint(1, min(3, size)))
    for index in range(size):
        model.join(index, 0)
    model.form(0, 0)
    for index in range(size):
        model.tell(index, 0)
    assert model.trained == [1]
    for _ in range(length):
        rng.choice(ACTIONS)(model, rng.randrange(size), rng.randrange(size))
    return model


@settings(max_examples=400)
@given(seed=st.integers(0, 1 << 32), length=st.integers(0, 300))
def test_never_two_rounds_of_a_number_train(seed: int, length: int) -> None:
    a_run(seed, length)


def test_the_model_trains_many_rounds_at_several_hubs() -> None:
    runs = [a_run(seed, 300) for seed in range(40)]
    assert sum(len(run.trained) for run in runs) > 3 * len(runs)
    assert sum(len({formed.hub for formed in run.rounds if formed.trained}) > 1 for run in runs) > len(runs) / 4
