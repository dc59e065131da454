// Keys cut into stretches, one item of work for each head of each sequence and each of them: for passes whose items
// keep their keys while all queries pass by, and add to the same rows in the order of the stretches (item_progress.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace attend::inline v1 {

struct Stretches {
  struct Item {
    std::int64_t sequence, head, stretch;
  };

  std::int64_t keys = 0;                    // of a stretch, at most
  std::int64_t heads = 0;                   // of a sequence
  std::vector<Item> items;                  // in the order in which they are taken
  std::vector<std::int64_t> first_stretch;  // of each sequence, counted for one head

  // Makes the lists; `keys` is there already. keys_of(n): how many of sequence n are looked at, of which none make one
  // stretch too.
  void cut(std::int64_t sequences, std::int64_t heads_of_each,
           const std::function<std::int64_t(std::int64_t)>& keys_of);

  std::int64_t count(std::int64_t sequence) const;  // of the sequence's stretches
  // A number for each item: a head's stretches follow each other.
  std::size_t place(const Item& item) const;
  std::int64_t list_bytes() const;
};

}  // namespace attend::inline v1
