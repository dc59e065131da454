// Text as ids of subwords: byte-pair encoding (Sennrich, Haddow and Birch 2016) of UTF-8 bytes, so that any text has
// ids, and English and Italian share one vocabulary.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/tensor.h"

namespace translate {

using Ids = std::vector<std::int64_t>;

// Ids: 0 ends a sentence, 1 begins one, 2 to 257 are bytes, and each merge of two ids makes one more.
class Tokenizer {
 public:
  static constexpr std::int64_t end = 0;
  static constexpr std::int64_t begin = 1;
  static constexpr std::int64_t first_byte = 2;
  static constexpr std::int64_t first_merge = first_byte + 256;

  // Merges the pair of neighbours that is most frequent within the words of the texts (of equals the first by its ids),
  // until there are `size` ids, or none that occurs twice.
  static Tokenizer learn(std::span<const std::string> texts, std::int64_t size);
  // merges [merges,2], i64: the pair that becomes first_merge, and so on. Throws bad_shape, bad_dtype, bad_value.
  explicit Tokenizer(const attend::View& merges);

  attend::Tensor merges() const;
  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  // Without begin and end.
  Ids encode(std::string_view text) const;
  // The text; begin and end are left out.
  std::string decode(std::span<const std::int64_t> ids) const;
  // One id for a picture: in UTF-8, and where it begins a word, without the blank before it.
  std::string label(std::int64_t id) const;

 private:
  Tokenizer();
  void add(std::pair<std::int64_t, std::int64_t> merge);

  std::vector<std::string> pieces_;  // the bytes of each id
  std::vector<std::pair<std::int64_t, std::int64_t>> merges_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> merged_;  // pair -> the id that it becomes
};

}  // namespace translate
