"""Causes in checkpoints that a script saves and loads. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

CHECKPOINTS: Final = Family(
    "Checkpoints of the script",
    "Failed",
    (
        quoted(
            "unsharded-state-in-sharded-model",
            r"Error\(s\) in loading state_dict for .*?mixed torch\.Tensor and DTensor|Error\(s\) in loading state_dict "
            r"for .*?\bto DTensor before calling",
            "a whole state goes into a sharded model by torch.distributed.checkpoint.state_dict.set_model_state_dict("
            "model, state, options=StateDictOptions(full_state_dict=True)); or load it before fully_shard()",
            "RuntimeError: Error(s) in loading state_dict for FSDPNet: ... got mixed torch.Tensor and DTensor, need to "
            "convert all torch.Tensor to DTensor before calling distributed operators!",
        ),
        quoted(
            "compiled-model-keys-mismatch",
            r"Error\(s\) in loading state_dict for .*?\b_orig_mod\.",
            "keys that begin with _orig_mod. are of torch.compile's wrapper: save model._orig_mod.state_dict(), or "
            "compile in place (model.compile()); of a file that is there: key.replace('_orig_mod.', '')",
            'Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "0.weight". Unexpected key(s) in '
            'state_dict: "_orig_mod.0.weight".',
        ),
        quoted(
            "checkpoint-shape-mismatch",
            r"Error\(s\) in loading state_dict for .*?size mismatch for (\S+): .*?torch\.Size\((\[[^\]]*\])\) from "
            r"checkpoint, the shape in current model is torch\.Size\((\[[^\]]*\])\)",
            "{0} is {1} in the checkpoint, and {2} in the model: build the model as it was (number of classes, size of "
            "the vocabulary), or delete such keys from the state and load the rest with strict=False",
            "Error(s) in loading state_dict for Net: size mismatch for fc.weight: copying a param with shape "
            "torch.Size([1000, 512]) from checkpoint, the shape in current model is torch.Size([10, 512]).",
        ),
        Rule(
            "checkpoint-model-mismatch",
            r"Error\(s\) in loading state_dict for",
            "",
            "load it into the model that it was saved of; keys that begin with module. are of DDP's wrapper: save "
            "model.module.state_dict()",
            seen="Error(s) in loading state_dict for Net: ...",
        ),
        Rule(
            "checkpoint-is-pointer-or-damaged",
            r"UnpicklingError: .*?Unsupported operand 118\b|invalid load key, 'v'"
            r"|Error while deserializing header: .*?[Tt]oo ?[Ll]arge",
            "the checkpoint is none: its file is a pointer of git lfs, or damaged",
            "fetch the file itself, as by git lfs pull in its folder, before it is sent or mounted; `head -c 100` "
            "shows what it is",
        ),
        Rule(
            "checkpoint-is-web-page",
            r"UnpicklingError: .*?Unsupported operand 60\b|invalid load key, '<'",
            "the checkpoint is none: its file is a page of HTML",
            "its download was answered by a page, perhaps one to log in: get it again, with a token if it needs one",
        ),
        Rule(
            "checkpoint-not-weights-only",
            r"Weights only load failed",
            "",
            "torch.load(..., weights_only=False) if you trust the file; or save nothing but state_dicts",
            seen="UnpicklingError: Weights only load failed",
        ),
        Rule(
            "gradient-scaler-not-in-checkpoint",
            r"^KeyError: 'scale'(?:\n|$)",
            "the checkpoint has no state of a GradScaler",
            "save scaler.state_dict() with the others'; of one that was saved without, as without mixed precision, "
            "load the rest alone",
            called=r"grad_scaler\.py\", line \d+, in load_state_dict",
            seen="KeyError: 'scale'",
        ),
        Rule(
            "checkpoint-damaged-or-incomplete",
            r"PytorchStreamReader failed|failed finding central directory|unexpected EOF, expected \d+ more bytes"
            r"|record size \(\d+ bytes\) does not match expected size",
            "",
            "use an earlier one; let one rank write a checkpoint, to another name first, and os.replace() it when "
            "complete",
            seen="PytorchStreamReader failed reading zip archive: ...",
        ),
        Rule(
            "checkpoint-metadata-missing",
            r"metadata is None; global metadata read failed|No such file or directory: '[^']*/\.metadata'",
            "",
            "that folder holds no whole checkpoint of torch.distributed.checkpoint, whose .metadata is written last: "
            "load the one before; all ranks have to name one folder (a checkpoint_id without the rank) that all nodes "
            "share: --outputs FOLDER",
            seen="AssertionError: metadata is None; global metadata read failed: ...",
        ),
        Rule(
            "checkpoint-not-found",
            r"No valid checkpoint found in output directory",
            "",
            "resume only if there is one: resume_from_checkpoint=get_last_checkpoint(output_dir), which gives None",
            seen="ValueError: No valid checkpoint found in output directory (out)",
        ),
        Rule(
            "checkpoint-from-newer-torch",
            r"Attempted to read a PyTorch file with version|PyTorch installation may be too old",
            "",
            "the file was written by a newer torch: use an image, or requirements, with that one",
            local="the file was written by a newer torch: install that one",
            seen="Attempted to read a PyTorch file with version 11, but the maximum supported version is 10",
        ),
        Rule(
            "checkpoint-needs-gpu",
            r"Attempting to deserialize object on a CUDA device",
            "the checkpoint was saved on a GPU, and torch.cuda.is_available() is False: no CUDA device here",
            "torch.load(..., map_location='cpu')",
        ),
        Rule(
            "checkpoint-write-failed",
            r"enforce fail at .*?unexpected pos \d+ vs \d+|PytorchStreamWriter failed",
            "the checkpoint could not be written to its end: the disk or the quota is full, or its folder is gone",
            "free space there, or save to a larger volume: df -h on the node shows what is left",
        ),
        Rule(
            "output-folder-not-found",
            r"Parent directory (\S+) does not exist",
            "the node has no folder {0}, into which it should save",
            "os.makedirs('{0}', exist_ok=True) before, on each node; or a folder in $KIT_SNAPSHOT_DIR, which all "
            "nodes share",
        ),
        quoted(
            "checkpoint-file-not-writable",
            r"^RuntimeError: File \S+ cannot be opened",
            "the rank may not write there: a folder in $KIT_SNAPSHOT_DIR, which all nodes share, or a volume of your "
            "own: --volume",
            "RuntimeError: File /data/model.pt cannot be opened.",
            local="the rank may not write there: see who owns that folder, or save to another",
        ),
        quoted(
            "checkpoint-format-invalid",
            r"Invalid magic number; corrupt file\?",
            "the file is no checkpoint of torch.save(), or damaged: `head -c 100` shows what it is; of safetensors "
            "safetensors.torch.load_file()",
            "RuntimeError: Invalid magic number; corrupt file?",
        ),
        Rule(
            "checkpoint-key-missing",
            r"[Mm]issing key in checkpoint state_dict",
            "",
            "load it into the model that it was saved of; what may be missing: "
            "DefaultLoadPlanner(allow_partial_load=True)",
            seen="RuntimeError: Missing key in checkpoint state_dict: model.0.weight.",
        ),
        quoted(
            "optimizer-state-not-consolidated",
            r"^RuntimeError: Optimizer state has not been consolidated on this rank",
            "all ranks call optimizer.consolidate_state_dict(to=0), and then rank 0 state_dict()",
            "RuntimeError: Optimizer state has not been consolidated on this rank. Please call ...",
        ),
        Rule(
            "optimizer-state-size-mismatch",
            r"The size of tensor a (\(\d+\) must match the size of tensor b \(\d+\))",
            "the optimizer's state that was loaded is of other parameters: its size {0}",
            "begin with a new optimizer, or load the state of the same model: parameters in the same order, and whole, "
            "or in the parts of a run with as many ranks",
            called=r"/torch/optim/(?!lr_scheduler)[^\n]*(?:\n(?! *File )[^\n]*)*\Z",  # the innermost frame
            seen="RuntimeError: The size of tensor a (841) must match the size of tensor b (1681) at non-singleton ...",
        ),
    ),
    of_code=True,
)
