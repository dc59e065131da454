// What all ranks tell each other before and after a pass.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "attend/error.h"
#include "attend/ring.h"

namespace attend::inline v1 {

// Waits until a request is done. Throws what test() throws, and `interrupted`, which the others learn.
void wait_for(RingTransport& ranks, std::int64_t request);

// Each rank's bytes, of any number, on every rank.
std::vector<std::string> gather(RingTransport& ranks, const std::string& own);

// The threads that a call may use here; the most of all ranks.
int most_threads(RingTransport& ranks, const char* function);

// What an argument is called, and what it is: the same on every rank.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Makes an error of one rank one of all, and finds what the ranks disagree about. `body` checks and allocates, and
// gives the facts; it is run before any is sent. Throws on every rank, or on none.
template <class Body>
void agree(RingTransport& ranks, const char* function, Body body);

// Part of a call during which the others wait for this rank: where it throws, they are told. The error has the
// function's name.
template <class Body>
void guard(RingTransport& ranks, const char* function, Body body);

// The pass itself: it is over when it is over on every rank. Throws with the function's name.
template <class Body>
void settle(RingTransport& ranks, const char* function, Body body);

// ---- How ----

// What a rank says: its facts, or the error that it has.
struct Statement {
  Facts facts;
  std::exception_ptr failure;

  std::string text() const;
};

// Throws what is wrong with them: this rank's own error as it is, another's with its number, or a disagreement.
void compare(RingTransport& ranks, const char* function, const Statement& own);

template <class Body>
void agree(RingTransport& ranks, const char* function, Body body) {
  Statement own;
  try {
    own.facts = body();
  } catch (...) {
    own.failure = std::current_exception();
  }
  compare(ranks, function, own);
}

// Not by way of a std::function, which may find no memory.
template <class Body>
void guard(RingTransport& ranks, const char* function, Body body) {
  try {
    body();
  } catch (const Error& error) {
    ranks.abandon(error.what());
    if (!error.function().empty()) throw;
    throw Error(error.code(), function, error.detail());
  } catch (const std::exception& error) {  // std::bad_alloc
    ranks.abandon(error.what());
    throw;
  }
}

template <class Body>
void settle(RingTransport& ranks, const char* function, Body body) {
  guard(ranks, function, [&] {
    body();
    gather(ranks, "");
  });
}

}  // namespace attend::inline v1
