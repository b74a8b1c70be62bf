// SPDX-License-Identifier: Apache-2.0
// The sums that the bound of a matmul is made of, over the parts that the precision mode makes of
// the inputs.
#pragma once

#include <vector>

#include "dsl/array.h"
#include "kernels/matmul.h"
#include "kernels/reference.h"

namespace kref {

// Sizes of a product, with the batch dimensions taken together.
struct ProductSizes : MatmulSizes {
  Index batches = 1;

  ProductSizes(const ArrayRef& x, const ArrayRef& y, const reference::MatmulOptions& options);
};

struct ProductSums {
  std::vector<double> value, magnitude;  // as reference::Sums
  // The sum of |p| over products with a factor that may be flushed to zero; empty when there is
  // none. A factor that is infinite counts as 1e300: the sum is then above 1e200.
  std::vector<double> flushed;
  // value and magnitude over the products of finite factors alone; empty when all factors are
  // finite. They say what a partial sum may come to before an infinite product is added.
  std::vector<double> finite_value, finite_magnitude;
  // |value - exact| <= value_error * magnitude.
  double value_error = 0;
  // The value was summed in the accumulator's own precision, and may be off as a machine may:
  // value_error does not say so, the bounds count twice.
  bool as_machine = false;
};

// By plain loops: reference::matmul; for F64 the same in long double. Of I8 and U8 the value only,
// as reference::matmul_int.
ProductSums sums_by_loops(const ArrayRef& x, const ArrayRef& y,
                          const reference::MatmulOptions& options);

enum class SumsWanted { kAll, kValue };

// By tiles in f64, on all cores. Of I8 and U8 the value only, not wrapped.
ProductSums sums_by_tiles(const ArrayRef& x, const ArrayRef& y,
                          const reference::MatmulOptions& options,
                          SumsWanted wanted = SumsWanted::kAll);

// The oracle's spelling of a precision.
reference::Parts parts_for(Precision precision);

// The parts of one value under a precision mode; returns their number.
int parts_of(double v, reference::Parts parts, double (&out)[3]);

// Number of parts of a value: 1, 2 or 3. The product of two values is made of that of part e and
// part f wherever e + f is less than this number.
int part_count(reference::Parts parts);

// Number of products a product of two values is made of: 1, 3 or 6.
int products_per_pair(reference::Parts parts);

// The smallest normal number below which a value of the type may be taken as zero; 0: never.
double flush_limit(DType type);

// What the parts of a value that may be flushed add up to, in absolute value; 0 for most values.
double flushed_part(double v, reference::Parts parts, double limit);
// Sum of the absolute values of the parts; infinity becomes 1e300, NaN 0.
double finite_magnitude(double v, reference::Parts parts);

// The elements that have no infinite part and are no NaN, 0 in place of the others.
Array finite_only(const ArrayRef& x, reference::Parts parts);
// True when some element has an infinite part.
bool any_infinite(const ArrayRef& x, reference::Parts parts);

// True when some element has a part that may be flushed and is not zero.
bool any_flushed(const ArrayRef& x, reference::Parts parts);

}  // namespace kref
