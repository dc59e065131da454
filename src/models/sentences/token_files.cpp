// Token vectors of many texts in files, and the best of them for a query.
#include <algorithm>
#include <limits>
#include <mutex>

#include "attend/late_interaction.h"
#include "attend/tensor_files.h"
#include "attend/threads.h"
#include "core/message.h"
#include "io/file.h"

namespace attend::inline v1 {

namespace {

// The best texts so far. Of equal scores the first stays before the others.
class Best {
 public:
  explicit Best(std::int64_t k) : k_(static_cast<std::size_t>(k)) {}

  void see(const NearText& text) {
    if (all_.size() == k_ && !is_before(text, all_.back())) return;
    all_.insert(std::ranges::upper_bound(all_, text, is_before), text);
    if (all_.size() > k_) all_.pop_back();
  }
  void see(const Best& other) {
    for (const NearText& each : other.all_) see(each);
  }
  const std::vector<NearText>& sorted() const { return all_; }

 private:
  static bool is_before(const NearText& a, const NearText& b) {
    return a.score != b.score ? a.score > b.score : a.text < b.text;
  }
  std::size_t k_;
  std::vector<NearText> all_;
};

constexpr const char* writing = "TokenVectorWriter";
constexpr const char* opening = "TokenVectorFile";

std::filesystem::path starts_of(const std::filesystem::path& path) {
  std::filesystem::path starts = path;
  return starts.replace_extension(".starts.npy");
}

std::filesystem::path checked_starts_path(const std::filesystem::path& path) {
  if (path.extension() != ".npy")
    fail(ErrorCode::bad_file, writing, "{}: expected a name that ends in .npy", quote(path.string()));
  return starts_of(path);
}

}  // namespace

TokenVectorWriter::TokenVectorWriter(const std::filesystem::path& path, std::int64_t size)
    : starts_path_(checked_starts_path(path)), rows_(path, size) {}

void TokenVectorWriter::add(const View& vectors) {
  rows_.add(vectors);
  starts_.push_back(rows_.rows());
}

void TokenVectorWriter::commit() {
  write_npy(starts_path_, View(starts_.data(), DType::i64, {std::ssize(starts_)}));
  rows_.commit();
}

bool TokenVectorFile::is_one(const std::filesystem::path& path) {
  return is_there(starts_of(path));
}

TokenVectorFile::TokenVectorFile(const std::filesystem::path& path) : rows_(path), starts_(read_npy(starts_of(path))) {
  const auto refuse = [&] {
    fail(ErrorCode::bad_file, opening, "{} does not say where the texts in {}, which has {} rows, begin",
         quote(starts_of(path).string()), quote(path.string()), rows_.rows().size(0));
  };
  if (starts_.rank() != 1 || starts_.size(0) < 1 || starts_.dtype() != DType::i64) refuse();
  const std::int64_t* starts = starts_.data<std::int64_t>();
  if (!std::is_sorted(starts, starts + starts_.count()) || starts[0] != 0 ||
      starts[starts_.count() - 1] != rows_.rows().size(0))
    refuse();
}

View TokenVectorFile::vectors(std::int64_t text) const {
  if (text < 0 || text >= texts())
    fail(ErrorCode::bad_value, opening, "text is {}, expected 0 to {}", text, texts() - 1);
  const std::int64_t* starts = starts_.data<std::int64_t>();
  return rows_.rows().slice(0, starts[text], starts[text + 1]);
}

std::vector<NearText> TokenVectorFile::nearest(const View& query, std::int64_t k) const {
  constexpr std::int64_t together = 256;  // texts that a thread takes at least
  if (query.rank() != 2 || query.size(1) != size() || query.size(0) < 1)
    fail(ErrorCode::bad_shape, opening, "query has shape {}, expected [1 or more,{}]", query.shape(), size());
  if (k < 1) fail(ErrorCode::bad_value, opening, "k is {}, expected at least 1", k);
  Best best(k);
  std::mutex mutex;
  parallel_for(texts(), together, [&](std::int64_t begin, std::int64_t end) {
    Best found(k);
    for (std::int64_t text = begin; text < end; ++text) {
      const View passage = vectors(text);
      const double none = -std::numeric_limits<double>::infinity();
      found.see({text, passage.size(0) == 0 ? none : max_sim(query, passage).score});
    }
    const std::lock_guard lock(mutex);
    best.see(found);
  });
  return best.sorted();
}

}  // namespace attend::inline v1
