// SPDX-License-Identifier: Apache-2.0
// Everything one device computes with; for users, never included inside the library.
#pragma once

#include "kernels/dot.h"
#include "kernels/flash_attention.h"
#include "kernels/matmul.h"
#include "kernels/reference.h"
#include "kernels/tile_ops.h"
