// SPDX-License-Identifier: Apache-2.0
#include "golden/npz_member.h"

#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <new>

#include "dsl/tensor.h"
#include "golden/array_format.h"

namespace kref {
namespace {

// Inflates a raw deflate stream piece by piece and sums up its checksum.
class Inflater {
 public:
  Inflater(const std::string& origin, const unsigned char* data, std::uint64_t bytes)
      : origin_(origin), left_(bytes) {
    stream_.next_in = const_cast<Bytef*>(data);
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // The next `bytes` bytes, all of which must come.
  void read(unsigned char* to, std::size_t bytes) {
    const std::size_t got = inflate_some(to, bytes);
    KREF_CHECK(got == bytes, origin_,
               ": inflates to fewer bytes than the zip directory says: ", bytes - got,
               " are missing");
    crc_ = crc32_z(crc_, to, bytes);
  }
  // Nothing may follow, neither inflated nor compressed. The checksum of all that was read.
  std::uint32_t finish() {
    unsigned char extra = 0;
    KREF_CHECK(inflate_some(&extra, 1) == 0, origin_,
               ": inflates to more bytes than the zip directory says");
    KREF_CHECK(left_ + stream_.avail_in == 0, origin_, ": ", left_ + stream_.avail_in,
               " trailing bytes after its deflate stream");
    return static_cast<std::uint32_t>(crc_);
  }

 private:
  // Up to `bytes` bytes, fewer only at the end of the stream.
  std::size_t inflate_some(unsigned char* to, std::size_t bytes) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits
    std::size_t done = 0;
    while (!ended_) {
      if (stream_.avail_in == 0) {
        stream_.avail_in = static_cast<uInt>(std::min<std::uint64_t>(left_, kMost));
        left_ -= stream_.avail_in;
      }
      stream_.next_out = to + done;
      const auto room = static_cast<uInt>(std::min(bytes - done, kMost));
      stream_.avail_out = room;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      ended_ = code == Z_STREAM_END;
      const bool hungry = stream_.avail_in == 0 && left_ == 0 && stream_.avail_out > 0;
      KREF_CHECK(
          ended_ || ((code == Z_OK || code == Z_BUF_ERROR) && !hungry), origin_,
          ": corrupt deflate stream: ", stream_.msg != nullptr ? stream_.msg : "it is cut short");
      if (done == bytes && (ended_ || stream_.avail_out == 0)) break;
    }
    return done;
  }

  const std::string& origin_;
  z_stream stream_{};
  std::uint64_t left_;  // bytes not yet handed to zlib
  uLong crc_ = 0;
  bool ended_ = false;
};

// What can be said against a member without reading it.
void check_member(const std::string& origin, const ZipMember& m) {
  constexpr std::uint16_t kEncrypted = 1;
  KREF_CHECK((m.flags & kEncrypted) == 0, origin, ": is encrypted, which is not supported");
  KREF_CHECK(m.method == ZIP_CM_STORE || m.method == ZIP_CM_DEFLATE, origin,
             ": compression method ", int{m.method},
             " is not supported; expected 0 (stored) or 8 (deflate)");
  KREF_CHECK(m.method != ZIP_CM_STORE || m.size == m.compressed, origin,
             ": is stored, but the zip directory gives the sizes ", m.compressed, " and ", m.size,
             " bytes");
  // Deflate's best: 258 bytes for two bits. Without this a lying directory would have us allocate.
  KREF_CHECK(m.method == ZIP_CM_STORE || m.size / 1032 <= m.compressed, origin,
             ": the zip directory says that ", m.compressed, " compressed bytes become ", m.size,
             ", which is too large for deflate");
}

// A member whose header has been read: `offset` bytes up to its elements.
struct Member {
  std::string origin;  // the start of every message
  FileBytes file;
  ZipMember place;
  std::size_t offset = 0;
};

FileElements stored_elements(const Member& m) {
  const unsigned char* const data = m.file.data + m.place.data;
  KREF_CHECK(crc32_z(0, data, static_cast<std::size_t>(m.place.size)) == m.place.crc, m.origin,
             ": is corrupt: wrong CRC-32");
  return {m.file.owner, data + m.offset, m.file.mapped};
}

FileElements inflated_elements(const Member& m) try {
  Inflater stream(m.origin, m.file.data + m.place.data, m.place.compressed);
  std::string head(m.offset, '\0');
  stream.read(reinterpret_cast<unsigned char*>(head.data()), head.size());
  const std::size_t bytes = static_cast<std::size_t>(m.place.size) - m.offset;
  detail::Bytes memory = detail::allocate(bytes);
  auto* const data = static_cast<unsigned char*>(memory.get());
  stream.read(data, bytes);
  KREF_CHECK(stream.finish() == m.place.crc, m.origin, ": is corrupt: wrong CRC-32");
  return {std::shared_ptr<const void>(std::move(memory)), data, false};
} catch (const std::bad_alloc&) {
  throw Error(m.origin + ": does not fit into memory");
}

// The .npy stream of a deflated member up to its elements. No more of it is inflated.
std::string inflated_head(const std::string& origin, const FileBytes& file, const ZipMember& m) {
  const auto total = static_cast<std::size_t>(m.size);
  Inflater stream(origin, file.data + m.data, m.compressed);
  std::string head(std::min<std::size_t>(total, 12), '\0');
  stream.read(reinterpret_cast<unsigned char*>(head.data()), head.size());
  const std::size_t offset = npy_data_offset(origin, head, total);
  KREF_CHECK(offset >= head.size(), origin, ": header is empty, expected a dict");
  const std::size_t have = head.size();
  head.resize(offset);
  stream.read(reinterpret_cast<unsigned char*>(head.data()) + have, offset - have);
  return head;
}

}  // namespace

FileArray read_npz_member(const std::string& origin, const FileBytes& file, const ZipMember& m) {
  check_member(origin, m);
  const auto total = static_cast<std::size_t>(m.size);
  const bool stored = m.method == ZIP_CM_STORE;
  std::string head;
  if (stored) {
    const std::string_view text(reinterpret_cast<const char*>(file.data) + m.data, total);
    head = text.substr(0, npy_data_offset(origin, text, total));
  } else {
    head = inflated_head(origin, file, m);
  }
  FileArray array = parse_npy_header(origin, head, total - head.size());
  const Member member{origin, file, m, head.size()};
  array.elements = [member, stored] {
    return stored ? stored_elements(member) : inflated_elements(member);
  };
  return array;
}

}  // namespace kref
