// SPDX-License-Identifier: Apache-2.0
#include "dsl/dtype.h"

#include <cctype>
#include <string>

namespace kref {
namespace {

struct Spelling {
  DType type;
  const char* name;  // safetensors
  const char* jax;   // jax.numpy, lower case
};

constexpr Spelling kSpellings[] = {
    {DType::kF64, "F64", "float64"},
    {DType::kF32, "F32", "float32"},
    {DType::kF16, "F16", "float16"},
    {DType::kBF16, "BF16", "bfloat16"},
    {DType::kF8E4M3, "F8_E4M3", "float8_e4m3fn"},
    {DType::kF8E5M2, "F8_E5M2", "float8_e5m2"},
    {DType::kI64, "I64", "int64"},
    {DType::kI32, "I32", "int32"},
    {DType::kI16, "I16", "int16"},
    {DType::kI8, "I8", "int8"},
    {DType::kU32, "U32", "uint32"},
    {DType::kU8, "U8", "uint8"},
    {DType::kBool, "BOOL", "bool"},
};

}  // namespace

const char* name_of(DType type) { return kSpellings[static_cast<std::size_t>(type)].name; }

bool parse_dtype(const char* name, DType& type) {
  std::string upper, lower;
  for (const char* p = name; *p != '\0'; ++p) {
    const auto c = static_cast<unsigned char>(*p);
    upper += static_cast<char>(std::toupper(c));
    lower += static_cast<char>(std::tolower(c));
  }
  for (const Spelling& s : kSpellings) {
    if (upper == s.name || lower == s.jax) {
      type = s.type;
      return true;
    }
  }
  return false;
}

}  // namespace kref
