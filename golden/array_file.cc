// SPDX-License-Identifier: Apache-2.0
#include "golden/array_file.h"

namespace kref {

const FileArray* ArrayFile::find(const std::string& name) const {
  for (const FileArray& a : arrays) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

}  // namespace kref
