"""Causes in data: loaders, data sets, and the files that they read. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

DATA: Final = Family(
    "Data sets and their files",
    "Failed",
    (
        quoted(
            "data-loader-worker-native-crash",
            r"DataLoader worker .* (?:killed by signal: (?:Segmentation|Aborted|Floating|Illegal)[^.]*)",
            "native code of the data set crashes in a worker: num_workers=0 shows the line; of OpenCV and other "
            "libraries with threads cv2.setNumThreads(0), or multiprocessing_context='spawn'",
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault.",
        ),
        quoted(
            "pin-memory-failed",
            r"Pin memory thread exited unexpectedly|cannot pin '[^']*' only dense CPU tensors",
            "let the data set give CPU tensors, which the loop moves to the GPU; or pin_memory=False",
            "RuntimeError: cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
        ),
        Rule(
            "dataset-sample-is-none",
            r"^AttributeError: 'NoneType' object has no attribute",
            "the data set gives None for a sample",
            "where it cannot read one, let __getitem__ give another; or leave None out in a collate_fn: "
            "default_collate([one for one in batch if one is not None])",
            called=r"/data/_utils/collate\.py",
        ),
        quoted(
            "sampler-shuffle-conflict",
            r"sampler option is mutually exclusive with shuffle",
            "shuffle=True is the sampler's: DistributedSampler(data, shuffle=True), and sampler.set_epoch(epoch)",
            "ValueError: sampler option is mutually exclusive with shuffle",
        ),
        quoted(
            "batch-sampler-options-conflict",
            r"batch_sampler option is mutually exclusive with",
            "batch_size, shuffle, sampler and drop_last are the batch_sampler's: leave them out of the DataLoader",
            "ValueError: batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last",
        ),
        quoted(
            "data-loader-worker-options-invalid",
            r"prefetch_factor option could only be specified|persistent_workers option needs num_workers"
            r"|multiprocessing_context can only be used with multi-process loading|"
            r"timeout option should be non-negative",
            "with num_workers=0 leave out prefetch_factor, persistent_workers and multiprocessing_context",
            "ValueError: persistent_workers option needs num_workers > 0",
        ),
        quoted(
            "dataset-length-mismatch",
            r"AssertionError: Size mismatch between tensors|ValueError: Size mismatch between datasets",
            "inputs and labels differ in number: print their len(); both have to be split, filtered and cut alike",
            "AssertionError: Size mismatch between tensors",
        ),
        quoted(
            "batch-size-zero",
            r"batch_size should be a positive integer value, but got batch_size=0",
            "the batch is smaller than the number of ranks that it is divided by: a larger one, or fewer ranks",
            "ValueError: batch_size should be a positive integer value, but got batch_size=0",
        ),
        quoted(
            "sampler-rank-out-of-range",
            r"Invalid rank \d+, rank should be in the interval",
            "DistributedSampler(data) without rank and num_replicas takes the process group's; LOCAL_RANK is no rank",
            "ValueError: Invalid rank 2, rank should be in the interval [0, 1]",
        ),
        quoted(
            "split-lengths-mismatch",
            r"Sum of input lengths does not equal the length of the input dataset",
            "random_split(data, [0.8, 0.2]) takes shares; numbers have to add up to len(data)",
            "ValueError: Sum of input lengths does not equal the length of the input dataset!",
        ),
        quoted(
            "class-folders-missing-or-empty",
            r"Couldn't find any class folder in|Found no valid file for the classes",
            "ImageFolder takes ROOT/CLASS/PICTURE.jpg: check the path on the node, and that an archive was unpacked "
            "there",
            "FileNotFoundError: Couldn't find any class folder in data/train.",
        ),
        quoted(
            "dataset-missing-or-corrupted",
            r"Dataset (?:metadata )?(?:file )?not found(?: or corrupted)?\.|File not found or corrupted\.",
            "download it once to a volume (--volume) and name that folder as root; or download=True on rank 0 of each "
            "node alone, and the others wait: dist.barrier()",
            "RuntimeError: Dataset not found or corrupted. You can use download=True to download it",
        ),
        quoted(
            "transform-input-wrong-type",
            r"(?:pic|img) should be (?:PIL Image|Tensor)|Input tensor should be a float tensor",
            "transforms in another order: ToTensor() after those of pictures, Normalize() after it, each once",
            "TypeError: pic should be PIL Image or ndarray. Got <class 'torch.Tensor'>",
        ),
        quoted(
            "scikit-learn-input-invalid",
            r"Input (?:\w+ )?contains (?:NaN|infinity)|Only one class present in y_true|inconsistent numbers of samples"
            r"|Classification metrics can't handle a mix of",
            "the metric's inputs: numbers of equal length, finite, labels as classes (argmax, round), and both classes "
            "there on this rank: gather them from all ranks first",
            "ValueError: Input contains NaN.",
        ),
        quoted(
            "picture-pixel-limit-exceeded",
            r"DecompressionBombError",
            "PIL.Image.MAX_IMAGE_PIXELS = None if you trust the pictures; else leave out the large ones",
            "DecompressionBombError: Image size (300000000 pixels) exceeds limit of 178956970 pixels, ...",
        ),
        quoted(
            "opencv-input-empty",
            r"!_src\.empty\(\)|!ssize\.empty\(\)|!buf\.empty\(\)",
            "cv2.imread() has found no picture, and gives None: check its path on the node, and the file",
            "error: OpenCV(4.8.0) color.cpp:182: error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
        ),
        quoted(
            "numpy-pickle-not-allowed",
            r"Object arrays cannot be loaded when allow_pickle=False",
            "np.load(..., allow_pickle=True) if you trust the file; or save plain arrays; a pointer of git lfs says "
            "so, too",
            "ValueError: Object arrays cannot be loaded when allow_pickle=False",
        ),
        quoted(
            "array-size-mismatch",
            r"cannot reshape array of size \d+ into shape|mmap length is greater than file size"
            r"|buffer (?:size must be a multiple of|is smaller than requested)",
            "the file is shorter, or of another shape or type, than the script takes it for: compare its size with "
            "shape times itemsize; maybe it was not copied to its end",
            "ValueError: mmap length is greater than file size",
        ),
        quoted(
            "array-shapes-differ",
            r"operands could not be broadcast together|input array dimensions (?:except for|for) the concatenation"
            r"|all input arrays must have the same shape|setting an array element with a sequence"
            r"|has an inhomogeneous shape after",
            "arrays differ in shape, such as pictures of several sizes: resize, crop or pad them to one",
            "ValueError: operands could not be broadcast together with shapes (3,) (4,)",
        ),
        quoted(
            "array-stride-negative",
            r"At least one stride in the given numpy array is negative",
            ".copy() after a flip or [::-1]",
            "ValueError: At least one stride in the given numpy array is negative, ...",
        ),
        quoted(
            "array-not-numeric",
            r"can't convert np\.ndarray of type numpy\.object_|did not contain a loop with signature matching types",
            "a column has texts or lists, and no numbers: .astype('float32') names the bad value; leave such columns "
            "out",
            "TypeError: can't convert np.ndarray of type numpy.object_.",
        ),
        quoted(
            "linear-algebra-failed",
            r"LinAlgError: |linalg\.\w+: [^\n]*(?:singular|ill-conditioned|not positive-definite|failed to converge)",
            "the matrix has NaN, or equal rows: look for the first value that is not finite; add a little to its "
            "diagonal",
            "LinAlgError: SVD did not converge",
        ),
        quoted(
            "yaml-invalid",
            r"^(?:[\w.]+\.)?(?:(?:Scanner|Composer)Error: |ParserError: (?:while parsing|expected |did not find))"
            r"|found character '\\t' that cannot start",
            "the YAML file is none: line and column are in the error; spaces instead of tabs, a space after a colon, "
            "quotes around : and #",
            "ScannerError: mapping values are not allowed here",
        ),
        quoted(
            "yaml-tag-unknown",
            r"could not determine a constructor for the tag",
            "yaml.safe_load() knows no such tag: leave it out, or the library's own loader of configurations",
            "ConstructorError: could not determine a constructor for the tag '!include'",
        ),
        quoted(
            "yaml-loader-missing",
            r"load\(\) missing 1 required positional argument: 'Loader'",
            "yaml.safe_load(file)",
            "TypeError: load() missing 1 required positional argument: 'Loader'",
        ),
        quoted(
            "csv-malformed-or-empty",
            r"Error tokenizing data|No columns to parse from file",
            "that line has another number of columns, or the file is empty: on_bad_lines='warn', sep=, quotechar=; "
            "`head` of the file on the node shows whether it is one of git lfs or HTML",
            "ParserError: Error tokenizing data. C error: Expected 3 fields in line 4, saw 5",
        ),
        quoted(
            "data-file-lock-failed",
            r"\(unable to lock file|MDB_BAD_RSLOT|lmdb\.\w*Error: .*(?:Resource temporarily|already open)",
            "another process has it open: open it in each worker, for reading (lmdb: readonly=True, lock=False); of "
            "HDF5 on a network volume --env HDF5_USE_FILE_LOCKING=FALSE",
            "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, ...)",
        ),
        quoted(
            "database-map-full",
            r"MDB_MAP_FULL",
            "lmdb.open(..., map_size=...) with more bytes than it will hold",
            "MapFullError: mdb_put: MDB_MAP_FULL: Environment mapsize limit reached",
        ),
        Rule(
            "saved-object-not-picklable",
            r"(?:cannot|can't) pickle '?([\w.]+)'? objects?",
            "what the script saves holds a {0}, which no file can hold",
            "save state_dict()s, numbers and plain containers of them, and no objects of the script's own that have an "
            "open file, a lock, a thread or a client",
            called=r"/torch/serialization\.py",
        ),
        Rule(
            "sent-object-not-picklable",
            r"(?:cannot|can't) pickle '?([\w.]+)'? objects?",
            "what the script sends to other ranks holds a {0}, which cannot be sent",
            "send numbers, text, plain containers of them, or state_dict()s, and no objects of the script's own that "
            "have an open file, a lock, a thread or a client",
            called=r"/torch/distributed/distributed_c10d\.py",
        ),
        Rule(
            "object-not-copyable-or-picklable",
            r"(?:cannot|can't) pickle '?([\w.]+)'? objects?",
            "what the script copies or pickles holds a {0}, which cannot be",
            "leave it out (__getstate__, __deepcopy__), and open it anew where it is used; of a model copy its "
            "state_dict()",
            called=r"/python[\d.]+/copy\.py\"|\b(?:pickle|joblib)\.dumps?\(",
        ),
        quoted(
            "object-not-picklable",
            r"cannot pickle '[^']*' object|h5py objects cannot be pickled|can't pickle \S+ objects",
            "what a worker gets by pickling may hold no open file, lock, generator or client: open it at its first use "
            "in the worker (__getitem__, worker_init_fn), or num_workers=0",
            "TypeError: cannot pickle '_io.TextIOWrapper' object",
        ),
        quoted(
            "saved-tensors-share-memory",
            r"Some tensors share memory, this will lead to duplicate memory",
            "safetensors.torch.save_model(model, file), or model.save_pretrained(): both know tied weights",
            "RuntimeError: Some tensors share memory, this will lead to duplicate memory on disk ...",
        ),
        quoted(
            "sequence-lengths-differ",
            r"[Ee]xpected sequence of length (\d+) at dim \d+ \(got (\d+)\)"
            r"|Unable to create tensor, you should probably",
            "samples differ in length: padding=True, truncation=True of the tokenizer, or a collator that pads "
            "(DataCollatorWithPadding); leave out columns of texts",
            "ValueError: expected sequence of length 12 at dim 1 (got 15)",
        ),
    ),
    of_code=True,
)
