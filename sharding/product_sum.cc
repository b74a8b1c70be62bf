// SPDX-License-Identifier: Apache-2.0
#include "sharding/product_sum.h"

#include <algorithm>
#include <vector>

#include "dsl/grid.h"
#include "kernels/dot.h"
#include "kernels/tile_ops.h"
#include "sharding/collectives_run.h"

namespace kref::detail {
namespace {

// Of a piece of the result: its sum and one product stay in the second-level cache (384 KiB). Rows
// of x are packed once a piece, which many columns have to pay for. 8 products of 64 k each so take
// 1 to 7 % longer than one of 512; in pieces of 96 x 512 10 to 18 %, 96 x 1024 and 48 x 2048 as 48
// x 1024.
constexpr Index kPieceRows = 48, kPieceColumns = 1024;

template <class T>
struct Term {
  Ref<const T, 2> x, y;  // (rows, k), (k, columns), as they are stored
};

// (rows, blocks x columns) -> (blocks, rows, columns).
Ref<float, 3> split(Ref<float, 2> x, Index blocks) {
  const Index columns = x.extent(1) / blocks;
  return {x.data(), {blocks, x.extent(0), columns}, {columns, x.stride(0), 1}};
}

// z = the sum of the products, each on its own from zero, in the order of the terms. z: blocks of
// columns beside each other, (blocks, rows, columns).
template <class T>
void add_up(const std::vector<Term<T>>& terms, const DotOptions& how, Ref<float, 3> z) {
  const Index width = z.extent(2);
  const Index tm = std::min(kPieceRows, z.extent(1)), tn = std::min(kPieceColumns, width),
              tb = std::clamp<Index>(kPieceColumns / tn, 1, z.extent(0));  // 1 where tn < width
  Grid grid("product_sum");
  const Axis i = grid.parallel("i", cdiv(z.extent(1), tm));
  const Axis b = grid.parallel("b", cdiv(z.extent(0), tb));
  const Axis j = grid.parallel("j", cdiv(width, tn));
  const auto zb = grid.out("z", z, {.block = {tb, tm, tn}, .index = {b, i, j}});
  const auto product = grid.scratch<float>("product", {tm, tb * tn});
  grid.run([&](const Step& s) {
    const Ref<float, 3> sum = s.valid(zb);  // (blocks, rows, columns)
    const Index rows = sum.extent(1), columns = sum.extent(0) * sum.extent(2);
    const Index row = s.index(i) * tm, column = s.index(b) * tb * width + s.index(j) * tn;
    const Ref<float, 2> next = s[product].block({0, 0}, {rows, columns});  // (rows, columns)
    for (std::size_t r = 0; r < terms.size(); ++r) {
      const auto& [x, y] = terms[r];
      const Ref<const T, 2> xt = how.trans_x ? x.block({0, row}, {x.extent(0), rows})
                                             : x.block({row, 0}, {rows, x.extent(1)});
      const Ref<const T, 2> yt = how.trans_y ? y.block({column, 0}, {columns, y.extent(1)})
                                             : y.block({0, column}, {y.extent(0), columns});
      const bool in_place = r == 0 && sum.extent(0) == 1;
      dot<T>(xt, yt, in_place ? matrix(sum) : next, how);
      if (in_place) continue;
      const Ref<float, 3> term = split(next, sum.extent(0));
      if (r == 0) {
        copy(term, sum);
      } else {
        add(sum, term, sum);
      }
    }
  });
}

// Rows begin .. begin + count - 1 of a product.
ArrayRef rows_of(const Factors& f, Index begin, Index count) {
  ArrayRef out = f.x;
  const std::size_t d = f.trans_x ? 1 : 0;
  out.extents[d] = count;
  out.data = static_cast<const char*>(out.data) +
             begin * out.strides[d] * static_cast<Index>(size_of(out.dtype));
  return out;
}

// Rows begin... of the sum of the products of all n members.
void add_up(Exchange& exchange, Index n, Index begin, Ref<float, 3> z) {
  if (z.size() == 0) return;
  const auto factors = [&](Index rank) -> const Factors& {
    const std::byte* const at = exchange.view(rank, 0, sizeof(Factors), nullptr);
    return *static_cast<const Factors*>(static_cast<const void*>(at));
  };
  const Factors& first = factors(0);
  with_dtype(first.x.dtype(), [&]<class T>() {
    if constexpr (DotType<T>) {
      if constexpr (std::is_same_v<Accumulator<T>, float>) {
        std::vector<Term<T>> terms;
        for (Index rank = 0; rank < n; ++rank) {
          const Factors& f = factors(rank);
          terms.push_back({rows_of(f, begin, z.extent(1)).template ref<const T, 2>(),
                           f.y.ref().template ref<const T, 2>()});
        }
        add_up<T>(terms, {first.trans_x, first.trans_y}, z);
      }
    }
  });
}

// A result in the making. Each member makes some rows: its own where rows are scattered. Columns
// are scattered as blocks, one behind the other in memory that all have in common: a member that
// made its own few columns alone would pack each row for them alone.
struct ProductSum {
  Prepared result;
  Index rows = 0, columns = 0;  // of the product
  std::optional<std::size_t> scattered;
  std::unique_ptr<Exchange> exchange;

  Array finish() {
    exchange->match();
    const Index n = result.group.size(), rank = result.group.rank;
    if (scattered == 0u) {
      Array out = Array::unwritten(result.dtype, result.shape);
      float* const to = out.mutable_elements<float>().data();
      add_up(*exchange, n, rank * (rows / n), {to, {1, rows / n, columns}});
      exchange->wait(Exchange::End::kOwn);
      return out;
    }
    const std::shared_ptr<void> memory =
        exchange->common(static_cast<std::size_t>(rows * columns) * sizeof(float));
    auto* const whole = static_cast<float*>(memory.get());
    const Index blocks = scattered ? n : 1, width = columns / blocks;
    const Index each = cdiv(rows, n), begin = std::min(rows, rank * each);
    add_up(*exchange, n, begin,
           {whole + begin * width,
            {blocks, std::min(each, rows - begin), width},
            {rows * width, width, 1}});
    exchange->wait(Exchange::End::kAll);
    return Array(result.dtype, result.shape, memory,
                 scattered ? whole + rank * rows * width : whole);
  }
};

template <class Op>
bool plain(const Op& op) {
  return op.axis_index_groups.empty() && op.sum == SumOptions{};
}

template <class Op>
Pending start(const Op& op, Device& device, const Array& product, Factors factors, CallSite where) {
  ProductSum work;
  work.result = prepare_type(op, device, product.shape(), product.dtype(), where);
  work.rows = product.extent(0), work.columns = product.extent(1);
  if constexpr (std::is_same_v<Op, PsumScatter>) {
    work.scattered = dimension(Op::kName, "scatter_dimension", op.scatter_dimension, 2);
  }
  // What the others read are the factors, in place.
  const auto kept = std::make_shared<const Factors>(std::move(factors));
  const Index size[] = {sizeof(Factors)};
  const Array read(DType::kU8, size, kept, kept.get());
  work.exchange =
      post(op, options_string(op), device, work.result.group, product, where, nullptr, &read);
  return deferred([work = std::move(work)]() mutable { return work.finish(); });
}

}  // namespace

bool sums_products(const LinearCollective& op, Device& device, Index m, Index n, Index k) {
  if (m * n <= (m + n) * k || shapes_only() || !device.transport().has_common()) return false;
  const auto* const all = std::get_if<Psum>(&op);
  const auto* const scatter = std::get_if<PsumScatter>(&op);
  if (all == nullptr && (scatter == nullptr || !scatter->tiled)) return false;
  if (!(all != nullptr ? plain(*all) : plain(*scatter))) return false;
  return worth_parts(static_cast<std::size_t>(m * n) * sizeof(float),
                     device.axis_size(axis_name(op)));
}

Pending start_product_sum(const LinearCollective& op, Device& device, const Array& product,
                          Factors factors, CallSite where) {
  if (const auto* const all = std::get_if<Psum>(&op)) {
    return start(*all, device, product, std::move(factors), where);
  }
  return start(std::get<PsumScatter>(op), device, product, std::move(factors), where);
}

}  // namespace kref::detail
