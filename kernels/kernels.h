// SPDX-License-Identifier: Apache-2.0
// Everything one device computes with; for users, never included inside the library.
#pragma once

#include "kernels/bit_ops.h"
#include "kernels/decode_attention.h"
#include "kernels/dot.h"
#include "kernels/dot_general.h"
#include "kernels/flash_attention.h"
#include "kernels/flash_attention_vjp.h"
#include "kernels/gather.h"
#include "kernels/integer_ops.h"
#include "kernels/kv_cache.h"
#include "kernels/load_store.h"
#include "kernels/matmul.h"
#include "kernels/merge_partials.h"
#include "kernels/move_ops.h"
#include "kernels/random_bits.h"
#include "kernels/reduce.h"
#include "kernels/reference.h"
#include "kernels/reference_vectors.h"
#include "kernels/tile_ops.h"
