// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a layer's steps, on one device's arrays. All in f32.
#pragma once

#include "dsl/array.h"
#include "sharding/layer_steps.h"

namespace kref {

// x, rounded once where it is of another element type.
Array of_type(const Array& x, DType dtype);

// The type in which the operands of a product are multiplied: operands of two types are widened to
// F32, which changes no product.
DType product_type(const Array& x, const Array& y);

// x y, either stored transposed, in F32: the product of a step.
Array layer_product(const LayerStep& step, const Array& x, const Array& y);

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
