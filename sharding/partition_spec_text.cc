// SPDX-License-Identifier: Apache-2.0
// Partition specs as text: read as they stand on a command line, printed as Python and as JAX do.
#include <algorithm>

#include "sharding/axis_state.h"
#include "sharding/placement.h"
#include "sharding/spelling.h"

namespace kref {
namespace {

// Reads the two spellings of a spec; see PartitionSpec::parse.
class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : text_(text) {}

  // What may follow the entries in P(...).
  enum class Keywords { kNone, kUnreduced, kAll };

  Placement read(Keywords allowed) {
    Placement out;
    if (take_word("PartitionSpec", '(') || take_word("P", '(')) {
      while (!take(')')) {
        if (!read_keyword(allowed, out)) {
          KREF_CHECK(keyword_.empty(), start(), "an entry follows ", keyword_, "=");
          out.spec.entries.push_back(read_axes(false));
        }
        if (take(')')) break;
        expect(',', "',' or ')'");
      }
    } else if (peek() != '\0') {
      do out.spec.entries.push_back(read_axes(false));
      while (take(','));
    }
    KREF_CHECK(peek() == '\0', start(), "found ", found(), " where the end was expected");
    return out;
  }

 private:
  // unreduced={...} and what else is allowed; false when an entry stands here instead.
  bool read_keyword(Keywords allowed, Placement& out) {
    const bool all = allowed == Keywords::kAll;
    if (allowed != Keywords::kNone && take_word("unreduced", '=')) {
      read_set("unreduced", out.unreduced);
    } else if (all && take_word("reduced", '=')) {
      read_set("reduced", out.reduced);
    } else if (all && take_word("unreduced_kind", '=')) {
      keyword_ = "unreduced_kind";
      const std::string name = read_name();
      const auto named = [&](UnreducedKind kind) { return name == to_string(kind); };
      const UnreducedKind kinds[] = {UnreducedKind::kSum, UnreducedKind::kMax, UnreducedKind::kMin};
      const auto* const kind = std::find_if(std::begin(kinds), std::end(kinds), named);
      KREF_CHECK(kind != std::end(kinds), start(), "unreduced_kind is ", abridged(name),
                 ", expected sum, max or min");
      out.kind = *kind;
    } else {
      return false;
    }
    return true;
  }
  void read_set(const char* keyword, std::vector<std::string>& axes) {
    KREF_CHECK(axes.empty(), start(), keyword, "= appears twice");
    keyword_ = keyword;
    axes = read_axes(true);
    KREF_CHECK(!axes.empty(), start(), keyword, "= names no axis");
  }

  // One entry: None, a name, a tuple or list of names; a set too where the order says nothing.
  std::vector<std::string> read_axes(bool set) {
    std::vector<std::string> axes;
    const char close = take('(') ? ')' : take('[') ? ']' : set && take('{') ? '}' : '\0';
    if (close == '\0') {
      std::string name = read_name();
      if (name != "None") axes.push_back(std::move(name));
      return axes;
    }
    while (!take(close)) {
      KREF_CHECK(peek() != '(' && peek() != '[', start(), "a tuple inside a tuple");
      axes.push_back(read_name());
      KREF_CHECK(axes.back() != "None", start(), "None inside a tuple");
      if (take(close)) break;
      expect(',', "',' or the end of the tuple");
    }
    return axes;
  }

  // A name, bare or quoted; '' is None.
  std::string read_name() {
    const char quote = peek();
    if (quote == '\'' || quote == '"') {
      const std::size_t end = text_.find(quote, at_ + 1);
      KREF_CHECK(end != text_.npos, start(), "a quote is not closed");
      std::string name(text_.substr(at_ + 1, end - at_ - 1));
      KREF_CHECK(name.empty() || is_axis_name(name), start(), "'", abridged(name),
                 "' is not an axis name");
      at_ = end + 1;
      return name.empty() ? "None" : name;
    }
    std::size_t end = at_;
    while (end < text_.size() && is_name_char(text_[end])) ++end;
    std::string name(text_.substr(at_, end - at_));
    KREF_CHECK(name == "None" || is_axis_name(name), start(), "found ", found(),
               " where None, an axis name or a tuple of names was expected");
    at_ = end;
    return name;
  }

  // The next character that is no blank, left where it is; NUL at the end.
  char peek() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  // A word directly followed by `then`, both taken, or neither.
  bool take_word(std::string_view word, char then) {
    peek();
    const std::size_t before = at_;
    if (text_.substr(at_, word.size()) == word) {
      at_ += word.size();
      if (take(then)) return true;
    }
    at_ = before;
    return false;
  }
  void expect(char c, const char* what) {
    KREF_CHECK(take(c), start(), "found ", found(), " where ", what, " was expected");
  }

  std::string start() const { return detail::cat("partition spec '", abridged(text_), "': "); }
  std::string found() {
    if (peek() == '\0') return at_ < text_.size() ? "a NUL" : "the end";
    return detail::cat("'", abridged(text_.substr(at_, 1)), "' at character ", at_ + 1);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string keyword_;  // the one that was read last
};

std::string quoted(const std::string& axis) { return detail::cat("'", abridged(axis), "'"); }

std::string joined(std::span<const std::string> axes) {
  std::string out;
  for (const std::string& axis : axes) {
    if (!out.empty()) out += ", ";
    out += quoted(axis);
  }
  return out;
}

// "'X', None, ('Y', 'Z')".
std::string entries_string(const PartitionSpec& spec) {
  std::string out;
  for (std::size_t d = 0; d < spec.entries.size(); ++d) {
    const std::span<const std::string> axes = spec[d];
    if (d > 0) out += ", ";
    if (axes.size() > 1) {
      out += detail::cat("(", joined(axes), ")");
    } else {
      out += axes.empty() ? "None" : quoted(axes[0]);
    }
  }
  return out;
}

// jax's short names: s8 is i8, e4m3 is e4m3fn.
std::string short_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "f8_e4m3fn";
    case DType::kF8E5M2:
      return "f8_e5m2";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kI16:
      return "i16";
    case DType::kI8:
      return "i8";
    case DType::kU32:
      return "u32";
    case DType::kU8:
      return "u8";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

std::string typed(DType dtype, std::span<const Index> shape, const PartitionSpec& spec,
                  const ValueState& state, const Mesh& mesh) {
  std::string text = short_name(dtype) + "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) text += ',';
    text += std::to_string(shape[d]);
    if (!spec[d].empty()) text += detail::cat("@", axes_string(spec[d]));
  }
  text += "]";
  return state == ValueState(mesh) ? text : text + to_string(state, mesh);
}

}  // namespace

PartitionSpec PartitionSpec::parse(std::string_view text) {
  return SpecReader(text).read(SpecReader::Keywords::kNone).spec;
}

OutSpec OutSpec::parse(std::string_view text) {
  Placement read = SpecReader(text).read(SpecReader::Keywords::kUnreduced);
  return {std::move(read.spec), std::move(read.unreduced)};
}

Placement Placement::parse(std::string_view text) {
  return SpecReader(text).read(SpecReader::Keywords::kAll);
}

std::string to_string(const PartitionSpec& spec) { return to_string(Placement(spec)); }

std::string to_string(const OutSpec& out) {
  return to_string(Placement(out.spec, {.unreduced = out.unreduced}));
}

std::string to_string(const Placement& placement) {
  std::string text = entries_string(placement.spec);
  const auto add = [&](const std::string& argument) {
    if (!text.empty()) text += ", ";
    text += argument;
  };
  if (!placement.unreduced.empty()) {
    add(detail::cat("unreduced={", joined(placement.unreduced), "}"));
  }
  if (!placement.reduced.empty()) add(detail::cat("reduced={", joined(placement.reduced), "}"));
  if (placement.kind != UnreducedKind::kSum) {
    add(detail::cat("unreduced_kind=", to_string(placement.kind)));
  }
  return detail::cat("P(", text, ")");
}

std::string type_string(DType dtype, std::span<const Index> shape, const OutSpec& out,
                        const Mesh& mesh) {
  return type_string(dtype, shape, Placement(out.spec, {.unreduced = out.unreduced}), mesh);
}

std::string type_string(DType dtype, std::span<const Index> shape, const Placement& placement,
                        const Mesh& mesh) {
  const StateSets sets{.unreduced = placement.unreduced, .reduced = placement.reduced};
  return typed(dtype, shape, placement.spec, ValueState(mesh, sets), mesh);
}

std::string type_string(DType dtype, std::span<const Index> local_shape, const ValueState& state,
                        const Mesh& mesh) {
  return typed(dtype, local_shape, {}, state, mesh);
}

}  // namespace kref
