// A program that has threads of its own lends them: attend's work runs there, and starts none beside them.
#include <attend/attend.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iostream>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

// What such a program has: threads that wait for tasks.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int n = 0; n < threads; ++n) threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
  }
  int size() const { return static_cast<int>(threads_.size()); }
  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    some_.notify_one();
  }

 private:
  void serve(const std::stop_token& stop) {
    for (std::unique_lock lock(mutex_); some_.wait(lock, stop, [&] { return !tasks_.empty(); }); lock.lock()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any some_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

Pool& pool() {
  static Pool pool(2);
  return pool;
}

std::atomic<int> pieces = 0;

int count() {
  return pool().size() + 1;
}

// Each worker is taken once, by whoever comes first. The calling thread takes what is left, so that a pool whose
// threads are all busy holds nobody up.
void run(int workers, void (*work)(void* context, int worker), void* context) {
  struct Call {
    explicit Call(int workers) : done(workers) {}
    std::atomic<int> next = 0;
    std::latch done;
  };
  const auto call = std::make_shared<Call>(workers);
  const auto serve = [=] {
    for (int worker = call->next++; worker < workers; worker = call->next++) {
      work(context, worker);
      ++pieces;
      call->done.count_down();
    }
  };
  for (int n = 1; n < workers; ++n) pool().add(serve);
  serve();
  call->done.wait();
}

int main() {
  try {
    attend::Generator generator(42);
    const attend::Tensor x = generator.randn({1, 8, 512, 64});
    const attend::Tensor before = attend::attention(x, x, x).out;

    const attend::HostThreads threads{.count = count, .run = run};
    attend::set_host_threads(&threads);
    const attend::Tensor out = attend::attention(x, x, x).out;
    attend::set_host_threads(nullptr);

    const bool same =
        std::ranges::equal(out.view().reshape({-1}).row<float>(), before.view().reshape({-1}).row<float>());
    std::cout << pieces << " pieces of work, up to " << count() << " at once; the bits are " << (same ? "" : "not ")
              << "those of attend's own threads\n";
    return same ? 0 : 1;
  } catch (const attend::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
