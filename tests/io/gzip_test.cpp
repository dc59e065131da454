// Beside zlib's own reader; Python's reads what pages hold (tests/cli/test_page_files.py).
#include "io/gzip.h"

#include "attend/random.h"
#include "core/base64.h"
#include "tests/expect.h"
#include "tests/page.h"

namespace attend {
namespace {

using test::unpacked;

TEST(Gzip, GivesItsBytesBack) {
  Generator generator(3);
  for (const std::int64_t size : {0, 1, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20}) {
    std::string bytes(static_cast<std::size_t>(size), 'a');
    const Tensor drawn = generator.uniform({size / 3 + 1}, 0, 256);
    for (std::size_t n = 0; n < bytes.size(); n += 3)
      bytes[n] = static_cast<char>(static_cast<unsigned char>(drawn.data<float>()[n / 3]));
    const std::string packed = gzip(bytes);
    EXPECT_EQ(unpacked(packed), bytes) << size;
    EXPECT_LT(packed.size(), bytes.size() * 9 / 10 + 64);
  }
}

// RFC 4648, section 10.
TEST(Base64, IsTheDocuments) {
  for (const auto& [bytes, text] : {std::pair("", ""),
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"}})
    EXPECT_EQ(base64(bytes), text);
  EXPECT_EQ(base64("\xff\xef\xbe"), "/+++");
}

}  // namespace
}  // namespace attend
