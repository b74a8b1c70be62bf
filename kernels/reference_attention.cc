// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kref::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 1.4426950408889634;

ArrayRef swapped(ArrayRef a) {  // [B, T, H, D] -> [B, H, T, D]
  std::swap(a.extents[1], a.extents[2]);
  std::swap(a.strides[1], a.strides[2]);
  return a;
}

// The elements, dense and row-major.
std::vector<double> numbers(const ArrayRef& a) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(a.size()));
  with_dtype(a.dtype, [&]<class T>() {
    Shape<kMaxRank> at{};
    for (Index n = a.size(); n > 0; --n) {
      Index offset = 0;
      for (std::size_t d = 0; d < a.rank; ++d) offset += at[d] * a.strides[d];
      out.push_back(static_cast<double>(static_cast<const T*>(a.data)[offset]));
      for (std::size_t d = a.rank; d-- > 0 && ++at[d] == a.extents[d];) at[d] = 0;
    }
  });
  return out;
}

double rounded(double v, DType type) {
  return with_dtype(type, [&]<class T>() { return static_cast<double>(static_cast<T>(v)); });
}

void check_shape(const char* name, const ArrayRef& a, std::initializer_list<Index> expected,
                 std::size_t may_be_one = 0) {
  bool fits = a.rank == expected.size();
  for (std::size_t d = 0; fits && d < a.rank; ++d) {
    fits = a.extents[d] == expected.begin()[d] || (d < may_be_one && a.extents[d] == 1);
  }
  KREF_CHECK(fits, "attention: ", name, " is ", to_string(a), ", expected ",
             shape_string({expected.begin(), expected.size()}),
             may_be_one > 0 ? ", all but the last may be 1" : "");
}

// `legal` is what the element type may be.
void check_dtype(const char* name, const ArrayRef& a, bool legal, const char* expected) {
  KREF_CHECK(legal, "attention: ", name, " is ", to_string(a), ", expected ", expected);
}

// An optional [B|1, H|1, T|1, S] array.
struct Broadcast {
  std::vector<double> values;
  Index b = 0, h = 0, t = 0;  // strides, 0 along a dimension of 1

  Broadcast(const char* name, const std::optional<ArrayRef>& a,
            std::initializer_list<Index> shape) {
    if (!a) return;
    check_shape(name, *a, shape, 3);
    values = numbers(*a);
    const Index e[] = {a->extents[0], a->extents[1], a->extents[2], a->extents[3]};
    t = e[2] == 1 ? 0 : e[3];
    h = e[1] == 1 ? 0 : e[2] * e[3];
    b = e[0] == 1 ? 0 : e[1] * e[2] * e[3];
  }
  const double* row(Index ib, Index ih, Index it) const {
    return values.data() + (ib * b + ih * h + it * t);
  }
};

class Definition {
 public:
  Definition(const AttentionInputs& in, const AttentionOptions& options)
      : options_(options),
        q_shape_(bhtd(in.q, "q")),
        k_shape_(bhtd(in.k, "k")),
        v_shape_(bhtd(in.v, "v")),
        bias_("bias", in.bias, {batches_, heads_, queries_, keys_}),
        mask_("mask", in.mask, {batches_, heads_, queries_, keys_}) {
    if (in.bias) check_dtype("bias", *in.bias, is_float(in.bias->dtype), "floats");
    if (in.mask) check_dtype("mask", *in.mask, in.mask->dtype == DType::kBool, "BOOL");
    check_shape("k", k_shape_, {batches_, groups_, keys_, depth_});
    check_shape("v", v_shape_, {batches_, groups_, keys_, width_});
    KREF_CHECK(groups_ == 0 ? heads_ == 0 : heads_ % groups_ == 0, "attention: H = ", heads_,
               " is not a multiple of G = ", groups_);
    const auto& window = options.window;
    KREF_CHECK(window.left.value_or(0) >= 0 && window.right.value_or(0) >= 0,
               "attention: a window side is negative");
    KREF_CHECK(!(options.soft_cap.value_or(1) <= 0), "attention: soft_cap is not positive");
    KREF_CHECK(options.fully_masked != FullyMasked::kUniform || keys_ > 0 || queries_ == 0,
               "attention: fully_masked is uniform, but S = 0 leaves nothing to take the mean of");
    q_ = numbers(q_shape_), k_ = numbers(k_shape_), v_ = numbers(v_shape_);
    KREF_CHECK(in.q_segment_ids.has_value() == in.kv_segment_ids.has_value(),
               "attention: one of q_segment_ids and kv_segment_ids is missing");
    read("q_segment_ids", in.q_segment_ids, "I32", {batches_, queries_}, q_segments_);
    read("kv_segment_ids", in.kv_segment_ids, "I32", {batches_, keys_}, kv_segments_);
    read("sinks", in.sinks, "floats", {heads_}, sinks_);
    lengths("q_lengths", in.q_lengths, queries_, q_lengths_);
    lengths("kv_lengths", in.kv_lengths, keys_, kv_lengths_);
  }

  void run(const std::function<void(const AttentionRow&)>& visit) const {
    AttentionRow row;
    for (row.batch = 0; row.batch < batches_; ++row.batch) {
      for (row.head = 0; row.head < heads_; ++row.head) {
        const Index group = row.head / (heads_ / groups_);
        const Index kv = (row.batch * groups_ + group) * keys_;
        row.k = k_.data() + kv * depth_;
        row.v = v_.data() + kv * width_;
        for (row.query = 0; row.query < queries_; ++row.query) {
          fill(row);
          visit(row);
        }
      }
    }
  }

 private:
  ArrayRef bhtd(const ArrayRef& a, const char* name) {
    check_dtype(name, a, a.rank == 4 && is_float(a.dtype), "floats of rank 4");
    return options_.layout == Layout::kBTHD ? swapped(a) : a;
  }
  // `type`: "I32" or "floats".
  void read(const char* name, const std::optional<ArrayRef>& a, const char* type,
            std::initializer_list<Index> shape, std::vector<double>& out) {
    if (!a) return;
    check_dtype(name, *a, *type == 'I' ? a->dtype == DType::kI32 : is_float(a->dtype), type);
    check_shape(name, *a, shape);
    out = numbers(*a);
  }
  void lengths(const char* name, const std::optional<ArrayRef>& a, Index most,
               std::vector<double>& out) {
    read(name, a, "I32", {batches_}, out);
    for (std::size_t b = 0; b < out.size(); ++b) {
      KREF_CHECK(out[b] >= 0 && out[b] <= static_cast<double>(most), "attention: ", name, '[', b,
                 "] is ", static_cast<Index>(out[b]), ", expected 0 to ", most);
    }
  }

  // Does the row at (b, i) see key j as far as positions, lengths and segments go?
  bool sees(Index b, Index i, Index j) const {
    const Causal causal = options_.causal;
    if (!kv_lengths_.empty() &&
        static_cast<double>(j) >= kv_lengths_[static_cast<std::size_t>(b)]) {
      return false;
    }
    const Index ahead = j - (causal == Causal::kBottomRight ? keys_ - queries_ + i : i);
    if (causal != Causal::kNone && ahead > 0) return false;
    if (options_.window.left && -ahead > *options_.window.left) return false;
    if (options_.window.right && ahead > *options_.window.right) return false;
    if (q_segments_.empty()) return true;
    const double mine = q_segments_[static_cast<std::size_t>(b * queries_ + i)];
    const double its = kv_segments_[static_cast<std::size_t>(b * keys_ + j)];
    if (mine < 0 && options_.negative_segments == NegativeSegments::kNever) return false;
    return mine == its;
  }

  void fill(AttentionRow& row) const {
    row.q = q_.data() + ((row.batch * heads_ + row.head) * queries_ + row.query) * depth_;
    row.keys.clear();
    row.o.assign(static_cast<std::size_t>(width_), 0.0);
    row.maximum = row.sink = row.lse = -kInfinity;
    row.denominator = 0;
    const auto b = static_cast<std::size_t>(row.batch);
    if (!q_lengths_.empty() && static_cast<double>(row.query) >= q_lengths_[b]) {
      row.kind = AttentionRow::Kind::kPastLength;
      return;
    }
    const double* mask = mask_.values.empty() ? nullptr : mask_.row(row.batch, row.head, row.query);
    const double* bias = bias_.values.empty() ? nullptr : bias_.row(row.batch, row.head, row.query);
    for (Index j = 0; j < keys_; ++j) {
      if (!sees(row.batch, row.query, j) || (mask != nullptr && mask[j] == 0)) continue;
      row.keys.push_back(score(row.q, row.k + j * depth_, bias == nullptr ? 0 : bias[j], j));
    }
    if (!sinks_.empty()) row.sink = sinks_[static_cast<std::size_t>(row.head)];
    softmax(row);
  }

  AttentionRow::Key score(const double* q, const double* k, double bias, Index j) const {
    const double scale = options_.scale;
    double dot = 0, product = 0;
    for (Index d = 0; d < depth_; ++d) {
      dot += q[d] * k[d];
      product += std::fabs(q[d] * k[d]);
    }
    AttentionRow::Key key{j, product, 0, 0, 0, 0};
    if (options_.bias_order == BiasOrder::kAfterScale) {
      key.score = dot * scale + bias;
      key.magnitude = product * std::fabs(scale) + std::fabs(bias);
    } else {
      key.score = (dot + bias) * scale;
      key.magnitude = (product + std::fabs(bias)) * std::fabs(scale);
    }
    key.logit = options_.soft_cap ? *options_.soft_cap * std::tanh(key.score / *options_.soft_cap)
                                  : key.score;
    return key;
  }

  // Turns the logits of row.keys and the sink into weights, lse and o.
  void softmax(AttentionRow& row) const {
    double maximum = row.sink;
    for (const AttentionRow::Key& key : row.keys) {
      // A NaN is taken and stays: nothing is greater than it.
      if (key.logit > maximum || std::isnan(key.logit)) maximum = key.logit;
    }
    row.maximum = maximum;
    if (maximum == -kInfinity) return no_key(row);
    row.kind = AttentionRow::Kind::kSoftmax;
    double sum = std::exp(row.sink - maximum);
    for (AttentionRow::Key& key : row.keys) {
      key.weight = std::exp(key.logit - maximum);
      sum += key.weight;
    }
    for (AttentionRow::Key& key : row.keys) {
      const double p = options_.p_dtype ? rounded(key.weight, *options_.p_dtype) : key.weight;
      const double* v = row.v + key.index * width_;
      for (std::size_t e = 0; e < row.o.size(); ++e) row.o[e] += p * v[e];
      key.weight /= sum;
    }
    for (double& o : row.o) o /= sum;
    row.denominator = sum;
    row.lse = maximum + std::log(sum);
    if (options_.lse_base == LogBase::k2) row.lse *= kLog2E;
  }

  void no_key(AttentionRow& row) const {
    row.kind = AttentionRow::Kind::kNoKey;
    row.keys.clear();
    if (options_.fully_masked == FullyMasked::kNaN) {
      std::fill(row.o.begin(), row.o.end(), kNotANumber);
      row.lse = kNotANumber;
    } else if (options_.fully_masked == FullyMasked::kUniform) {
      for (Index j = 0; j < keys_; ++j) {
        for (std::size_t e = 0; e < row.o.size(); ++e) row.o[e] += (row.v + j * width_)[e];
      }
      for (double& o : row.o) o /= static_cast<double>(keys_);
    }
  }

  const AttentionOptions& options_;
  ArrayRef q_shape_, k_shape_, v_shape_;
  const Index batches_ = q_shape_.extents[0], heads_ = q_shape_.extents[1],
              queries_ = q_shape_.extents[2], depth_ = q_shape_.extents[3],
              groups_ = k_shape_.extents[1], keys_ = k_shape_.extents[2],
              width_ = v_shape_.extents[3];
  Broadcast bias_, mask_;
  std::vector<double> q_, k_, v_, q_segments_, kv_segments_, q_lengths_, kv_lengths_, sinks_;
};

}  // namespace

void attention_rows(const AttentionInputs& in, const AttentionOptions& options,
                    const std::function<void(const AttentionRow&)>& visit) {
  Definition(in, options).run(visit);
}

AttentionResult attention(const AttentionInputs& in, const AttentionOptions& options) {
  const bool bthd = options.layout == Layout::kBTHD;
  const Index heads = in.q.extents[bthd ? 2 : 1], queries = in.q.extents[bthd ? 1 : 2];
  const Index width = in.v.extents[3];
  AttentionResult out;
  const auto rows = static_cast<std::size_t>(in.q.extents[0] * heads * queries);
  out.o.resize(rows * static_cast<std::size_t>(width));
  out.lse.resize(rows);
  std::size_t at = 0;
  attention_rows(in, options, [&](const AttentionRow& row) {
    std::copy(row.o.begin(), row.o.end(),
              out.o.begin() + o_offset(options.layout, heads, queries, width, row));
    out.lse[at++] = row.lse;
  });
  return out;
}

Index row_index(Layout layout, Index b, Index heads, Index h, Index rows, Index r) {
  return layout == Layout::kBHTD ? (b * heads + h) * rows + r : (b * rows + r) * heads + h;
}

Index o_offset(Layout layout, Index heads, Index queries, Index width, const AttentionRow& row) {
  return row_index(layout, row.batch, heads, row.head, queries, row.query) * width;
}

}  // namespace kref::reference
