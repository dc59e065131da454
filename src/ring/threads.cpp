// Ranks that are threads of one process.
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <tuple>

#include "attend/ring.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// What one rank sends, or waits for, until it meets the other side.
struct Message {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t bytes = 0;
  bool done = false;
};

// What all ranks share. A message is copied straight from the sender's memory, by whoever comes second.
struct Group {
  using Key = std::tuple<int, int, int>;  // sender, receiver, tag

  std::mutex mutex;
  std::map<Key, std::deque<std::shared_ptr<Message>>> sent, awaited;
  std::vector<std::string> lost;  // of each rank, why; empty: it is there
};

class ThreadRank : public RingTransport {
 public:
  ThreadRank(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~ThreadRank() override { leave("is gone"); }
  ThreadRank(const ThreadRank&) = delete;
  ThreadRank& operator=(const ThreadRank&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->lost.size()); }

  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override {
    return meet({rank_, to, tag}, {.from = data, .bytes = bytes}, group_->awaited, group_->sent, to);
  }

  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override {
    return meet({from, rank_, tag}, {.to = data, .bytes = bytes}, group_->sent, group_->awaited, from);
  }

  bool test(std::int64_t request) override {
    const std::lock_guard lock(group_->mutex);
    const auto at = requests_.find(request);
    const auto [message, peer] = at->second;
    if (message->done) {
      requests_.erase(at);
      return true;
    }
    for (int other = 0; other < size(); ++other) {
      // One that is gone concerns those who wait for it; one that has given up, all.
      const std::string& why = group_->lost[static_cast<std::size_t>(other)];
      if (!why.empty() && (other == peer || why != "is gone")) fail(ErrorCode::lost_rank, "", "rank {} {}", other, why);
    }
    return false;
  }

  void abandon(std::string_view reason) noexcept override {
    try {
      leave("gave up: " + std::string(reason));
    } catch (const std::bad_alloc&) {  // the others learn it when this one is gone
    }
  }

 private:
  using Queues = std::map<Group::Key, std::deque<std::shared_ptr<Message>>>;

  std::int64_t meet(const Group::Key& key, const Message& mine, Queues& theirs, Queues& ours, int peer) {
    const std::lock_guard lock(group_->mutex);
    const auto message = std::make_shared<Message>(mine);
    auto& waiting = theirs[key];
    if (waiting.empty()) {
      ours[key].push_back(message);
    } else {
      Message& other = *waiting.front();
      if (other.bytes != mine.bytes)
        fail(ErrorCode::bad_value, "", "a message of {} bytes meets one of {}", mine.bytes, other.bytes);
      if (mine.bytes > 0)
        std::memcpy(mine.to ? mine.to : other.to, mine.from ? mine.from : other.from,
                    static_cast<std::size_t>(mine.bytes));
      other.done = message->done = true;
      waiting.pop_front();
    }
    requests_[next_] = {message, peer};
    return next_++;
  }

  // What this rank has under way is no longer touched by others.
  void leave(const std::string& why) {
    const std::lock_guard lock(group_->mutex);
    std::string& lost = group_->lost[static_cast<std::size_t>(rank_)];
    if (lost.empty()) lost = why;
    for (Queues* queues : {&group_->sent, &group_->awaited}) {
      for (auto& [key, messages] : *queues) {
        const int owner = queues == &group_->sent ? std::get<0>(key) : std::get<1>(key);
        if (owner == rank_) messages.clear();
      }
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::int64_t next_ = 0;
  std::map<std::int64_t, std::pair<std::shared_ptr<Message>, int>> requests_;
};

}  // namespace

std::vector<std::unique_ptr<RingTransport>> threads_as_ranks(int ranks) {
  if (ranks < 1) fail(ErrorCode::bad_value, "threads_as_ranks", "ranks is {}, expected at least 1", ranks);
  const auto group = std::make_shared<Group>();
  group->lost.resize(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<RingTransport>> list;
  list.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) list.push_back(std::make_unique<ThreadRank>(group, rank));
  return list;
}

}  // namespace attend::inline v1
