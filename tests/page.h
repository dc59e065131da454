// What tests of pages share: a part of a page, and what is packed in one.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <string_view>

namespace attend::test {

inline std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const std::size_t from = text.find(begin) + begin.size();
  EXPECT_LT(from, text.size()) << begin;
  return text.substr(from, text.find(end, from) - from);
}

// What a .gz file holds, by zlib's own reader, to the end of the file.
inline std::string unpacked(const std::string& packed) {
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string out, some(1 << 16, '\0');
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(some.data()), stream.avail_out = static_cast<uInt>(some.size());
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(some, 0, some.size() - stream.avail_out);
  }
  EXPECT_EQ(status, Z_STREAM_END);
  EXPECT_EQ(stream.avail_in, 0u);
  inflateEnd(&stream);
  return out;
}

}  // namespace attend::test
