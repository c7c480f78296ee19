"""Causes in training that ends well, and is not what was meant: what ranks say of it at their end. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

NOTES: Final = Family(
    "Training that ends well with another result",
    "Running",
    (
        Rule(
            "optimizer-parameters-without-gradient",
            r"changed nothing: (none of its parameters had a gradient)",
            "",
            "give the optimizer the parameters of the model that is trained, after it was wrapped or sharded; with "
            "gradient accumulation let the last backward pass of a step exchange the gradients "
            "(set_requires_gradient_sync(True))",
            seen="the optimizer has changed nothing: none of its parameters had a gradient at all 200 steps",
        ),
        Rule(
            "learning-rate-zero",
            r"changed nothing: (its learning rate was 0)",
            "",
            "see the learning rate: a schedule whose steps are another number, a warm-up that divides integers, a "
            "factor that is the rank",
            seen="the optimizer has changed nothing: its learning rate was 0 at all 9 steps",
        ),
        Rule(
            "learning-rate-faded",
            r"(the learning rate was next to nothing for most of the training: )",
            "",
            "step a schedule as often as it counts: after each epoch if it counts epochs (StepLR, ExponentialLR), "
            "after each step if it counts steps, and then with the number of all steps",
            seen="the learning rate was next to nothing for most of the training: less than a millionth of its highest "
            "at 87 % of 480 steps",
            means="what is trained hardly changes any more",
        ),
        Rule(
            "sampler-same-order-each-epoch",
            r"(the DistributedSampler that shuffles has had the same order)",
            "",
            "sampler.set_epoch(epoch) before each pass",
            seen="the DistributedSampler that shuffles has had the same order in all 3 passes: set_epoch was not "
            "called",
            means="training works; each epoch has the batches of the first one",
        ),
        Rule(
            "sampler-read-once",
            r"(the DistributedSampler that shuffles was read once)",
            "",
            "iterate over the loader again in each epoch, as `while True: sampler.set_epoch(n); yield from loader`: "
            "itertools.cycle, and a list of batches, keep those of the first pass, with their augmentation",
            seen="the DistributedSampler that shuffles was read once, and set_epoch called for 9 more epochs: its "
            "batches came again",
            means="training works; each epoch has the batches of the first one, which stay in memory",
        ),
        Rule(
            "state-dict-no-key-matched",
            r"(load_state_dict\(strict=False\) has loaded none of .*)",
            "",
            "load names that the model has: save model.module.state_dict() of DDP's, or remove the prefix "
            "(torch.nn.modules.utils.consume_prefix_in_state_dict_if_present); strict=True fails without it",
            seen="load_state_dict(strict=False) has loaded none of Net's 8 values: it has conv.weight, and the file "
            "module.conv.weight",
            means="the model has the values that it began with",
        ),
        Rule(
            "state-dict-not-copied",
            r"(load_state_dict was given the model's own tensors, and has changed nothing: )",
            "",
            "keep a copy of what is to be restored, as copy.deepcopy(model.state_dict()), or save it: state_dict() "
            "refers to the model's own tensors, which further steps change",
            seen="load_state_dict was given the model's own tensors, and has changed nothing: Net after 800 steps",
            means="the model, and what was kept as the best one, have the values of the last step",
        ),
        Rule(
            "argparse-false-parsed-as-true",
            r"(argparse has taken for True: .*)",
            "",
            "action=argparse.BooleanOptionalAction in place of type=bool, and --name or --no-name: bool() takes any "
            "text for True, but the empty one",
            seen="argparse has taken for True: --freeze False",
        ),
        Rule(
            "ddp-model-changed-after-wrapping",
            r"(DDP does not average the gradients of parameters that it was not given: )",
            "",
            "change the model, and what is frozen in it, before DistributedDataParallel(model), or wrap it again "
            "after; then make the optimizer",
            seen="DDP does not average the gradients of parameters that it was not given: head.weight, head.bias",
            means="layers were put in, or unfrozen, after the model was wrapped: each rank has its own values of them",
        ),
        Rule(
            "layers-not-registered",
            r"(layers that their model does not know are not trained: )",
            "",
            "nn.ModuleList or nn.ModuleDict in place of the list or dict: the layers are in model.parameters() then, "
            "in state_dict(), and move with model.to()",
            seen="layers that their model does not know are not trained: blocks[0] (in a list of Net), blocks[1] (in a "
            "list of Net) and 3 more",
            means="they get gradients, and no optimizer has them; nor has a checkpoint",
        ),
        Rule(
            "optimizer-of-replaced-parameters",
            r"(parameters that get gradients are in no optimizer, and one has others that no model has: )",
            "",
            "make the optimizer after the model has all its layers: it keeps the parameters that it was given",
            seen="parameters that get gradients are in no optimizer, and one has others that no model has: "
            "classifier.1.weight, classifier.1.bias",
            means="a layer was replaced after the optimizer was made: the new one stays as it was initialized",
        ),
        Rule(
            "gradients-never-zeroed",
            r"(gradients are never zeroed: )",
            "",
            "optimizer.zero_grad() before each backward pass, or after each step",
            seen="gradients are never zeroed: each of 400 steps has used those of all before it",
        ),
        Rule(
            "gradients-zeroed-before-step",
            r"(zero_grad discards gradients that no optimizer step has used: )",
            "",
            "to accumulate gradients, call optimizer.zero_grad() only after optimizer.step()",
            seen="zero_grad discards gradients that no optimizer step has used: 250 steps have used the last of up to "
            "8 backward passes each",
            means="the passes before the last one of a step have no effect",
        ),
        Rule(
            "scaled-gradients-clipped",
            r"(gradients were clipped while GradScaler had scaled them: )",
            "",
            "call scaler.unscale_(optimizer) before clip_grad_norm_() or clip_grad_value_(); scaler.step() knows of it",
            seen="gradients were clipped while GradScaler had scaled them: in 160 of 160 steps, to 1 at a scale of "
            "65536",
            means="they are divided by the scale after it, which leaves next to nothing of them",
        ),
        Rule(
            "loss-given-probabilities",
            r"(a loss was given probabilities: )",
            "",
            "give the loss the raw scores: leave out the softmax (or sigmoid) in training, and apply it where "
            "probabilities are looked at; nll_loss takes the output of log_softmax",
            seen="a loss was given probabilities: the input of cross_entropy (or log_softmax) is the output of a "
            "softmax",
            means="the loss applies it again, and the model hardly learns",
        ),
        Rule(
            "workers-repeat-samples",
            r"(the workers of a DataLoader read the same samples: )",
            "",
            "let the data set yield each worker its own part: torch.utils.data.get_worker_info() has its id and how "
            "many there are; and each rank its own, by dist.get_rank() and dist.get_world_size()",
            seen="the workers of a DataLoader read the same samples: each of 2 has all of Stream",
            means="an IterableDataset is copied into each worker, and a pass has all samples as often",
        ),
        Rule(
            "model-differs-between-ranks",
            r"(the model is not that of rank 0 any more: )",
            "",
            "do the same on all ranks: the same learning rate and steps, and a checkpoint loaded by all, or before "
            "DistributedDataParallel(model), which sends the parameters of rank 0 to the others",
            seen="rank 1: the model is not that of rank 0 any more: head.weight differs, as seen after 64 backward "
            "passes",
            means="DDP averages gradients, and expects that all ranks apply them to equal parameters",
        ),
        Rule(
            "loss-target-shape-mismatch",
            r"(torch has warned of a wrong result: .*a target size )",
            "",
            "give the loss predictions and targets of one shape, as prediction.squeeze(-1), or target.unsqueeze(-1): "
            "else each prediction is compared with all targets of the batch",
            seen="torch has warned of a wrong result: Using a target size ([25]) that is different to the input size "
            "([25, 1])",
            means="the model learns the mean of the targets",
        ),
        Rule(
            "activation-checkpoint-without-gradient",
            r"(torch has warned of a wrong result: .*requires_grad)",
            "",
            "checkpoint(..., use_reentrant=False), or let the input of the checkpointed part require gradients",
            seen="torch has warned of a wrong result: None of the inputs have requires_grad=True. Gradients will be "
            "None",
            means="what was checkpointed is not trained",
        ),
        Rule(
            "trained-in-evaluation-mode",
            r"(the model was trained in evaluation mode after an evaluation: )",
            "",
            "call model.train() at the beginning of each epoch, or after the evaluation: model.eval() holds until then",
            seen="the model was trained in evaluation mode after an evaluation: 2 BatchNorm1d, 4 Dropout",
            means="these layers leave nothing out, and learn no statistics, from the first evaluation on",
        ),
        Rule(
            "evaluated-in-training-mode",
            r"(the model was evaluated in training mode: )",
            "",
            "call model.eval() before the evaluation, and model.train() after it: torch.no_grad() alone leaves dropout "
            "on, and lets batch norms learn from what they evaluate",
            seen="the model was evaluated in training mode: 40 passes with 2 BatchNorm1d, 4 Dropout",
            means="what it has measured is worse than the model is, and differs from run to run",
        ),
        Rule(
            "step-with-unaveraged-gradients",
            r"(optimizer steps used gradients that were not averaged over the ranks: )",
            "",
            "leave no_sync() for the last backward pass before optimizer.step(), as `if (i + 1) % n == 0` does, or "
            "set_requires_gradient_sync(True) there: it averages what the passes before have added up",
            seen="optimizer steps used gradients that were not averaged over the ranks: 60 steps of 4 backward passes, "
            "of which the last exchanged nothing",
            means="each rank has a model of its own",
        ),
        Rule(
            "batch-norms-without-batches",
            r"(a model was evaluated whose batch norms have seen no batch: )",
            "",
            "copy buffers along with parameters into an average of the model, as torch's AveragedModel does, "
            "or call torch.optim.swa_utils.update_bn() before it is evaluated; else see whether it is the model that "
            "was trained",
            seen="a model was evaluated whose batch norms have seen no batch: 20 BatchNorm2d of ResNet",
            means="it normalizes by a mean of 0 and a variance of 1: what it predicts is of no use",
        ),
        Rule(
            "optimizer-state-not-resumed",
            r"(a learning rate schedule was resumed, and its optimizer was not: )",
            "",
            "save and load the optimizer's state_dict() along with the schedule's: it has the momentum, and the "
            "learning rate that the schedule has set",
            seen="a learning rate schedule was resumed, and its optimizer was not: CosineAnnealingLR at its step 300",
        ),
        Rule(
            "learning-rate-schedule-not-resumed",
            r"(a learning rate schedule began anew, although its optimizer was resumed: )",
            "",
            "save scheduler.state_dict() with that of the optimizer, and load both; of a checkpoint that lacks it: "
            "call scheduler.step() once for each step that was taken",
            seen="a learning rate schedule began anew, although its optimizer was resumed: LambdaLR at its "
            "first step, the loaded rate was 0.05",
            means="the checkpoint has the optimizer's state, and not that of its schedule",
        ),
        Rule(
            "optimizer-state-not-resumed",
            r"(a checkpoint's optimizer was not loaded: )",
            "",
            "optimizer.load_state_dict(checkpoint['optimizer']) where the model is loaded, and the same for the "
            "scheduler; a run that is to begin anew with the model saves to another file",
            seen="a checkpoint's optimizer was not loaded: last.pt has optimizer; this run goes on from it and saves "
            "it",
            means="momentum and Adam's averages began with zeros, and the learning rate with that of the start",
        ),
        Rule(
            "dataset-stale-in-persistent-workers",
            r"(the persistent workers of a DataLoader do not see what was set in its data set since: )",
            "",
            "persistent_workers=False, or keep it where the workers see it: a tensor after share_memory_(), a "
            "multiprocessing.Value, or with the index that the sampler gives",
            seen="the persistent workers of a DataLoader do not see what was set in its data set since: Digits.epoch "
            "is 1, and 0 in the workers",
            means="each worker has a copy of the data set from the first pass on",
        ),
        Rule(
            "workers-repeat-random-numbers",
            r"(the workers of a DataLoader draw the same numbers in each pass: )",
            "",
            "make the generator in the worker, as it draws the first number of a pass: "
            "numpy.random.default_rng(torch.utils.data.get_worker_info().seed); or torch.rand(), numpy.random and "
            "random, which are seeded anew for each worker and pass",
            seen="the workers of a DataLoader draw the same numbers in each pass: each has a copy of Images.rng",
            means="the augmentations of the first pass come again, and those of one worker with the others",
        ),
        Rule(
            "last-gradients-unused",
            r"(no optimizer step has used the gradients of the last )",
            "",
            "step after an epoch's last batch, too: if (i + 1) % n == 0 or i + 1 == len(loader); else they are added "
            "to the next epoch's first step, or lost at the end",
            seen="no optimizer step has used the gradients of the last 7 backward passes; others have used 8 to 15 "
            "each",
            means="gradients are accumulated over a number of batches that does not divide an epoch's",
        ),
    ),
)
