// SPDX-License-Identifier: Apache-2.0
// Everything that programs with several devices need; for users, never included inside the library.
#pragma once

#include "sharding/batch_sharded_decode.h"
#include "sharding/collective_calls.h"
#include "sharding/collective_matmul.h"
#include "sharding/custom_vjp.h"
#include "sharding/launch.h"
#include "sharding/layer.h"
#include "sharding/ragged.h"
#include "sharding/reshard.h"
#include "sharding/sequence_sharded_decode.h"
#include "sharding/shard_map.h"
#include "sharding/sharded.h"
#include "sharding/sharded_matmul.h"
#include "sharding/typed_layer.h"
#include "sharding/typed_ring.h"
#include "sharding/typed_shard_map.h"
#include "sharding/value_collectives.h"
#include "sharding/vjp.h"
