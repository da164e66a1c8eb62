#!/bin/bash
# Flags of a training run; --xla_commented_out=true is not one of them.
set -euo pipefail

export LIBTPU_INIT_ARGS="--xla_tpu_enable_async_collective_fusion=true \
  --xla_tpu_enable_async_collective_fusion_fuse_all_gather=true\
  --xla_tpu_overlap_compute_collective_tc=False \
  --xla_tpu_scoped_vmem_limit_kib=65536 # also in here: --xla_in_a_comment=1
  --xla_enable_async_all_gather='true'"
LIBTPU_INIT_ARGS+=" --xla_tpu_enable_sparse_core_collective_offload_all_gather=true"
export XLA_FLAGS='--xla_dump_to=/tmp/dump;' DUMP="${DUMP:-no}"
FLAGS=(--xla_enable_async_collective_permute=1 "--xla_tpu_spmd_rng_bit_generator_unsafe=$(id -u)")

python3 train.py --steps=100 --xla_dump_hlo_as_text \
  --xla_tpu_scoped_vmem_limit_kib=81920 \
  --xla_tpu_data_parallel_opt_different_sized_ops="a b" "${FLAGS[@]}"
