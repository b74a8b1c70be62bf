// SPDX-License-Identifier: Apache-2.0
// Archives that other zip readers take, changed byte by byte from a sound one: holes, overlaps,
// headers that disagree, bytes that belong to nothing.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "golden/array_format.h"

namespace kref {
namespace {

using namespace std::string_literals;

std::string number(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> 8 * i & 0xFF : 0);
  return out;
}

std::uint32_t crc32_of(const std::string& text) {
  std::uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

// U8[5] of `first`, `first` + 1, ...
std::string npy_of(char first) {
  const Index shape[] = {5};
  std::string out = npy_head(Array(DType::kU8, shape));
  for (char i = 0; i < 5; ++i) out += static_cast<char>(first + i);
  return out;
}

struct Zip {
  std::string bytes, directory;
  int count = 0;
  int flags = 0;

  // A stored or deflated member, whose compressed bytes are given.
  void add(const std::string& name, const std::string& content, const std::string& compressed,
           int method) {
    const std::string common = number(static_cast<std::uint64_t>(flags), 2) +
                               number(static_cast<std::uint64_t>(method), 2) +
                               number(0x21 << 16, 4) + number(crc32_of(content), 4) +
                               number(compressed.size(), 4) + number(content.size(), 4) +
                               number(name.size(), 2);
    directory += "PK\1\2\x14\0\x14\0"s + common + number(0, 12) + number(bytes.size(), 4) + name;
    bytes += "PK\3\4\x14\0"s + common + number(0, 2) + name + compressed;
    ++count;
  }
  void add(const std::string& name, const std::string& content) { add(name, content, content, 0); }
  // One deflate block that stores its bytes.
  void add_deflated(const std::string& name, const std::string& content,
                    const std::string& after = "") {
    const auto n = content.size();
    add(name, content, "\1"s + number(n, 2) + number(~n, 2) + content + after, 8);
  }
  std::string finish(const std::string& comment = "") const {
    return bytes + directory + "PK\5\6"s + number(0, 4) +
           number(static_cast<std::uint64_t>(count), 2) +
           number(static_cast<std::uint64_t>(count), 2) + number(directory.size(), 4) +
           number(bytes.size(), 4) + number(comment.size(), 2) + comment;
  }
};

ArrayFile parse(const std::string& text) {
  const auto copy = std::make_shared<std::string>(text);
  FileBytes file;
  file.path = "a.npz";
  file.data = reinterpret_cast<const unsigned char*>(copy->data());
  file.size = copy->size();
  file.owner = copy;
  return parse_npz(file);
}

// Opening it, or reading its members.
void refused(const std::string& text, const char* part) {
  const auto read = [&] {
    for (const FileArray& array : parse(text).arrays) array.array();
  };
  CHECK_THROWS_WITH_AS(read(), doctest::Contains(part), Error);
}

TEST_CASE("sound archives") {
  Zip zip;
  zip.add("x.npy", npy_of(1));
  zip.add_deflated("folder/y.npy", npy_of(20));
  zip.add("bare", npy_of(30));
  const ArrayFile file = parse(zip.finish("a comment"));
  CHECK(file.arrays.size() == 3);
  CHECK(file.find("x")->array().at(4) == 5);
  CHECK(file.find("folder/y")->array().at(4) == 24);
  CHECK(file.find("bare")->array().at(0) == 30);
  CHECK(file.find("x.npy") == nullptr);
}

TEST_CASE("a member is inflated and summed up only when it is asked for, each time in full") {
  for (const bool deflated : {false, true}) {
    CAPTURE(deflated);
    // The last element of y is changed: nothing but the checksum tells.
    Zip zip;
    const auto add = [&](const std::string& name, const std::string& content) {
      deflated ? zip.add_deflated(name, content) : zip.add(name, content);
    };
    add("x.npy", npy_of(1));
    add("y.npy", npy_of(20));
    zip.bytes.back() = 99;
    const ArrayFile file = parse(zip.finish());
    CHECK(file.find("y")->shape == std::vector<Index>{5});
    for (int time = 0; time < 2; ++time) {
      CHECK(file.find("x")->array().at(4) == 5);
      CHECK_THROWS_WITH_AS(file.find("y")->array(),
                           "a.npz: member 'y.npy': is corrupt: wrong CRC-32", Error);
    }
  }
  // An array outlives the archive it came from.
  Zip zip;
  zip.add("x.npy", npy_of(1));
  zip.add_deflated("y.npy", npy_of(20));
  ArrayFile file = parse(zip.finish());
  const Array x = file.find("x")->array(), y = file.find("y")->array();
  file = {};
  CHECK(x.at(4) == 5);
  CHECK(y.at(4) == 24);
}

TEST_CASE("bytes that belong to no member, or to two") {
  Zip zip;
  zip.add("x.npy", npy_of(1));
  zip.add("y.npy", npy_of(2));
  const std::string good = zip.finish();
  refused(good + "junk", "trailing bytes after its end record");
  refused("PK\3\4" + good, "expected at its end record");
  refused(zip.finish("PK\5\6"s + std::string(18, '\0')), "two end records");
  Zip hole = zip;
  hole.bytes += "junk";
  refused(hole.finish(), "a hole");
  Zip between;
  between.add("x.npy", npy_of(1));
  between.bytes += "junk";
  between.add("y.npy", npy_of(2));
  refused(between.finish(), "follows a hole");
  // The second directory entry gone: its member is still there.
  Zip hidden = zip;
  hidden.directory.resize(hidden.directory.size() / 2);
  hidden.count = 1;
  refused(hidden.finish(), "a hole");
  // y lies inside the data of x.
  Zip inner;
  inner.add("y.npy", npy_of(2));
  Zip outer;
  outer.add("x.npy", npy_of(1) + inner.bytes);
  inner.directory.replace(42, 4, number(outer.bytes.size() - inner.bytes.size(), 4));
  outer.directory += inner.directory;
  outer.count = 2;
  refused(outer.finish(), "overlaps");
  Zip miscounted = zip;
  miscounted.count = 1;
  refused(miscounted.finish(), "has 2 entries, its end record says 1");
}

TEST_CASE("local headers that disagree with the directory") {
  Zip zip;
  zip.add("x.npy", npy_of(1));
  const auto changed = [&](std::size_t offset, char value) {
    Zip z = zip;
    z.bytes[offset] = value;
    return z.finish();
  };
  refused(changed(6, 1), "flags of its local header");  // encrypted
  refused(changed(6, 8), "flags of its local header");  // streamed
  refused(changed(8, 8), "cannot be read");             // method
  refused(changed(14, 77), "cannot be read");           // checksum
  refused(changed(18, 77), "cannot be read");           // sizes
  refused(changed(22, 77), "cannot be read");
  refused(changed(30, 'y'), "cannot be read");  // name
  refused(changed(0, 'Q'), "no zip member at byte 0");
}

TEST_CASE("streamed members: the descriptor is there and agrees") {
  for (const bool signature : {false, true}) {
    for (const int width : {4, 8}) {
      for (const bool right : {false, true}) {
        CAPTURE(signature);
        CAPTURE(width);
        Zip zip;
        zip.flags = 8;
        const std::string content = npy_of(1);
        zip.add("x.npy", content);
        zip.bytes += (signature ? "PK\7\10"s : ""s) +
                     number(crc32_of(content) + (right ? 0 : 1), 4) +
                     number(content.size(), width) + number(content.size(), width);
        if (right) {
          CHECK(parse(zip.finish()).arrays[0].array().at(4) == 5);
        } else {
          refused(zip.finish(), "data descriptor");
        }
      }
    }
  }
  Zip none;
  none.flags = 8;
  none.add("x.npy", npy_of(1));
  refused(none.finish(), "data descriptor");
}

TEST_CASE("members that are not exactly one array") {
  const auto with = [](const std::string& name, const std::string& content) {
    Zip zip;
    zip.add(name, content);
    return zip.finish();
  };
  const std::string x = npy_of(1);
  refused(with("x.npy", x + "1"), "member 'x.npy': 1 trailing bytes");
  refused(with("x.npy", x.substr(0, x.size() - 1)), "member 'x.npy': data is cut short");
  refused(with("x.npy", ""), "member 'x.npy': not an .npy array");
  refused(with("d/", ""), "member name 'd/' is a folder");
  refused(with("a\nb.npy", "?"), "member 'a\\x0ab.npy': not an .npy");
  for (const char* const name :
       {"/x.npy", "\\x.npy", "../x.npy", "a/../x.npy", "a\\..\\x.npy", ".."}) {
    refused(with(name, x), "member name");
  }
  refused(with("x.npy\0evil"s, x), "a NUL in it");
  Zip same;
  same.add("x.npy", x);
  same.add("x", x);
  refused(same.finish(), "two members give the array 'x'");
  Zip twice;
  twice.add("x.npy", x);
  twice.add("x.npy", x);
  refused(twice.finish(), "two members of the same name");
  Zip after;
  after.add_deflated("x.npy", x, "junk");
  refused(after.finish(), "4 trailing bytes after its deflate stream");
  Zip longer;
  longer.add("x.npy", x, "\1"s + number(x.size() + 1, 2) + number(~(x.size() + 1), 2) + x + "1", 8);
  refused(longer.finish(), "inflates to more bytes");
  Zip shorter;
  shorter.add(
      "x.npy", x,
      "\1"s + number(x.size() - 1, 2) + number(~(x.size() - 1), 2) + x.substr(0, x.size() - 1), 8);
  refused(shorter.finish(), "inflates to fewer bytes");
  Zip endless;
  endless.add("x.npy", x, "\0"s + number(x.size(), 2) + number(~x.size(), 2) + x, 8);
  refused(endless.finish(), "cut short");
}

}  // namespace
}  // namespace kref
