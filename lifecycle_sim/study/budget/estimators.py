"""What other estimators print, by the rules that they follow, so that their figures can be told apart from exact ones.

Each returns bytes; what their labels mean, and where they err, stands beside it and in docs/budget.md. Nothing else in the project uses
these rules.
"""

from __future__ import annotations

from fractions import Fraction

from lifecycle_sim.study.budget.widths import count, one_of


def deepspeed_zero2(
    parameters: int, devices: int, *, nodes: int = 1, offload: bool = False, factor: Fraction = Fraction(3, 2)
) -> tuple[int, int]:
    """DeepSpeed's ``estimate_zero2_model_states_mem_needs``: bytes of a GPU, and of a node's host.

    2N with the optimizer on the host, else 4N + 16N/devices: gradients are not divided although stage 2 divides them. It prints GiB and
    calls them GB.
    """
    count("parameters", parameters)
    whole = count("devices of a node", devices, 1) * count("nodes", nodes, 1)
    gpu = 2 * parameters if offload else 4 * parameters + 16 * parameters // whole
    host = max(4 * whole, 16) if offload else 4 * devices
    return gpu, int(parameters * host * factor)


def deepspeed_zero3(
    parameters: int,
    largest: int,
    devices: int,
    *,
    nodes: int = 1,
    offload: bool = False,
    offload_weights: bool = False,
    zero_init: bool = True,
    factor: Fraction = Fraction(3, 2),
) -> tuple[int, int]:
    """DeepSpeed's ``estimate_zero3_model_states_mem_needs``: bytes of a GPU, and of a node's host.

    *largest* is the largest layer's parameters, gathered whole twice in 2 bytes. It prints GiB and calls them GB.
    """
    count("parameters", parameters)
    whole, gathered = count("devices of a node", devices, 1) * count("nodes", nodes, 1), 4 * count("largest layer", largest)
    kept = Fraction(18 if offload_weights else 16, nodes)
    if offload:
        gpu = gathered + (Fraction(0) if offload_weights else Fraction(2 * parameters, whole))
        host = parameters * (kept if zero_init else max(Fraction(4 * devices), kept))
    else:
        gpu = gathered + Fraction(18 * parameters, whole)
        host = Fraction(4 * devices * (largest if zero_init else parameters))
    return int(gpu), int(host * factor)


def accelerate_estimate(total: int, largest: int, dtype: str = "float32") -> dict[str, int | None]:
    """Hugging Face accelerate's ``estimate-memory``: bytes of the largest layer, of the model, and of "training using Adam".

    *total* and *largest* are bytes in fp32, buffers included: they are divided by the width of the type, buffers of int64 as well.
    Training is the largest of model, gradients, optimizer and step, and no sum of what is there at once; for int8 and int4 the code has
    none, though the documentation prints some. It prints MiB and GiB and calls them MB and GB, for a batch of one and without activations.
    """
    divisor = {"float32": 1, "float16": 2, "bfloat16": 2, "int8": 4, "int4": 8}[
        one_of("type", dtype, ("float32", "float16", "bfloat16", "int8", "int4"))
    ]
    model = count("bytes of the model", total) // divisor
    training = {"float32": 4 * total, "int8": None, "int4": None}.get(dtype, 2 * total)
    return {"largest": count("bytes of the largest layer", largest) // divisor, "total": model, "training": training}


def cookbook_parameters(layers: int, width: int, vocabulary: int = 51_200, sequence: int = 2048, *, ffn: Fraction = Fraction(4)) -> int:
    """The parameters in EleutherAI cookbook's ``calc_transformer_mem``: the table of tokens twice, a table of positions always."""
    for name, size in (("layers", layers), ("width", width), ("vocabulary", vocabulary), ("sequence", sequence)):
        count(name, size, 1)
    norms = 8 * width * layers + 2 * width
    return 2 * vocabulary * width + width * sequence + norms + layers * width * width * 4 + int(2 * layers * width * width * ffn)


def cookbook_memory(
    parameters: int,
    layers: int,
    width: int,
    heads: int,
    sequence: int,
    batch: int,
    *,
    devices: int = 1,
    tensor: int = 1,
    checkpointing: bool = True,
    partitioned: bool = False,
) -> dict[str, int]:
    """EleutherAI cookbook's ``calc_transformer_mem`` with ZeRO stage 1: bytes of activations, model, gradients, optimizer and buckets.

    Its "checkpointing" is 34sbh a layer, what selective recomputation keeps, and not full recomputation's 2sbh; gradients are not divided
    by the tensor-parallel degree, and the optimizer is divided by all devices instead of the data-parallel ones. It prints GiB.
    """
    sbh = sequence * batch * width
    layer = 34 * sbh + (0 if checkpointing else 5 * heads * sequence * sequence * batch)
    return {
        "activations": layers * layer // (tensor if partitioned else 1),
        "model": 2 * parameters // tensor,
        "gradients": 4 * parameters,
        "optimizer": 12 * parameters // devices,
        "buckets": 1_000_000_000 if devices > 1 else 0,
    }


def cookbook_flops(
    layers: int, width: int, tokens: int, sequence: int = 2048, vocabulary: int = 51_200, *, checkpointing: bool = True, experts: int = 0
) -> int:
    """EleutherAI cookbook's ``calc_transformer_flops``: of the logits it counts the forward pass alone; routers sit in every second
    layer.
    """
    passes = 4 if checkpointing else 3
    token = passes * layers * (24 * width * width + 4 * sequence * width) + 2 * width * vocabulary
    return tokens * (token + passes * experts * width * layers)
