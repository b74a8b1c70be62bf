// SPDX-License-Identifier: Apache-2.0
#include "sharding/collectives_reduce.h"

#include <algorithm>

#include "dsl/work_meter.h"
#include "kernels/tile_ops.h"

namespace kref::detail {
namespace {

// Of a piece: running value and one term stay in the first-level cache.
constexpr std::size_t kPieceBytes = std::size_t{16} << 10;
// What a piece of rows may span in a member's array where it has to be fetched.
constexpr Index kSpanBytes = Index{64} << 10;

// The type as which the verbs of kernels/ see it: bool, 0 or 1, has no arithmetic, bytes have.
DType as_number(DType type) { return type == DType::kBool ? DType::kU8 : type; }

// Two dimensions, rows `stride` elements apart.
ArrayRef strided(DType type, Index rows, Index columns, Index stride, const void* data) {
  const Index shape[] = {rows, columns};
  ArrayRef out(type, shape, data);
  out.strides[0] = stride;
  return out;
}

void convert(const ArrayRef& from, const MutableArrayRef& to) {
  cast(from, to, Overflow::kDefault);
}

// The extremum so far and who has it; a NaN beats every number, the first one stays.
template <class T>
void fold_place(const T* term, T* best, std::int32_t* place, Index count, std::int32_t rank,
                bool smallest) {
  for (Index i = 0; i < count; ++i) {
    const bool better = smallest ? term[i] < best[i] : term[i] > best[i];
    const bool nan = term[i] != term[i] && best[i] == best[i];
    if (better || nan) best[i] = term[i], place[i] = rank;
  }
}

// One piece on its way from the terms of all members to the result.
class Piece {
 public:
  Piece(const Folding& r, Index rows, Index columns) : r_(r), rows_(rows), columns_(columns) {}

  // Where the running value is kept: `out` when that has its type, else own memory. Before the
  // first term.
  void begin(std::byte* out) {
    out_ = dense(as_number(r_.result), out);
    const bool in_place = r_.fold != Fold::kMean && out_.dtype == r_.accumulate && !places();
    running_ = in_place ? out_ : dense(r_.accumulate, running_memory_);
    terms_ = 0;
  }

  // The next term, of member `rank`. `term` stays valid until the next but one.
  void fold(Index rank, const ArrayRef& term) {
    ArrayRef t = term;
    if (r_.wire) {
      const MutableArrayRef rounded = dense(*r_.wire, wire_memory_);
      convert(t, rounded);
      t = rounded;
    }
    if (terms_++ == 0) return start(rank, t);
    if (t.dtype != r_.accumulate) {
      const MutableArrayRef wide = dense(r_.accumulate, wide_memory_);
      convert(t, wide);
      t = wide;
    }
    if (places()) return fold_places(rank, t);
    const ArrayRef so_far = first_ ? *first_ : ArrayRef(running_);
    binary(verb(), so_far, t, running_);
    first_.reset();
  }

  // After the last term: the result is in `out`.
  void finish() {
    if (first_) convert(*first_, running_);
    first_.reset();
    if (places()) return convert(dense(DType::kI32, places_memory_), out_);
    if (r_.fold == Fold::kMean) divide();
    if (running_.data != out_.data) convert(running_, out_);
  }

 private:
  bool places() const { return r_.fold == Fold::kArgMax || r_.fold == Fold::kArgMin; }
  Binary verb() const {
    if (r_.fold == Fold::kMax) return Binary::kMaximum;
    return r_.fold == Fold::kMin ? Binary::kMinimum : Binary::kAdd;
  }
  MutableArrayRef dense(DType type, void* data) const {
    const Index shape[] = {rows_, columns_};
    return MutableArrayRef(type, shape, data);
  }

  // The first term is only looked at where it stands, if it can be added from there.
  void start(Index rank, const ArrayRef& t) {
    if (!places() && !r_.wire && t.dtype == r_.accumulate) {
      first_ = t;
      return;
    }
    convert(t, running_);
    if (places()) {
      std::fill_n(places_memory_, rows_ * columns_, static_cast<std::int32_t>(rank));
    }
  }

  void fold_places(Index rank, const ArrayRef& t) {
    const auto as = [&]<class T>() {
      for (Index row = 0; row < rows_; ++row) {
        fold_place(static_cast<const T*>(t.data) + row * t.strides[0],
                   static_cast<T*>(running_.data) + row * columns_, places_memory_ + row * columns_,
                   columns_, static_cast<std::int32_t>(rank), r_.fold == Fold::kArgMin);
      }
    };
    if (r_.accumulate == DType::kF64) return as.template operator()<double>();
    if (r_.accumulate == DType::kF32) return as.template operator()<float>();
    as.template operator()<std::int64_t>();
  }

  // By the number of terms, in f32 also where sums run in 16 bits, which do not hold every number,
  // or in integers.
  void divide() {
    if (size_of(running_.dtype) < 4 || !is_float(running_.dtype)) {
      const MutableArrayRef wide = dense(DType::kF32, wide_memory_);
      convert(running_, wide);
      running_ = wide;
    }
    const auto count = static_cast<double>(terms_);
    const auto count_f32 = static_cast<float>(count);
    ArrayRef divisor;
    divisor.dtype = running_.dtype;
    divisor.data = &count_f32;
    if (running_.dtype == DType::kF64) divisor.data = &count;
    binary(Binary::kDiv, running_, divisor, running_);
  }

  const Folding& r_;
  Index rows_, columns_;
  Index terms_ = 0;
  MutableArrayRef out_, running_;
  std::optional<ArrayRef> first_;  // the first term while it is the only one
  alignas(64) std::byte running_memory_[kPieceBytes];
  alignas(64) std::byte wide_memory_[kPieceBytes];
  alignas(64) std::byte wire_memory_[kPieceBytes];
  alignas(64) std::int32_t places_memory_[kPieceBytes / sizeof(std::int32_t)];
};

// Elements of a piece: as many as each of its buffers holds. Quotients and places have 4 bytes.
Index piece_elements(const Folding& f) {
  const std::size_t widest = std::max({std::size_t{4}, size_of(f.accumulate), size_of(f.result),
                                       size_of(f.wire.value_or(f.result))});
  return static_cast<Index>(kPieceBytes / widest);
}

// Who is k-th in the order of a sum.
Index member(const Folding& r, Index k, Index n, Index chunk) {
  if (r.order == SumOrder::kRank) return k;
  return ((chunk - 1 - k) % n + n) % n;
}

}  // namespace

void reduce(Exchange& exchange, Index n, Index chunk, const Folding& reduction, const Part& part,
            const Sink& sink) {
  if (shapes_only()) return;
  if (part.rows == 0 || part.columns == 0) return;
  const auto element = static_cast<Index>(size_of(reduction.operand));
  const std::size_t result_element = size_of(reduction.result);
  // Whole rows where several fit, else pieces of one.
  const Index most = piece_elements(reduction);
  const Index columns = std::min(part.columns, most);
  const Index fetched_rows = 1 + (kSpanBytes - columns * element) / (part.stride * element);
  const Index rows = part.columns > most ? 1 : std::min(most / columns, fetched_rows);

  alignas(64) std::byte fetched[2][kSpanBytes];  // of two members: see Piece::fold
  alignas(64) std::byte unplaced[kPieceBytes];
  for (Index row = 0; row < part.rows; row += rows) {
    for (Index column = 0; column < part.columns; column += columns) {
      const Index piece_rows = std::min(rows, part.rows - row),
                  piece_columns = std::min(columns, part.columns - column);
      const Index span = (piece_rows - 1) * part.stride + piece_columns;
      const Index from = part.begin + row * part.stride + column;
      const std::size_t to = static_cast<std::size_t>(row * part.columns + column) * result_element;
      std::byte* const out = sink.out != nullptr ? sink.out + to : unplaced;

      Piece piece(reduction, piece_rows, piece_columns);
      piece.begin(out);
      for (Index k = 0; k < n; ++k) {
        const Index who = member(reduction, k, n, chunk);
        const std::byte* term =
            exchange.view(who, static_cast<std::size_t>(from * element),
                          static_cast<std::size_t>(span * element), fetched[k % 2]);
        piece.fold(who, strided(reduction.operand, piece_rows, piece_columns, part.stride, term));
      }
      piece.finish();
      if (sink.published) {
        sink.published(to, static_cast<std::size_t>(piece_rows * piece_columns) * result_element,
                       out);
      }
    }
  }
}

namespace {

// The kinds of numbers that do not mix in one sum.
bool same_kind(DType a, DType b) { return is_float(a) == is_float(b); }

}  // namespace

Folding sum_folding(const char* collective, Fold fold, DType operand, const SumOptions& sum) {
  Folding out;
  out.fold = fold;
  out.operand = operand;
  out.order = sum.order;
  const DType term = operand == DType::kBool ? DType::kI32 : operand;
  out.term = term;
  // The sum of integers, which wraps, becomes a float when it is divided.
  out.result = fold == Fold::kMean && !is_float(term) ? DType::kF32 : term;
  out.accumulate =
      sum.accumulate.value_or(is_float(term) && size_of(term) < 4 ? DType::kF32 : term);
  out.wire = sum.wire;
  const char* kind = is_float(term) ? "a float" : "an integer";
  if (sum.wire) {
    KREF_CHECK(same_kind(*sum.wire, term) && *sum.wire != DType::kBool, collective,
               ": wire type is ", name_of(*sum.wire), ", expected ", kind, " type as the terms, ",
               name_of(term));
  }
  const bool adds =
      out.accumulate != DType::kBool && (!is_float(out.accumulate) || size_of(out.accumulate) > 1);
  KREF_CHECK(same_kind(out.accumulate, term) && adds, collective, ": accumulation type is ",
             name_of(out.accumulate), ", expected ", kind, " type of at least ",
             is_float(term) ? "16" : "8", " bits, since the terms are ", name_of(term));
  return out;
}

Folding extremum_folding(Fold fold, DType operand) {
  Folding out;
  out.fold = fold;
  const bool place = fold == Fold::kArgMax || fold == Fold::kArgMin;
  out.operand = place ? operand : as_number(operand);
  out.result = place ? DType::kI32 : operand;
  if (is_float(operand)) {
    const bool narrow = place ? size_of(operand) < 4 : size_of(operand) == 1;
    out.accumulate = narrow ? DType::kF32 : operand;
  } else {
    out.accumulate = place ? DType::kI64 : out.operand;
  }
  return out;
}

}  // namespace kref::detail
