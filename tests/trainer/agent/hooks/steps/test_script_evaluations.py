"""An evaluation is what both modes say: the whole model in evaluation mode, and no gradients."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

from kittrain.agent.hooks.steps import script_evaluations
from kittrain.agent.hooks.steps.script_evaluations import ScriptEvaluations
from kittrain.outcome.rank_output import STILL_EVALUATES
from tests.trainer.hooked import run_warm

PLAIN = {
    (owner, name): vars(owner)[name]
    for owner, name in (
        (nn.Module, "eval"),
        (nn.Module, "train"),
        (torch.set_grad_enabled, "__init__"),
        (torch.inference_mode, "__enter__"),
    )
}


class Script:
    """What a script has: a model with a part that is no model, and an optimizer that has taken a step."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        self.wrapped = nn.Sequential(self.model)  # as DistributedDataParallel, or torch.compile
        self.told: list[str] = []
        self.evaluations = ScriptEvaluations(lambda: self.told.append("begins"), lambda: self.told.append("ends"))

    def learns(self) -> None:
        """As the hooks do: a step of the optimizer, and what each backward pass says."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.evaluations.trains(optimizer)

    def backward(self) -> None:
        if self.evaluations.pending:
            self.evaluations.backward_begins()


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    script.evaluations.watch(modules)
    script.learns()
    yield script
    script.evaluations.end()
    for (owner, name), function in PLAIN.items():
        setattr(owner, name, function)


def off_first(script: Script) -> None:
    with torch.no_grad():
        script.model.eval()
    script.model.train()


def batch_by_batch(script: Script) -> None:
    script.model.eval()
    for _ in range(3):
        with torch.no_grad():
            script.model(torch.ones(2, 2))
    script.model.train()


def by_phase(script: Script) -> None:
    for phase in ("train", "val"):
        script.model.train(phase == "train") if phase == "train" else script.model.eval()
        with torch.set_grad_enabled(phase == "train"):
            script.model(torch.ones(2, 2))
    script.wrapped.train()


def in_inference_mode(script: Script) -> None:
    script.wrapped.eval()
    with torch.inference_mode():
        script.wrapped(torch.ones(2, 2))
    script.model.train(mode=True)


def never_trained_again(script: Script) -> None:
    script.model.eval()
    with torch.no_grad():
        script.model(torch.ones(2, 2))
    script.backward()


def marked_again_and_again(script: Script) -> None:
    script.model.eval()
    with torch.no_grad():
        for _ in range(3):
            script.model.eval()
    script.model.train()
    script.model.train()


EVALUATE = (off_first, batch_by_batch, by_phase, in_inference_mode, never_trained_again, marked_again_and_again)


@pytest.mark.parametrize("evaluate", EVALUATE)
def test_an_evaluation_begins_and_ends_once_however_it_is_written(
    script: Script, evaluate: Callable[[Script], None]
) -> None:
    for _ in range(2):
        evaluate(script)
        assert script.told == ["begins", "ends"]
        script.told.clear()
        script.model.train()
    assert all(vars(owner)[name] is function for (owner, name), function in PLAIN.items() if name != "eval")


def part(script: Script) -> None:
    script.model[1].eval()
    with torch.no_grad():
        script.model(torch.ones(2, 2))


def other_model(script: Script) -> None:
    copy.deepcopy(script.model).eval()(torch.ones(2, 2)).detach()
    with torch.no_grad():
        script.model(torch.ones(2, 2))


def with_gradients(script: Script) -> None:
    script.model.eval()
    script.model(torch.ones(2, 2)).sum().backward()
    script.backward()
    with torch.no_grad():
        script.model(torch.ones(2, 2))


def gradients_only(script: Script) -> None:
    with torch.no_grad():
        script.model(torch.ones(2, 2))


@pytest.mark.parametrize("act", [part, other_model, with_gradients, gradients_only])
def test_what_may_be_training_is_none(script: Script, act: Callable[[Script], None]) -> None:
    act(script)
    assert script.told == []


def test_before_the_first_step_there_is_none(script: Script) -> None:
    script.evaluations._trained.clear()
    off_first(script)
    assert script.told == []


def test_models_stay_what_they_are_and_may_be_saved_and_compiled_meanwhile(script: Script) -> None:
    script.model.eval()
    assert pickle.loads(pickle.dumps(script.model)).training is False

    @torch.compile(backend="eager", fullgraph=True)
    def predict(batch: torch.Tensor) -> Any:
        with torch.no_grad():
            return script.model(batch)

    assert not predict(torch.ones(2, 2)).requires_grad


class Strange(nn.Module):
    """Its modules cannot be told apart by a hash."""

    __hash__ = None  # type: ignore[assignment]


def test_a_model_that_refuses_to_be_known_is_evaluated_all_the_same(script: Script) -> None:
    assert Strange().eval().training is False
    assert script.told == []


def test_of_two_models_with_an_optimizer_each_both_are_known(script: Script) -> None:
    generator = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    script.evaluations.trains(torch.optim.SGD(generator.parameters(), lr=0.1))
    for model in (generator, script.model):
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 2))
        model.train()
        assert script.told == ["begins", "ends"]
        script.told.clear()


def test_what_was_no_trained_model_is_one_once_another_optimizer_takes_a_step(script: Script) -> None:
    teacher = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    teacher.eval()
    with torch.no_grad():
        teacher(torch.ones(2, 2))
    assert script.told == []
    script.evaluations.trains(torch.optim.SGD(teacher.parameters(), lr=0.1))
    teacher.eval()
    with torch.no_grad():
        teacher(torch.ones(2, 2))
    assert script.told == ["begins"]


def test_an_optimizer_for_each_layer_costs_no_memory_and_hides_no_model(script: Script) -> None:
    for parameter in nn.Sequential(*(nn.Linear(2, 2) for _ in range(100))).parameters():
        script.evaluations.trains(torch.optim.SGD([parameter], lr=0.1))
    assert len(script.evaluations._trained) <= script_evaluations.OPTIMIZERS
    off_first(script)
    assert script.told == ["begins", "ends"]


ONE = """
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            time.sleep(0.2)
        model.train() if step else None
"""
TWO = """
    critic, model = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (critic, model)]
    for step in range(3):
        critic(model(torch.ones(1, 2))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        model.eval()
        with torch.no_grad():
            time.sleep(0.2)
        model.train()
"""
ONE_AFTER_ANOTHER = """
    for trial in range(12):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            time.sleep(0.05)
        model.train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", [ONE, TWO, ONE_AFTER_ANOTHER])
def test_the_agent_reads_the_seconds_of_a_real_loop(tmp_path: Path, loop: str) -> None:
    loop = f"""
    import time, torch
{loop}
    """
    seconds, since = run_warm(tmp_path, loop).evaluated
    assert seconds >= 0.6
    assert since == 0.0


class Noisy(nn.Module):
    """A model with all layers that work in another way in evaluation mode, and some that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Dropout(0.0))
        self.frozen = nn.BatchNorm1d(2, track_running_stats=False)
        self.recurrent = nn.GRU(2, 2, num_layers=2, dropout=0.1)


def evaluated(model: nn.Module) -> None:
    model.eval()
    with torch.no_grad():
        pass


def all_of_it(script: Script) -> None:
    script.model.train()


def its_dropout(script: Script) -> None:
    next(one for one in script.model.modules() if isinstance(one, nn.Dropout)).train()


def none_of_it(_script: Script) -> None:
    pass


@pytest.mark.parametrize(
    ("trains", "told"),
    [(all_of_it, ""), (its_dropout, ""), (none_of_it, "1 BatchNorm1d, 1 Dropout, 1 GRU")],
)
def test_training_in_evaluation_mode_is_told_once(
    script: Script, trains: Callable[[Script], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the script has put into evaluation mode itself, before it trains or a part later, is its choice."""
    script.model = nn.Sequential(Noisy())
    script.learns()
    for _ in range(3):
        evaluated(script.model)
        trains(script)
        script.backward()
        script.model.train()  # too late for this pass
    script.evaluations.tell()
    assert capsys.readouterr().err == (f"note: {STILL_EVALUATES}{told}\n" if told else "")


def trained_in_evaluation_mode(script: Script) -> None:
    script.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()  # before the first step
    script.learns()
    evaluated(script.model)


def without_such_layers(script: Script) -> None:
    script.model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    script.learns()
    evaluated(script.model)


def within_a_step(script: Script) -> None:
    """The discriminator of a GAN in the generator's step, whose gradients go through it."""
    script.model.eval()
    script.model(torch.ones(2, 2))


@pytest.mark.parametrize("evaluate", [trained_in_evaluation_mode, without_such_layers, within_a_step])
def test_evaluation_mode_by_choice_is_not_told(
    script: Script, evaluate: Callable[[Script], None], capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(script)
    script.backward()
    script.evaluations.tell()
    assert capsys.readouterr().err == ""
