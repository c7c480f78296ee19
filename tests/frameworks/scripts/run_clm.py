"""Trains a causal language model on text files, in the manner of Transformers' example of that name.

Its arguments, functions, checkpoints and launch are those of the example; the lines for kitctl are marked.
"""

import logging
import sys
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import datasets
import transformers
from datasets import load_dataset
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from kittrain.integrations.huggingface import KitCallback  # a line for kitctl

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    model_type: str | None = field(default=None, metadata={"help": "with random weights, such as gpt2"})
    config_overrides: str | None = field(default=None, metadata={"help": "n_embd=10,n_layer=2"})
    tokenizer_name: str | None = field(default=None)


@dataclass
class DataTrainingArguments:
    train_file: str | None = field(default=None)
    validation_file: str | None = field(default=None)
    block_size: int | None = field(default=None)
    overwrite_cache: bool = field(default=False)
    preprocessing_num_workers: int | None = field(default=None)

    def __post_init__(self):
        if self.train_file is None and self.validation_file is None:
            raise ValueError("Need either a dataset name or a training/validation file.")


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(json_file=str(Path(sys.argv[1]).resolve()))
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()

    logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler(sys.stdout)])
    log_level = training_args.get_process_log_level()
    datasets.utils.logging.set_verbosity(log_level)
    transformers.utils.logging.set_verbosity(log_level)
    distributed = training_args.parallel_mode.value == "distributed"
    logger.warning("Process rank: %s, distributed training: %s", training_args.process_index, distributed)

    last_checkpoint = None
    if Path(training_args.output_dir).is_dir() and training_args.do_train:
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
    set_seed(training_args.seed)

    data_files = {"train": data_args.train_file, "validation": data_args.validation_file}
    raw_datasets = load_dataset("text", data_files={name: file for name, file in data_files.items() if file})
    tokenizer = AutoTokenizer.from_pretrained(model_args.tokenizer_name)
    config = CONFIG_MAPPING[model_args.model_type]()
    if model_args.config_overrides is not None:
        config.update_from_string(model_args.config_overrides)
    model = AutoModelForCausalLM.from_config(config)
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer))

    def tokenize_function(examples):
        return tokenizer(examples["text"])

    with training_args.main_process_first(desc="dataset map tokenization"):
        tokenized_datasets = raw_datasets.map(
            tokenize_function,
            batched=True,
            num_proc=data_args.preprocessing_num_workers,
            remove_columns=["text"],
            load_from_cache_file=not data_args.overwrite_cache,
        )
    block_size = min(data_args.block_size or 1024, tokenizer.model_max_length)

    def group_texts(examples):
        concatenated = {name: list(chain(*parts)) for name, parts in examples.items()}
        total = len(next(iter(concatenated.values()))) // block_size * block_size
        result = {
            name: [tokens[at : at + block_size] for at in range(0, total, block_size)]
            for name, tokens in concatenated.items()
        }
        result["labels"] = result["input_ids"].copy()
        return result

    with training_args.main_process_first(desc="grouping texts together"):
        lm_datasets = tokenized_datasets.map(
            group_texts, batched=True, load_from_cache_file=not data_args.overwrite_cache
        )

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=lm_datasets["train"] if training_args.do_train else None,
        eval_dataset=lm_datasets["validation"] if training_args.do_eval else None,
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )
    trainer.add_callback(KitCallback(trainer))  # a line for kitctl

    if training_args.do_train:
        checkpoint = training_args.resume_from_checkpoint or last_checkpoint
        train_result = trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", train_result.metrics)
        trainer.save_metrics("train", train_result.metrics)
        trainer.save_state()
    if training_args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
