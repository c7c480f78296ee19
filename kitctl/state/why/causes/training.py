"""Causes in training code: losses, models and gradients. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

TRAINING: Final = Family(
    "Models and gradients",
    "Failed",
    (
        Rule(
            "loss-or-snapshot-not-finite",
            r"NonFiniteLossError: ",
            "",
            "lower the learning rate, clip the gradients, or look at the data of that step; then restart the job: it "
            "continues from the last snapshot before it",
            seen="NonFiniteLossError: the loss of step 13 is nan",
            means="policy.onNonFinite: stop has ended the job there",
        ),
        Rule(
            "loss-or-snapshot-not-finite",
            r"the loss is (?:nan|-?inf|not finite)\b|the snapshots are not finite ",
            "",
            "lower the learning rate, clip the gradients, or look at the data of that step; the last finite snapshot "
            "is kept, and policy.onNonFinite: stop ends such a job",
            seen="the loss is nan since step 31",
        ),
        Rule(
            "parameters-not-finite",
            r"the parameters are not finite",
            "",
            "print the loss, which is NaN or infinite from some step on; lower the learning rate, clip the gradients, "
            "or look at the data of that step, and train from an earlier checkpoint",
            seen="the parameters are not finite, as seen at step 300",
        ),
        Rule(
            "process-group-not-initialized",
            r"[Pp]rocess group has not been initialized",
            "",
            "call torch.distributed.init_process_group() before the first collective",
            seen="Default process group has not been initialized",
        ),
        quoted(
            "dynamic-dimension-specialized",
            r"ConstraintViolationError: Constraints violated|Not all values of [^\n]* are valid because",
            "the code fixes a size that was marked as dynamic (a constant in view(), a comparison, another input of "
            "that size): leave that out, or mark_dynamic() of it, or use maybe_mark_dynamic(), which allows it",
            "ConstraintViolationError: Constraints violated (L['x'].size()[0])! ...",
        ),
        quoted(
            "interop-threads-set-too-late",
            r"cannot set number of interop threads after",
            "torch.set_num_interop_threads() once, at the beginning of the script, before any operation of torch; "
            "set_num_threads() may come later",
            "RuntimeError: Error: cannot set number of interop threads after parallel work has started or "
            "set_num_interop_threads called",
        ),
        quoted(
            "start-method-already-set",
            r"^RuntimeError: context has already been set",
            "set_start_method() once, under if __name__ == '__main__'; a library has it set before: "
            "multiprocessing.get_context('spawn') for what needs another one, as DataLoader(multiprocessing_context=)",
            "RuntimeError: context has already been set",
        ),
        quoted(
            "seed-out-of-range",
            r"Seed must be between 0 and 2\*\*32 - 1|seed must be between 0 and 2\*\*32 - 1",
            "NumPy takes 32 bits, and torch.initial_seed() has 64: seed % 2**32; a negative one is none",
            "ValueError: Seed must be between 0 and 2**32 - 1",
        ),
        Rule(
            "batch-norm-single-sample",
            r"Expected more than 1 value per channel",
            "",
            "a batch of one sample cannot be normalized: DataLoader(..., drop_last=True), or larger batches",
            seen="Expected more than 1 value per channel when training, got input size torch.Size([1, 3])",
        ),
        Rule(
            "dataset-empty",
            r"num_samples should be a positive integer value, but got num_samples=0",
            "",
            "the data set is empty: look at its path on the node, and at what the script leaves out of it",
            seen="num_samples should be a positive integer value, but got num_samples=0",
        ),
        Rule(
            "loss-detached-from-parameters",
            r"does not require grad and does not have a grad_fn",
            "",
            "the loss depends on no parameter: look for torch.no_grad(), set_grad_enabled(False) that nobody undoes, "
            "detach() or item() on its way, and for frozen parameters (requires_grad)",
            seen="element 0 of tensors does not require grad and does not have a grad_fn",
        ),
        Rule(
            "tensors-on-different-devices",
            r"Expected all tensors to be on the same device",
            "",
            "move the model and each batch to one device: .to(device)",
            seen="Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        ),
        Rule(
            "ddp-static-graph-violated",
            r"[Tt]his is not compatible with static_graph set to True",
            "the steps use other parameters than the first, which DistributedDataParallel(static_graph=True) rules out",
            "leave out static_graph=True: find_unused_parameters=True, if some parameters get no gradient in a step",
        ),
        Rule(
            "ddp-unused-parameters",
            r"Expected to have finished reduction in the prior iteration",
            "a step gave some of the model's parameters no gradient, for which DistributedDataParallel waits",
            "let the loss use all of the model's outputs; requires_grad_(False), before the model is wrapped, for what "
            "is not trained, as under no_grad(); or DistributedDataParallel(..., find_unused_parameters=True)",
        ),
        Rule(
            "gradient-norm-not-finite",
            r"The total norm of order \S+ for gradients from `parameters` is non-finite",
            "a gradient is NaN or infinite, and clip_grad_norm_(error_if_nonfinite=True) refuses it",
            "look at that step's data and loss on each rank (torch.isfinite), lower the learning rate; or leave out "
            "error_if_nonfinite, and let all ranks skip such a step",
        ),
        Rule(
            "sync-batch-norm-on-cpu",
            r"SyncBatchNorm (?:layers only work with GPU modules|expected input tensor to be on GPU)",
            "",
            "call convert_sync_batchnorm() for models on GPUs alone: if torch.cuda.is_available(); on CPUs BatchNorm "
            "stays, or GroupNorm, which needs no other ranks",
            seen="ValueError: SyncBatchNorm layers only work with GPU modules",
        ),
        Rule(
            "label-negative",
            r"\bTarget (-\d+) is out of bounds",
            "",
            "{0} is no class: drop samples without a label, or let the loss leave them out, as in "
            "cross_entropy(..., ignore_index={0})",
            seen="IndexError: Target -1 is out of bounds.",
        ),
        Rule(
            "label-out-of-range",
            r"\bTarget \d+ is out of bounds",
            "",
            "labels have to be below the number of classes, which is the size of the model's last layer",
            seen="IndexError: Target 7 is out of bounds.",
        ),
        Rule(
            "ddp-models-differ-across-ranks",
            r"DDP expects same model across all ranks|params?\[\d+\] in this process with (?:sizes|strides)",
            "",
            "build the same model on all ranks: look for what depends on the rank, its data, or an unseeded draw",
            seen="DDP expects same model across all ranks, but ...",
        ),
        Rule(
            "inplace-change-breaks-backward",
            r"modified by an inplace operation",
            "a tensor that the backward pass needs was changed by an inplace operation",
            "torch.autograd.set_detect_anomaly(True) names the line; write y = y + 1 there instead of y += 1",
        ),
        Rule(
            "backward-graph-already-freed",
            r"backward through the graph a second time",
            "",
            "call backward() once for each loss (accelerator.backward(loss) in its place, not besides); compute in "
            "each step what it needs, also what was made before the loop; detach() what is carried over and not to be "
            "trained through, as a hidden state; else retain_graph=True",
            seen="Trying to backward through the graph a second time",
        ),
        quoted(
            "activation-recomputation-differs",
            r"Recomputed values for the following tensors have different metadata"
            r"|different number of tensors was saved "
            r"during the original forward",
            "what is checkpointed has to do the same twice: no branch on a counter or on random numbers in it, the "
            "same autocast, no parameters that change in between; of a quantized or compiled model checkpoint outside "
            "of that",
            "CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different "
            "metadata ...",
        ),
        Rule(
            "sample-sizes-differ-in-batch",
            r"stack expects each tensor to be equal size|each element in list of batch should be of equal size"
            r"|Trying to resize storage that is not resizable",
            "",
            "samples of a batch differ in size: pad or cut them to one length, in the data set or by a collate_fn of "
            "the DataLoader",
            seen="stack expects each tensor to be equal size, but got [5] at entry 0 and [6] at entry 1",
        ),
        Rule(
            "sharded-and-plain-tensors-mixed",
            r"got mixed torch\.Tensor and DTensor",
            "",
            "use a sharded module by calling it, not its weight: for other methods than forward "
            "register_fsdp_forward_method(); an optimizer, and a copy of the model as for an average, are made after "
            "fully_shard(); modules that share a weight are sharded together, in the module above them",
            seen="aten.mm.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor",
        ),
        Rule(
            "torch-compile-data-dependent-branch",
            r"^Unsupported: Data-dependent branching|torch\._dynamo\.exc\..*?Data-dependent branching",
            "",
            "write torch.where() or torch.cond() instead of the `if` on a tensor, or leave out fullgraph=True, which "
            "lets torch.compile go on behind it",
            seen="Unsupported: Data-dependent branching",
        ),
        Rule(
            "torch-compile-tracing-failed",
            r"^Unsupported: |torch\._dynamo\.exc\.",
            "",
            "leave out fullgraph=True, without which torch.compile goes on behind it; or keep that out of what is "
            "compiled: torch.compiler.disable",
            seen="Unsupported: Attempted to call function marked as skipped",
        ),
        Rule(
            "gpu-not-available",
            r"No supported gpu backend found|MPS available but|fp16 mixed precision requires a GPU\b",
            "",
            "no GPU is there: give each node some (--gpus-per-node N), or let the script choose: accelerator='auto', "
            "mixed precision bf16",
            seen="MisconfigurationException: No supported gpu backend found!",
        ),
        Rule(
            "tokenizer-padding-token-missing",
            r"does not have a padding token",
            "",
            "tokenizer.pad_token = tokenizer.eos_token, before the first call with padding",
            seen="ValueError: Asking to pad but the tokenizer does not have a padding token.",
        ),
        Rule(
            "system-compiler-not-found",
            r"InvalidCxxCompiler|No working C\+\+ compiler|Failed to find C compiler",
            "",
            "install a compiler in the image (apt-get install g++), or run without torch.compile: "
            "--env TORCH_COMPILE_DISABLE=1",
            local="install a compiler (g++), or run without torch.compile: --env TORCH_COMPILE_DISABLE=1",
            seen="InvalidCxxCompiler: No working C++ compiler found",
        ),
        Rule(
            "bfloat16-unsupported-by-numpy",
            r"Got unsupported ScalarType BFloat16",
            "",
            "numpy has no bfloat16: .float() before .numpy()",
            seen="TypeError: Got unsupported ScalarType BFloat16",
        ),
        Rule(
            "ddp-device-arguments-invalid",
            r"device_ids and output_device arguments only work with",
            "DDP was given device_ids of a model that is on a CPU, or on several devices",
            "leave out device_ids and output_device of a model on the CPU; on a GPU, model.to(local_rank) comes first",
        ),
        Rule(
            "pipeline-micro-batches-differ",
            r"^RuntimeError: The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton "
            r"dimension 0(?:\n|$)",
            "a pipeline's micro-batches differ in size: {0} and {1}",
            "give each batch a multiple of n_microbatches samples, all of them as many (drop_last=True): a stage keeps "
            "the size of its first micro-batch",
            called=r"/torch/distributed/pipelining/",
            seen="RuntimeError: The size of tensor a (3) must match the size of tensor b (2) at non-singleton "
            "dimension 0",
        ),
        quoted(
            "deep-copy-of-computed-tensor",
            r"^RuntimeError: Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy",
            "what is copied keeps a result of its own, as self.features = ...: detach() what it keeps; or make a new "
            "model and load_state_dict() into it",
            "RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy ...",
        ),
        Rule(
            "ddp-parameter-ready-twice",
            r"mark a variable ready only once|marked as ready twice",
            "a parameter of DDP's model has got its gradient twice in one backward pass",
            "checkpoint(..., use_reentrant=False), in a Hugging Face Trainer by gradient_checkpointing_kwargs; or "
            "DistributedDataParallel(..., static_graph=True)",
            means="a block is checkpointed with use_reentrant=True, or a layer is used outside of forward()",
        ),
        Rule(
            "accelerator-already-initialized",
            r"(?:Accelerator|Partial)State has already been initialized",
            "",
            "make one Accelerator, with all its options, ahead of all else that makes one",
            seen="ValueError: AcceleratorState has already been initialized and cannot be changed, ...",
        ),
        Rule(
            "best-model-metric-unknown",
            r"`metric_for_best_model` training argument is set to",
            "",
            "name one of those that compute_metrics returns, or eval_loss: metric_for_best_model",
            seen="KeyError: The `metric_for_best_model` training argument is set to 'eval_f1', ...",
        ),
        Rule(
            "model-returned-no-loss",
            r"did not return a loss from the inputs",
            "",
            "the data set lacks what the model takes as labels: name that column labels, or list it in label_names",
            seen="ValueError: The model did not return a loss from the inputs, ...",
        ),
        Rule(
            "dispatched-batch-sizes-differ",
            r"can't use batches of different size with `dispatch_batches=True`",
            "the first process of accelerate cannot join batches of different sizes, which it hands to the others",
            "let each process fetch its own: DataLoaderConfiguration(dispatch_batches=False), in a Trainer by "
            "accelerator_config; or pad all samples to one length",
        ),
        Rule(
            "sampled-dataset-without-length",
            r"^TypeError: object of type '([^']*)' has no len\(\)",
            "a DistributedSampler needs the data set's length, and {0} has none",
            "leave out the sampler of an IterableDataset: let it yield each rank its own part, by RANK and WORLD_SIZE",
            called=r"torch/utils/data/distributed\.py",
            seen="TypeError: object of type 'Shards' has no len()",
        ),
        Rule(
            "iterable-dataset-with-sampler",
            r"DataLoader with IterableDataset: expected unspecified \w+ option",
            "",
            "leave out sampler, batch_sampler and shuffle: an IterableDataset has an order of its own; let it yield "
            "each rank its own part",
            seen="ValueError: DataLoader with IterableDataset: expected unspecified sampler option, but got ...",
        ),
        Rule(
            "learning-rate-steps-exceeded",
            r"Tried to step \d+ times\. The specified number of total steps is \d+",
            "",
            "total_steps is how often scheduler.step() is called: epochs * len(loader), of each rank's loader; or call "
            "it less often, as after each epoch",
            seen="ValueError: Tried to step 151 times. The specified number of total steps is 150",
        ),
        Rule(
            "ddp-without-trainable-parameters",
            r"DistributedDataParallel is not needed when a module doesn't have any parameter",
            "",
            "if it is to be trained, something has frozen too much: freeze first, then add what is trained (adapters, "
            "LoRA), or requires_grad_(True) there; if it is frozen as it should be, use the module itself, without DDP",
            seen="RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameter ...",
        ),
        Rule(
            "ddp-unused-parameters",
            r"LightningModule has parameters that were not used in",
            "",
            "Trainer(strategy='ddp_find_unused_parameters_true'), or remove or freeze what the loss does not use",
            seen="RuntimeError: It looks like your LightningModule has parameters that were not used in ...",
        ),
        Rule(
            "embedding-index-out-of-range",
            r"index out of range in self(?![\w-])",
            "",
            "an index is beyond the embedding: use the model's own tokenizer, or "
            "model.resize_token_embeddings(len(tokenizer)); of positions, cut the texts (truncation=True, "
            "max_length=...); indices begin at 0",
            seen="IndexError: index out of range in self",
        ),
        Rule(
            "cuda-in-forked-process",
            r"Cannot re-initialize CUDA in forked subprocess",
            "",
            "DataLoader(..., multiprocessing_context='spawn'), or use no GPU in what its workers do",
            seen="RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
        ),
        Rule(
            "input-weight-type-mismatch",
            r"Input type \(.*?\) and weight type \(.*?\) should be the same",
            "",
            "move the model and each batch to one device, and give them one type: .to(device, dtype)",
            seen="RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the "
            "same",
        ),
        Rule(
            "tensor-types-mismatch",
            r"expected (?:m1 and m2 to have the same dtype"
            r"|scalar type (?:Float|Double|Half|BFloat16|Int|Bool|Byte) but found)"
            r"|mat1 and mat2 must have the same dtype",
            "",
            "give both tensors one type, as by .float(), or compute within torch.autocast, which does so",
            seen="RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Double",
            means="what numpy has made is Double",
        ),
        Rule(
            "process-group-device-unsupported",
            r"No backend type associated with device type|Tensors must be CUDA and dense",
            "",
            "the process group exchanges no tensors of that device: init_process_group('cpu:gloo,cuda:nccl'), or "
            "move the tensor with .to(device)",
            seen="RuntimeError: No backend type associated with device type cpu",
        ),
        Rule(
            "data-loader-timeout",
            r"DataLoader timed out after \d+ seconds",
            "",
            "a worker has taken longer than the loader's timeout: raise that, or see what its data set waits for: "
            "num_workers=0 shows the line",
            seen="RuntimeError: DataLoader timed out after 5 seconds",
        ),
        Rule(
            "sample-not-collatable",
            r"default_collate: batch must contain|Could not infer dtype of NoneType",
            "",
            "the data set gives None, or what cannot be stacked, for a sample: leave such samples out, or write a "
            "collate_fn",
            seen="TypeError: default_collate: batch must contain tensors, ...; found <class 'NoneType'>",
        ),
        Rule(
            "triton-not-usable",
            r"BackendCompilerFailed: .*?(?:triton|Triton)|Cannot find a working triton installation",
            "",
            "install the triton that this torch was built with, or run without torch.compile: --env "
            "TORCH_COMPILE_DISABLE=1",
            seen="BackendCompilerFailed: backend='inductor' raised: RuntimeError: Cannot find a working triton "
            "installation",
        ),
        Rule(
            "number-read-as-text",
            # Not those that sort a list make, of numbers and texts.
            r"'(?:<=|>=|>)' not supported between instances of '(?:float|int)' and 'str'"
            r"|'<' not supported between instances of 'float' and 'str'",
            "",
            "a number was read as text: YAML takes 1e-4 for text and 1.0e-4 for a number; or float(...)",
            seen="TypeError: '<=' not supported between instances of 'float' and 'str'",
        ),
    ),
    of_code=True,
)
