// SPDX-License-Identifier: Apache-2.0
// The sum, over a group, of products of which each member has one, without the products.
//
// Only how devices that have memory in common execute two steps, a local product and the psum or
// psum_scatter of it: of each part of the result, the products of all members are made one after
// the other, in ascending rank, and added up while they are in the cache. As many operations, the
// same bits (of a NaN only that it is one, as in any product), and none of n products goes through
// memory twice. What the device stands for still makes its product and sends it: log and meters are
// told so by whoever calls this, and the collective is posted as ever.
#pragma once

#include "sharding/collectives.h"

namespace kref::detail {

// A product in F32 that has not been made: x [m, k] y [k, n], either stored transposed. One element
// type, of those that are summed in F32.
struct Factors {
  Array x, y;
  bool trans_x = false, trans_y = false;
};

// Whether the collective of a product [m, k] [k, n] is to be started from its factors: a plain sum,
// tiled where it is scattered, over devices with memory in common, of products which are larger
// than their factors, that all members read, and large enough that what it saves is more than a
// second meeting costs. The same on all members.
bool sums_products(const LinearCollective& op, Device& device, Index m, Index n, Index k);

// As op.start(device, product), for a `product` that has shape and type and no memory. All members
// of the group start it so: the others cannot read what was not made.
Pending start_product_sum(const LinearCollective& op, Device& device, const Array& product,
                          Factors factors, CallSite where);

}  // namespace kref::detail
