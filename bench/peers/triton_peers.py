"""Triton kernels of published packages, launched on CPU tensors under Triton's interpreter.

The packages' own launchers want a GPU or an autotuner that times on one; so the kernels are taken
out of their autotuners and launched here with the arguments that those launchers give. The
interpreter is slow: for numerics only.
"""

import functools
import os

os.environ.setdefault(
    "TRITON_INTERPRET", "1"
)  # read when a kernel is defined, so before the packages are imported

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter


def interpreted(kernel):
    """The function inside an autotuner."""
    if os.environ["TRITON_INTERPRET"] != "1":
        raise RuntimeError(
            "these kernels run in Triton's interpreter: TRITON_INTERPRET must be 1 or unset"
        )
    return kernel.fn


def to_nearest(data, source, target, rounding, convert=interpreter._convert_float):
    """The interpreter cuts f32 off to bf16; a GPU rounds to nearest even, as PyTorch does."""
    if (source, target) == (tl.float32, tl.bfloat16):
        return torch.from_numpy(data).bfloat16().view(torch.uint16).numpy()
    return convert(data, source, target, rounding)


interpreter._convert_float = to_nearest


# ---- flash-linear-attention ----------------------------------------------------------------------


def fla_fused_attnres(
    query, residuals, rms_weight, output_rms_weight=None, rms_eps=1e-6, scale=1.0
):
    """fla.ops.attnres.fused_attnres: query [D], a list of N sources [T, D] -> mix [T, D] and
    weights [N, T].
    """
    from fla.ops.attnres import fused

    # The kernel's loop variable is a tensor to the compiler, which the kernel relies on, but an int
    # to the interpreter.
    fused.range = lambda *bounds: (tl.full((), i, tl.int32) for i in range(*bounds))
    (rows, hidden), count = residuals[0].shape, len(residuals)
    out = torch.empty_like(residuals[0])
    lse = torch.empty(rows)
    rstd, logit = torch.empty(count, rows), torch.empty(count, rows)
    pointers = fused._build_ptr_table(residuals)
    interpreted(fused.attnres_fwd_kernel)[(rows,)](
        q=query,
        res=pointers,
        w=rms_weight,
        ow=output_rms_weight,
        o=out,
        o_pre=None,
        rstd=rstd,
        logit=logit,
        lse=lse,
        N=rows,
        L=count,
        L2=len(pointers),
        D=hidden,
        eps=rms_eps,
        scale=scale,
        BL=4,
        BD=triton.next_power_of_2(hidden),
        HAS_ONORM=output_rms_weight is not None,
        SAVE_OPRE=False,
    )
    return out, (logit * scale - lse).exp()


# ---- flash-attn-res ------------------------------------------------------------------------------


@functools.cache
def flash_attn_res():
    """The package. Version 0.1.12 names autotuning keys that a kernel does not have, which newer
    Tritons refuse.
    """
    autotune = triton.autotune

    def lenient(configs, key, **options):
        return lambda kernel: autotune(
            configs, [name for name in key if name in kernel.arg_names], **options
        )(kernel)

    triton.autotune = lenient
    try:
        import flash_attn_res

        return flash_attn_res
    finally:
        triton.autotune = autotune


def flash_phase_1(values, queries, eps):
    """Bank [N, T, D] and queries [S, D], D a power of two -> mixes [S, T, D] bf16 and log-sum-exp
    [S, T].
    """
    (count, rows, hidden), number = values.shape, len(queries)
    mixes, lse = torch.empty(number, rows, hidden, dtype=torch.bfloat16), torch.empty(number, rows)
    rstd, logits = torch.empty(rows, count), torch.empty(number, rows, count)
    interpreted(flash_attn_res().phase_1_batched_attention_forward_kernel)[(rows,)](
        values,
        queries,
        mixes,
        lse,
        rstd,
        logits,
        eps,
        count,
        rows,
        hidden,
        number,
        triton.next_power_of_2(count),
    )
    return mixes, lse


def flash_phase_2(partial, query, mix, lse, eps):
    """Partial sum [T, D], query [D], phase 1's mix [T, D] and log-sum-exp [T] -> the merged mix [T,
    D] bf16.
    """
    rows, hidden = partial.shape
    merged, logit, rstd = torch.empty_like(mix), torch.empty(rows), torch.empty(rows)
    interpreted(flash_attn_res().phase_2_online_softmax_merge_forward_kernel)[(rows,)](
        partial, query, mix, lse, merged, logit, rstd, eps, hidden
    )
    return merged
