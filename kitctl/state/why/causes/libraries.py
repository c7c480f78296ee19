"""Causes in what is installed, and in libraries above torch: models, trainers, configurations, trackers. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, quoted

_PACKAGES: Final = "name them in a file for --requirements, or install them for the ranks' Python"
LIBRARIES: Final = Family(
    "Libraries and configurations",
    "Failed",
    (
        # What is installed.
        quoted(
            "packaging-module-removed",
            r"^ModuleNotFoundError: No module named '(?:pkg_resources|distutils)\b",
            "newer versions of setuptools and Python have it no more: setuptools<81 in a file for --requirements, or a "
            "newer version of the package that imports it",
            "ModuleNotFoundError: No module named 'pkg_resources'",
        ),
        quoted(
            "differently-named-package-missing",
            r"^ModuleNotFoundError: No module named '(?:cv2|PIL|sklearn|skimage|yaml|dotenv|git|bs4|dateutil|attr)\b",
            "its package has another name: opencv-python-headless has cv2, pillow PIL, scikit-learn sklearn, "
            "scikit-image skimage, pyyaml yaml, python-dotenv dotenv, gitpython git, beautifulsoup4 bs4, "
            "python-dateutil dateutil, attrs attr; name it in a file for --requirements, or install it for the "
            "ranks' Python",
            "ModuleNotFoundError: No module named 'cv2'",
        ),
        quoted(
            "extension-binary-incompatible",
            r"undefined symbol: |DLL load failed|cannot import name '[^']*' from 'torch\._C'",
            "that package was built for another torch, or another CUDA: install its build for the torch that runs "
            "(pip install --no-build-isolation --force-reinstall, or another wheel)",
            "ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        ),
        quoted(
            "torch-domain-library-mismatch",
            r"operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops"
            r"|Could not load this library: \S*torch",
            "torchvision or torchaudio is not of this torch: install those of its release together, from one index",
            "RuntimeError: operator torchvision::nms does not exist",
        ),
        quoted(
            "numpy-version-incompatible",
            r"Numpy is not available|numpy\.core\.multiarray failed to import|was removed in the NumPy 2\.0 release",
            "a package is older than NumPy 2: numpy<2 in --requirements, or a newer package",
            "RuntimeError: Numpy is not available",
        ),
        quoted(
            "protobuf-version-incompatible",
            r"Descriptors cannot be created directly|Couldn't build proto file into descriptor pool",
            "protobuf is too new for a package: protobuf<=3.20.3 in --requirements, or --env "
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python",
            "TypeError: Descriptors cannot be created directly.",
        ),
        quoted(
            "ninja-missing",
            r"Ninja is required to load C\+\+ extensions",
            "ninja in --requirements, or installed for the ranks' Python",
            "RuntimeError: Ninja is required to load C++ extensions",
        ),
        quoted(
            "extension-build-failed",
            r"CUDA_HOME (?:environment variable is not set|does not exist)|detected CUDA version \(\S+\) mismatches"
            r"|Error building extension|MissingCUDAException|No such file or directory: '[^']*/bin/nvcc'",
            "it compiles for the GPU, which needs nvcc of torch's CUDA and a compiler: an image with them "
            "(pytorch/pytorch:...-devel), or a wheel that is built already",
            "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        ),
        quoted(
            "torch-compile-unsupported-python",
            r"(?:Dynamo|torch\.compile) is not supported on Python|not yet supported for torch\.compile",
            "an image with an older Python or a newer torch; or --env TORCH_COMPILE_DISABLE=1",
            "RuntimeError: Dynamo is not supported on Python 3.14+",
        ),
        quoted(
            "torch-compile-recompiles",
            r"FailOnRecompileLimitHit",
            "what is compiled depends on a value that changes, mostly in each step: the line 'last reason' in the log "
            "names it; keep a counter in a tensor (register_buffer) or out of it, for shapes mark_dynamic or "
            "dynamic=True; without fullgraph=True it goes on uncompiled",
            "FailOnRecompileLimitHit: recompile_limit reached with one_graph=True.",
        ),
        quoted(
            "torch-compile-failed",
            r"InternalTorchDynamoError|TorchRuntimeError: |LoweringException",
            "torch.compile fails there: torch.compiler.disable on that function, dynamic=True if shapes change, or "
            "--env TORCH_COMPILE_DISABLE=1 to see the error without it",
            "InternalTorchDynamoError: AttributeError: 'NoneType' object has no attribute 'shape'",
        ),
        quoted(
            "plot-backend-needs-display",
            r"^ImportError: Cannot load backend '\w+' which requires the '\w+' interactive framework",
            "ranks have no screen: --env MPLBACKEND=Agg, and no matplotlib.use() or plt.switch_backend() of others",
            "ImportError: Cannot load backend 'TkAgg' which requires the 'tk' interactive framework, as ...",
        ),
        quoted(
            "desktop-library-not-found",
            r"libGL\.so\.1|libgthread-2\.0\.so",
            "opencv-python-headless instead of opencv-python, which needs no screen",
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        ),
        quoted(
            "optional-dependency-missing",
            r"requires (?:the following packages that were not found|the \S+ library but it was not found)"
            r"|seems to be not installed|requires `?(?:accelerate|bitsandbytes|peft|sentencepiece|tiktoken)\b",
            f"packages are missing: {_PACKAGES}",
            "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`: Please run ...",
        ),
        quoted(
            "language-resource-not-found",
            r"Resource \S+ not found\.\s+Please use the NLTK Downloader|\[E050\] Can't find model",
            "download it in the image, or to a volume, and name that folder: --env NLTK_DATA=... (spaCy: its wheel in "
            "--requirements)",
            "LookupError: Resource punkt not found. Please use the NLTK Downloader to obtain the resource:",
        ),
        # The hub, transformers, datasets, accelerate.
        quoted(
            "model-or-dataset-not-found",
            r"Repository Not Found for url|RepositoryNotFoundError|is not a valid model identifier listed on"
            r"|doesn't exist on the Hub or cannot be accessed|Couldn't find (?:a|any) (?:dataset|data file)",
            "check the name; if it is a private one, a token that may read it: --env HF_TOKEN; if it is a folder, its "
            "path on the node (--volume, or sent with --workdir)",
            "OSError: x/y is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'",
        ),
        quoted(
            "model-folder-missing-or-incomplete",
            r"Repo id must (?:be in the form|use alphanumeric)|Can't load (?:tokenizer|the model|the configuration"
            r"|config|"
            r"feature extractor|image processor|processor) ",
            "the node has no such folder, so it is taken for a name on the hub: mount it (--volume) or send it "
            "(--send), and save model and tokenizer there, both",
            "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/data/model'.",
        ),
        quoted(
            "repository-file-not-found",
            r"does not appear to have (?:a file named|files named)|Error no file named|Entry Not Found for url",
            "that folder, or repository, has no such file: a checkpoint that was not written to its end, a folder "
            "above or below the right one, or an adapter alone (load it with peft)",
            "OSError: Error no file named pytorch_model.bin, model.safetensors found in directory out.",
        ),
        quoted(
            "output-folder-already-used",
            r"Output directory \([^)]*\) already exists and is not empty",
            "an earlier run has left it, or this one, before its ranks were started again: --resume_from_checkpoint "
            "goes on from what is in it, --overwrite_output_dir starts anew",
            "ValueError: Output directory (out) already exists and is not empty. Use --overwrite_output_dir ...",
        ),
        quoted(
            "hub-revision-not-found",
            r"Revision Not Found|RevisionNotFoundError|Invalid rev id",
            "the repository has no such branch, tag or commit: revision=",
            "RevisionNotFoundError: 404 Client Error. Revision Not Found for url: ...",
        ),
        quoted(
            "model-architecture-unknown",
            r"^KeyError: '[\w-]+'",
            "a newer transformers, by --requirements, if it is the model's type that it does not know",
            "KeyError: 'qwen3'",
            called=r"/transformers/models/auto/[^\n]*(?:\n(?! *File )[^\n]*)*\Z",
        ),
        quoted(
            "model-architecture-unknown",
            r"Transformers does not recognize this architecture|Tokenizer class \w+ does not exist"
            r"|Unrecognized (?:configuration class|model in)",
            "a newer transformers, by --requirements; or, if the model brings its own code, trust_remote_code=True",
            "ValueError: The checkpoint you are trying to load has model type `x` but Transformers does not recognize "
            "this architecture.",
        ),
        quoted(
            "remote-code-not-trusted",
            r"requires you to execute the (?:configuration|modeling|dataset) (?:file|script)"
            r"|contains custom code which must be executed",
            "trust_remote_code=True, if you have read that code; without a terminal nobody can be asked",
            "ValueError: Loading x/y requires you to execute the configuration file in that repo on your local "
            "machine.",
        ),
        quoted(
            "dataset-script-unsupported",
            r"Dataset scripts are no longer supported",
            "datasets<4 in --requirements, or the data set's branch with Parquet files: "
            "revision='refs/convert/parquet'",
            "RuntimeError: Dataset scripts are no longer supported, but found x.py",
        ),
        quoted(
            "dataset-split-or-configuration-unknown",
            r"Unknown split \"[^\"]*\"\. Should be one of|BuilderConfig '[^']*' not found|Bad split: ",
            "name one of those that the message lists: load_dataset(name, configuration, split=...)",
            "ValueError: Unknown split \"train\". Should be one of ['test'].",
        ),
        quoted(
            "dataset-generation-failed",
            r"DatasetGeneration(?:Cast)?Error|Couldn't cast array of type|because column names don't match",
            "a file of the data set has other columns or types than the others: features=..., or only files of one "
            "kind: data_files=",
            "DatasetGenerationError: An error occurred while generating the dataset",
        ),
        quoted(
            "download-incomplete",
            r"Consistency check failed: file should be of size",
            "the download was cut short: try again, or remove that file from HF_HOME; check that its disk is not full",
            "OSError: Consistency check failed: file should be of size 100 but has size 50 (model.safetensors).",
        ),
        quoted(
            "adapter-target-modules-invalid",
            r"Target modules? .*?(?:not found in the base model|is not supported)",
            "print(model) shows the layers' names: target_modules='all-linear', or those of this kind of model",
            "ValueError: Target modules {'q_proj', 'v_proj'} not found in the base model.",
        ),
        quoted(
            "evaluation-dataset-missing",
            r"evaluation requires an eval_dataset|didn't pass an `eval_dataset`",
            "Trainer(..., eval_dataset=...), or eval_strategy='no'",
            "ValueError: Trainer: evaluation requires an eval_dataset.",
        ),
        quoted(
            "model-padding-token-unset",
            r"Cannot handle batch sizes > 1 if no padding token is defined",
            "model.config.pad_token_id = tokenizer.pad_token_id, and a tokenizer with a padding token",
            "ValueError: Cannot handle batch sizes > 1 if no padding token is defined.",
        ),
        quoted(
            "model-input-lengths-mismatch",
            r"Image features and image tokens do not match|Attention mask should be of size",
            "the text was cut, or padded, apart from its pictures or its mask: a larger max_length, and one processor "
            "for both",
            "ValueError: Image features and image tokens do not match: tokens: 0, features 1024",
        ),
        quoted(
            "torch-internal-name-missing",
            r"No module named 'torch\._six'|cannot import name '_\w+' from 'torch\.",
            "the script, or a package, is written for an older torch: a newer version of that package, or an image "
            "with that torch",
            "ModuleNotFoundError: No module named 'torch._six'",
        ),
        quoted(
            "save-and-evaluation-strategy-differ",
            r"load_best_model_at_end requires the save and eval strategy to match",
            "save_strategy and eval_strategy alike, and save_steps a multiple of eval_steps",
            "ValueError: --load_best_model_at_end requires the save and eval strategy to match, but found ...",
        ),
        quoted(
            "device-lacks-half-precision",
            r"\(`--fp16`\)[^\n]* can only be used on|doesn't support bf16/gpu",
            "no such GPU is here: GPUs for the nodes (--gpus-per-node N; bf16 from Ampere on), or leave out fp16 and "
            "bf16",
            "ValueError: Your setup doesn't support bf16/gpu.",
        ),
        quoted(
            "model-loading-conflicts-with-strategy",
            r"loaded with `device_map='auto'` in any distributed mode|not compatible with `low_cpu_mem_usage=True`"
            r"|DeepSpeed Zero-3 is not compatible",
            "leave out device_map and low_cpu_mem_usage: each rank loads the model to its own GPU, or the strategy "
            "shards it",
            "ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed "
            "mode.",
        ),
        quoted(
            "quantized-model-not-trainable",
            r"cannot perform fine-tuning on purely quantized models",
            "train an adapter on it: peft.get_peft_model(model, LoraConfig(...)), after "
            "prepare_model_for_kbit_training()",
            "ValueError: You cannot perform fine-tuning on purely quantized models.",
        ),
        quoted(
            "model-input-columns-missing",
            r"Batch does not contain any data \(`None`\)|No columns in the dataset match the model's forward"
            r"|to this method that includes input_ids, but you provided",
            "no column is left that forward() takes: tokenize the data, or remove_unused_columns=False with a collator "
            "of your own",
            "ValueError: No columns in the dataset match the model's forward method signature.",
        ),
        # DeepSpeed, Lightning.
        quoted(
            "batch-size-settings-inconsistent",
            r"Check batch related parameters",
            "train_batch_size = micro batch * accumulation * ranks: set it to 'auto', or leave one of them out, since "
            "the number of ranks is the job's",
            "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "...",
        ),
        quoted(
            "gradients-overflow-each-step",
            r"loss scale already at minimum",
            "the gradients overflow at each step: bf16, a lower learning rate, clipped gradients; look at the first "
            "batch",
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        ),
        quoted(
            "trainer-devices-invalid",
            r"You requested gpu: \[|`Trainer\(devices=\S+\)` value is not valid|but your machine only has"
            r"|But your machine only has",
            "devices is the ranks of a node: leave it 'auto', num_nodes to kitctl's --nodes, and --gpus-per-node N "
            "for GPUs",
            "MisconfigurationException: You requested gpu: [0, 1] But your machine only has: []",
        ),
        quoted(
            "monitored-metric-not-logged",
            r"could not find the monitored key in the returned metrics|Early stopping conditioned on metric",
            "self.log() that name in validation_step, or name one of those that the message lists: monitor=",
            "MisconfigurationException: ModelCheckpoint(monitor='val_loss') could not find the monitored key in the "
            "returned metrics: ...",
        ),
        quoted(
            "trainer-devices-launcher-mismatch",
            r"You set `devices=\d+`(?: and `num_nodes=\d+`)? in Lightning, but",
            "Trainer(devices=int(os.environ['LOCAL_WORLD_SIZE']), num_nodes=N) with the job's own --procs-per-node and "
            "--nodes: kitctl starts the ranks, and Lightning none",
            "ValueError: You set `devices=4` and `num_nodes=2` in Lightning, but the product (4 * 2) does not ...",
        ),
        quoted(
            "validation-interval-too-large",
            r"`val_check_interval` \(\d+\) must be less than or equal to the number of",
            "each rank has its share of the batches: a smaller val_check_interval, a part of an epoch as 0.5, or "
            "check_val_every_n_epoch=None, which counts on over epochs",
            "ValueError: `val_check_interval` (100) must be less than or equal to the number of the training ...",
        ),
        quoted(
            "model-not-lightning-module",
            r"must be a `LightningModule`",
            "lightning and pytorch_lightning are two packages: import both, model and trainer, from one",
            "TypeError: `model` must be a `LightningModule` or `torch._dynamo.OptimizedModule`, got `Net`",
        ),
        # Hydra, OmegaConf.
        quoted(
            "configuration-key-unknown",
            r"(?:Key '[^']*' is not in struct|Could not override '[^']*')",
            "the configuration has no such key: mend the name, or +KEY=VALUE adds one",
            "ConfigAttributeError: Key 'lrr' is not in struct",
        ),
        quoted(
            "configuration-value-missing",
            r"MissingMandatoryValue: Missing mandatory value: (\S+)",
            "give it: {0}=... among the script's arguments",
            "MissingMandatoryValue: Missing mandatory value: data.path",
        ),
        quoted(
            "configuration-interpolation-unresolved",
            r"Interpolation key '[^']*' not found|InterpolationKeyError"
            r"|InterpolationResolutionError: .*?[Ee]nvironment variable '[^']*' not found",
            "what ${{...}} names is not set: that key, or the variable of the environment (--env NAME)",
            "InterpolationKeyError: Interpolation key 'x' not found",
        ),
        quoted(
            "configuration-not-found",
            r"MissingConfigException: |In '[^']*': Could not find '",
            "send the folder of the configuration with the script (--workdir); config_path is relative to the script",
            "MissingConfigException: In 'train': Could not find 'model/resnet'",
        ),
        quoted(
            "configuration-target-failed",
            r"Error (?:locating target|in call to target|instantiating) '([^']+)'",
            "{0} cannot be imported or called: its own error is above; modules of your own have to be sent, next to "
            "the script",
            "InstantiationException: Error locating target 'models.Net', set env var HYDRA_FULL_ERROR=1 to see ...",
        ),
        # Trackers.
        quoted(
            "wandb-access-failed",
            r"wandb[\w.]*(?:CommError|AuthenticationError)|upsert bucket|Run initialization has timed out"
            r"|API key must be 40 characters",
            "check --env WANDB_API_KEY, entity and project, which that key has to be allowed; without a way to the "
            "server --env WANDB_MODE=offline",
            "CommError: failed to upsert bucket: returned error 403: permission denied",
        ),
        quoted(
            "tracking-run-already-active",
            r"Run with UUID \S+ is already active",
            "one run a process, by rank 0 alone: mlflow.end_run() before, or start_run(nested=True)",
            "Exception: Run with UUID abc is already active.",
        ),
        quoted(
            "tracking-parameter-changed",
            r"Changing param values is not allowed",
            "a run that goes on has that parameter already: log parameters at the first start only, or not by each "
            "rank",
            "MlflowException: Changing param values is not allowed. Param with key='lr' was already logged ...",
        ),
    ),
)
