// SPDX-License-Identifier: Apache-2.0
// Everything a kernel author needs of the DSL; for users, never included inside the library.
#pragma once

#include "dsl/array.h"
#include "dsl/check.h"
#include "dsl/dtype.h"
#include "dsl/grid.h"
#include "dsl/ref.h"
#include "dsl/tensor.h"
#include "dsl/threads.h"
