"""Causes in tensors: shapes, types, devices, gradients. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule, quoted

TENSORS: Final = Family(
    "Tensors and gradients",
    "Failed",
    (
        quoted(
            "matrix-shapes-incompatible",
            r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)",
            "the input has {0} features, and the layer takes {1}: nn.Linear({0}, ...), another size of the input, or "
            "flatten(1) before",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 1024x10)",
        ),
        quoted(
            "reshape-size-mismatch",
            r"shape '\[([^\]]*)\]' is invalid for input of size (\d+)",
            "{1} elements do not make [{0}]: mostly a last batch that is smaller (drop_last=True, or -1 for the "
            "batch), an input of another size, or, where layers are split over ranks (tensor parallelism), one that "
            "has this rank's part of the heads or features alone: -1 there",
            "RuntimeError: shape '[4, 7]' is invalid for input of size 30",
        ),
        quoted(
            "tensor-sizes-mismatch",
            r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension "
            r"(\d+)",
            "{0} and {1} in dimension {2}: pad or cut one, or unsqueeze() it where a dimension is missing; of "
            "positions and masks, limit the length of the text",
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        ),
        quoted(
            "expanded-tensor-size-mismatch",
            r"The expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)",
            "{1} do not fit into {0}: cut the input (max_length={0}, truncation=True), or make the table larger",
            "RuntimeError: The expanded size of the tensor (512) must match the existing size (600) at non-singleton "
            "...",
        ),
        quoted(
            "concatenated-sizes-mismatch",
            r"Sizes of tensors must match except in dimension (\d+)",
            "torch.cat() joins along dimension {0} what is equal in all others: pad or crop them, as where a skip "
            "connection meets an input of odd size",
            "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 5 but got size 6 ...",
        ),
        quoted(
            "input-channels-mismatch",
            r"to have (\d+) channels, but got (\d+) channels instead",
            "give it {0} channels: Image.convert('RGB') or 'L', or the first layer {1}; pictures are [batch, channels, "
            "height, width]: permute(0, 3, 1, 2)",
            "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 224, 224] to have 3 "
            "channels, but got 1 channels instead",
        ),
        quoted(
            "input-too-small-for-layer",
            r"Kernel size can't be greater than actual input size|Given input size: [^\n]*Output size is too small"
            r"|Padding size should be less than",
            "the picture is too small for so many layers: a larger one, or less pooling and stride",
            "RuntimeError: Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't "
            "be greater than actual input size",
        ),
        quoted(
            "input-dimensions-mismatch",
            r"Expected \d(?:D \(unbatched\)|D or \dD| ?-?dimensional)[^\n]*input[^\n]* but got "
            r"|expected \d+D or \d+D (?:input|tensor) \(got",
            "the batch dimension is missing, or one too many: unsqueeze(0) of a single sample, squeeze(1)",
            "RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [3, 3]",
        ),
        quoted(
            "loss-shapes-mismatch",
            r"Target size \(.*?\) must be the same as input size|input and target shapes do not match"
            r"|multi-target not supported|weight tensor should be defined either for all or no classes",
            "shapes of output and labels: BCE and MSE take equal ones (target.unsqueeze(1).float()), cross entropy "
            "[batch, classes] and [batch] (target.squeeze(1).long()), with a weight for each class",
            "ValueError: Target size (torch.Size([16])) must be the same as input size (torch.Size([16, 1]))",
        ),
        quoted(
            "mask-or-dimension-mismatch",
            r"The shape of the mask \[[^\]]*\] at index \d+ does not match|number of dim(?:s|ensions) (?:don't match"
            r"|in the "
            r"tensor input does not match)|Attempting to broadcast a dimension of length",
            "print both shapes before that line: a mask has those of its tensor, and permute() takes each dimension "
            "once",
            "RuntimeError: The shape of the mask [4] at index 0 does not match the shape of the indexed tensor [5] at "
            "index 0",
        ),
        quoted(
            "index-out-of-bounds",
            r"RuntimeError: index -?\d+ is out of bounds for dimension \d+ with size \d+",
            "indices begin at 0 and end before the size: ids or labels beyond the table, or gather() with another "
            "offset",
            "RuntimeError: index 5 is out of bounds for dimension 1 with size 5",
        ),
        quoted(
            "tensor-on-meta-device",
            r"[Cc]annot copy out of meta tensor|is on the meta device"
            r"|Tensor on device meta is not on the expected device",
            "those weights were never loaded: to_empty(device=...) and then load_state_dict(), "
            "low_cpu_mem_usage=False, or a checkpoint that has them all",
            "NotImplementedError: Cannot copy out of meta tensor; no data!",
        ),
        quoted(
            "tensor-argument-invalid",
            r"argument '\w+' \(position \d+\) must be Tensor, not (\w+)"
            r"|expected Tensor as element \d+ in argument \d+, but got"
            r"|received an invalid combination of arguments",
            "an argument is no tensor there: torch.as_tensor() or torch.stack() of a list, and not None",
            "TypeError: linear(): argument 'input' (position 1) must be Tensor, not NoneType",
        ),
        quoted(
            "optimizer-device-or-type-mismatch",
            r"must have same dtype, device, and layout"
            r"|Tensors of the same index must be on the same device and the same dtype"
            r"|If capturable=False, state_steps should not be",
            "the optimizer's state is on another device, or of another type, than its parameters: model.to(device) "
            "before the optimizer is made, and load its state after that",
            "RuntimeError: params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout",
        ),
        quoted(
            "generator-device-mismatch",
            r"Expected a '(\w+)' device type for generator but found '(\w+)'",
            "a generator for {0}: torch.Generator(device='{0}'), or leave out torch.set_default_device()",
            "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
        ),
        quoted(
            "cuda-library-or-engine-unusable",
            r"(?:GET|FIND) was unable to find an engine to execute this computation|cuDNN version incompatibility"
            r"|failed to open libnvrtc",
            "two versions of CUDA's libraries are mixed: leave LD_LIBRARY_PATH unset, and pip list | grep nvidia shows "
            "which torch needs; or no convolution of that type is there (half precision on a CPU)",
            "RuntimeError: GET was unable to find an engine to execute this computation",
        ),
        quoted(
            "view-of-noncontiguous-tensor",
            r"view size is not compatible with input tensor",
            ".reshape(...), or .contiguous().view(...) after transpose() and permute()",
            "RuntimeError: view size is not compatible with input tensor's size and stride ...",
        ),
        quoted(
            "last-dimension-mismatch",
            r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)"
            r"|Given normalized_shape=\[(\d+)\][^\n]*got input of size",
            "the last dimension of the input has another size than the layer was made for: print x.shape before it",
            "RuntimeError: input.size(-1) must be equal to input_size. Expected 10, got 20",
        ),
        quoted(
            "target-batch-size-mismatch",
            r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)",
            "{0} outputs and {1} labels: a collate function leaves out a sample and keeps its label; view() mixes "
            "samples and features (flatten(1) keeps the first); or logits and labels of a sequence need .view(-1, "
            "classes) and .view(-1)",
            "ValueError: Expected input batch_size (32) to match target batch_size (64).",
        ),
        quoted(
            "loss-shapes-mismatch",
            r"Using a target size \(.*?\) that is different to the input size",
            "give both one shape: output.squeeze(1), or target.unsqueeze(1).float()",
            "ValueError: Using a target size (torch.Size([32])) that is different to the input size ...",
        ),
        quoted(
            "label-or-index-type-unsupported",
            r"one of the following scalar types: Long|expected (?:scalar type|target dtype to be) Long\b"
            r"|\"nll_loss\w*\" not implemented for|\"embedding\w*\" not implemented for",
            "class labels and ids are whole numbers: .long(); for soft labels, as many as there are classes",
            "RuntimeError: expected scalar type Long but found Float",
        ),
        quoted(
            "low-precision-operator-missing",
            r"\"\w+\" not implemented for '(Half|BFloat16|Float8\w*)'",
            "{0} is not there for that on this device: the model on a GPU before, or float32 there (.float(), and no "
            "fp16 on CPUs)",
            "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
        ),
        quoted(
            "floating-point-tensor-required",
            r"\"\w+\" not implemented for '(?:Long|Int|Short|Byte|Bool|Char)'|mean\(\): could not infer output dtype",
            "it needs floating point: .float() before",
            "RuntimeError: \"log_softmax_lastdim_kernel_impl\" not implemented for 'Long'",
        ),
        quoted(
            "tensor-types-mismatch",
            r"[Ff]ound dtype (\w+) but expected (\w+)|result type (\w+) can't be cast to the desired output type (\w+)",
            "give both one type: loss and labels .float() (numpy makes doubles), and what is summed up in place a "
            "float's tensor",
            "RuntimeError: Found dtype Double but expected Float",
        ),
        quoted(
            "ambiguous-tensor-truth-value",
            r"Boolean value of Tensor with (?:more than one|no) values?",
            "`if` takes one value: (a == b).all(), x.numel() > 0, x is not None; a loss is made before it is called: "
            "nn.MSELoss()(x, y)",
            "RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
        ),
        quoted(
            "tensor-not-convertible-to-number",
            r"Tensor with \d+ elements cannot be converted to Scalar|only (?:length-1 arrays"
            r"|integer tensors of a single)"
            r"|only one element tensors can be converted",
            "one number of many: .mean().item(), x[i].item(), or .tolist() for all",
            "RuntimeError: a Tensor with 10 elements cannot be converted to Scalar",
        ),
        quoted(
            "loss-not-scalar",
            r"grad can be implicitly created only for scalar outputs",
            "loss.mean().backward(): the loss is one for each sample (reduction='none')",
            "RuntimeError: grad can be implicitly created only for scalar outputs",
        ),
        quoted(
            "parameter-not-kept-as-leaf",
            r"leaf Variable that requires grad is being used in an in-place|can't optimize a non-leaf Tensor",
            "a parameter is changed within torch.no_grad() (or .data), and is made where it stays: "
            "nn.Parameter(t.to(device)), not nn.Parameter(t).to(device)",
            "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
        ),
        quoted(
            "non-floating-tensor-requires-gradient",
            r"Only Tensors of floating point and complex dtype can require gradients",
            ".float() before; of a quantized or integer weight requires_grad_(False)",
            "RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
        ),
        quoted(
            "tensor-not-convertible-to-numpy",
            r"Can't call numpy\(\) on Tensor that requires grad|can't convert cuda:?\d* device type tensor to numpy",
            ".detach().cpu().numpy()",
            "RuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        ),
        quoted(
            "nan-in-backward-pass",
            r"Function '?(\w+)Backward\d*'? returned nan values",
            "the gradient of {0} is NaN: log, sqrt or a division of 0 (add an epsilon), or values that have overflowed "
            "before (a lower learning rate, clipped gradients)",
            "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
        ),
        quoted(
            "input-not-used-in-graph",
            r"appears? to not have been used in the graph",
            "the output does not depend on it: allow_unused=True, or look for detach() on its way",
            "RuntimeError: One of the differentiated Tensors appears to not have been used in the graph.",
        ),
        quoted(
            "empty-tensor-list",
            r"expects a non-empty TensorList|expected a non-empty list of Tensors"
            r"|need at least one array to (?:concatenate|stack)",
            "nothing was collected on this rank: an empty loader, or a filter that keeps none",
            "RuntimeError: torch.cat(): expected a non-empty list of Tensors",
        ),
        quoted(
            "tensor-is-empty",
            r"input\.numel\(\) == 0|zero-size array to reduction operation|cannot reshape tensor of 0 elements",
            "the tensor is empty on this rank: an empty batch, or a mask that keeps nothing: leave it out before",
            "RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0.",
        ),
        quoted(
            "distribution-values-invalid",
            r"probability tensor contains either|all elements of input should be between 0 and 1"
            r"|Expected parameter \w+ \(.*?to satisfy the constraint",
            "the model gives NaN, or no probabilities: sigmoid or BCEWithLogitsLoss, a lower learning rate, clipped "
            "gradients; in half precision overflows: bf16",
            "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        ),
        quoted(
            "gpu-index-out-of-range",
            r"invalid device ordinal|device_id \S+ is out of range"
            r"|Attempting to deserialize object on CUDA device \d+ but"
            r"|device >= 0 && device < num_gpus",
            "this node has fewer GPUs than that: torch.cuda.set_device(LOCAL_RANK), not RANK; "
            "torch.load(..., map_location='cpu'); or --gpus-per-node",
            "RuntimeError: CUDA error: invalid device ordinal",
        ),
        quoted(
            "tensors-on-different-devices",
            r"indices should be either on (?:cpu|the same device)"
            r"|Tensor for argument \w+ is on \w+ but expected",
            "move all to one device: .to(x.device)",
            "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        ),
        quoted(
            "attention-kernel-unsupported",
            r"FlashAttention only supports|No available kernel\. Aborting|Expected is_sm\d+",
            "this GPU, type or head size has no such kernel: attn_implementation='sdpa' or 'eager', bf16 or fp16, and "
            "no sdpa_kernel(FLASH_ATTENTION) alone",
            "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        ),
        quoted(
            "cudnn-execution-failed",
            r"CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)|Unable to find a valid cuDNN algorithm",
            "mostly too little GPU memory is left: a smaller batch, or torch.backends.cudnn.benchmark = False; else "
            "--env CUDA_LAUNCH_BLOCKING=1 makes the traceback name the line",
            "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        ),
        quoted(
            "gpu-out-of-memory",
            r"Triton Error \[CUDA\]: out of memory",
            "a smaller batch for each rank, activation checkpointing, or a sharded model",
            "RuntimeError: Triton Error [CUDA]: out of memory",
        ),
        quoted(
            "kernel-shared-memory-exceeded",
            r"OutOfResources: out of resource: shared memory",
            "the kernel's blocks are too large for this GPU: smaller BLOCK sizes or fewer num_stages; "
            "--env TORCHINDUCTOR_MAX_AUTOTUNE=0",
            "OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
        ),
        quoted(
            "inference-tensor-outside-inference",
            r"Inference tensors cannot be saved for backward|Inplace update to inference tensor",
            "torch.no_grad() where torch.inference_mode() made it, or .clone() it outside",
            "RuntimeError: Inference tensors cannot be saved for backward.",
        ),
        quoted(
            "empty-sequence-in-batch",
            r"'lengths' that is <= 0|Length of all samples has to be greater than 0",
            "a sample is empty: leave it out, or .clamp(min=1) its length",
            "RuntimeError: Length of all samples has to be greater than 0, but found an element in 'lengths' that is "
            "<= 0",
        ),
        quoted(
            "optimizer-without-parameters",
            r"got an empty parameter list",
            "no parameter is left to train: keep layers in nn.ModuleList, not in a list, and look at what filters by "
            "requires_grad; make the optimizer after the layers",
            "ValueError: optimizer got an empty parameter list",
        ),
        quoted(
            "optimizer-groups-mismatch",
            r"parameter group that doesn't match the size of optimizer's group|different number of parameter groups",
            "the optimizer's state is of another model, or of other groups (frozen layers, weight decay): make it as "
            "it was when it was saved, or begin with a new one",
            "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        ),
        Rule(
            "initial-learning-rate-missing",
            r"param 'initial_lr' is not specified",
            "a schedule goes on from a step (last_epoch), and its optimizer's state was not loaded",
            "load the optimizer's state before the scheduler is made, or make it with last_epoch=-1 and load its state",
        ),
        quoted(
            "optimizer-parameters-invalid",
            r"can only optimize Tensors, but one of the params is|appear in more than one parameter group",
            "give it each parameter once: model.parameters(), or dicts with 'params'",
            "TypeError: optimizer can only optimize Tensors, but one of the params is list",
        ),
        quoted(
            "gradient-scaler-without-gradients",
            r"No inf checks were recorded for this optimizer|Attempted unscale_ but _scale is None",
            "scaler.scale(loss).backward() comes before scaler.step(optimizer), of an optimizer whose parameters get "
            "gradients: not frozen, and used by that loss",
            "AssertionError: No inf checks were recorded for this optimizer.",
        ),
        quoted(
            "half-precision-weights-with-scaler",
            r"Attempting to unscale FP16 gradients",
            "keep the weights in float32 and use torch.autocast, without .half(); or bf16 without a GradScaler",
            "ValueError: Attempting to unscale FP16 gradients.",
        ),
        quoted(
            "gradient-scaler-called-twice",
            r"unscale_\(\) has already been called|step\(\) has already been called since the last update",
            "once for each step: scaler.unscale_(optimizer), clip, scaler.step(optimizer), scaler.update()",
            "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
        ),
        quoted(
            "recurrent-backward-outside-training",
            r"cudnn RNN backward can only be called in training mode",
            "model.train() before the backward pass of an RNN",
            "RuntimeError: cudnn RNN backward can only be called in training mode",
        ),
    ),
    of_code=True,
)
