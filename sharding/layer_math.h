// SPDX-License-Identifier: Apache-2.0
// The elementwise part of a layer, on one device's arrays. All in f32.
#pragma once

#include "dsl/array.h"
#include "sharding/layer_steps.h"

namespace kref {

// act(a), or act(a) * g where g is not null, rounded once to `hidden`; a and g are F32 of one
// shape.
Array hidden_value(Activation activation, const Array& a, const Array* g, DType hidden);

// The cotangents of a and g for that of the hidden value, ct (of any float type): ct * g * act'(a)
// and ct * act(a), F32. relu'(0) = 0. `g` is empty where there is no gate.
struct HiddenCotangents {
  Array a, g;
};
HiddenCotangents hidden_cotangents(Activation activation, const Array& ct, const Array& a,
                                   const Array* g);

}  // namespace kref
