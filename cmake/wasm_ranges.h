// The algorithms of std::ranges that the library calls, for Debian's emscripten, whose standard library has none yet.
// They do what C++20 says of a range, its order and its projection, by the algorithms of std. Compiled in by
// src/CMakeLists.txt, for the sources of models alone; a later library brings its own, and needs none of this.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <ranges>
#include <utility>

#if defined(__EMSCRIPTEN__) && !defined(__cpp_lib_ranges)

namespace std::ranges {

// NOLINTBEGIN(cert-dcl58-cpp)
template <class T, class Of>
auto attend_equal_to(const T& value, Of& of) {
  return [&](const auto& each) { return std::invoke(of, each) == value; };
}
template <class Test, class Of>
auto attend_test(Test& test, Of& of) {
  return [&](auto&& each) -> bool { return std::invoke(test, std::invoke(of, each)); };
}
template <class Order, class Of>
auto attend_order(Order& order, Of& of) {
  return
      [&](const auto& a, const auto& b) -> bool { return std::invoke(order, std::invoke(of, a), std::invoke(of, b)); };
}

template <class Range, class T, class Of = identity>
auto find(Range&& range, const T& value, Of of = {}) {
  return std::find_if(ranges::begin(range), ranges::end(range), attend_equal_to(value, of));
}
template <class Range, class T, class Of = identity>
auto count(Range&& range, const T& value, Of of = {}) {
  return std::count_if(ranges::begin(range), ranges::end(range), attend_equal_to(value, of));
}
template <class Range, class Test, class Of = identity>
auto find_if(Range&& range, Test test, Of of = {}) {
  return std::find_if(ranges::begin(range), ranges::end(range), attend_test(test, of));
}
template <class Range, class Test, class Of = identity>
auto find_if_not(Range&& range, Test test, Of of = {}) {
  return std::find_if_not(ranges::begin(range), ranges::end(range), attend_test(test, of));
}
template <class Range, class Test, class Of = identity>
auto count_if(Range&& range, Test test, Of of = {}) {
  return std::count_if(ranges::begin(range), ranges::end(range), attend_test(test, of));
}
template <class Range, class Test, class Of = identity>
bool all_of(Range&& range, Test test, Of of = {}) {
  return std::all_of(ranges::begin(range), ranges::end(range), attend_test(test, of));
}
template <class Range, class Test, class Of = identity>
bool any_of(Range&& range, Test test, Of of = {}) {
  return std::any_of(ranges::begin(range), ranges::end(range), attend_test(test, of));
}
template <class Range, class Test, class Of = identity>
bool none_of(Range&& range, Test test, Of of = {}) {
  return std::none_of(ranges::begin(range), ranges::end(range), attend_test(test, of));
}
template <class Range, class Order = equal_to>
auto adjacent_find(Range&& range, Order order = {}) {
  return std::adjacent_find(ranges::begin(range), ranges::end(range), order);
}
template <class A, class B, class Same = equal_to>
bool equal(A&& a, B&& b, Same same = {}) {
  return std::equal(ranges::begin(a), ranges::end(a), ranges::begin(b), ranges::end(b), same);
}
template <class Range, class Do>
void for_each(Range&& range, Do each) {
  std::for_each(ranges::begin(range), ranges::end(range), each);
}

template <class Range, class Order = less, class Of = identity>
auto max_element(Range&& range, Order order = {}, Of of = {}) {
  return std::max_element(ranges::begin(range), ranges::end(range), attend_order(order, of));
}
template <class Range, class Order = less, class Of = identity>
auto min_element(Range&& range, Order order = {}, Of of = {}) {
  return std::min_element(ranges::begin(range), ranges::end(range), attend_order(order, of));
}
template <class Range, class T, class Order = less, class Of = identity>
auto lower_bound(Range&& range, const T& value, Order order = {}, Of of = {}) {
  return std::lower_bound(ranges::begin(range), ranges::end(range), value, [&](const auto& each, const T& sought) {
    return std::invoke(order, std::invoke(of, each), sought);
  });
}
template <class Range, class T, class Order = less, class Of = identity>
auto upper_bound(Range&& range, const T& value, Order order = {}, Of of = {}) {
  return std::upper_bound(ranges::begin(range), ranges::end(range), value, [&](const T& sought, const auto& each) {
    return std::invoke(order, sought, std::invoke(of, each));
  });
}

template <class Range, class Order = less, class Of = identity>
void sort(Range&& range, Order order = {}, Of of = {}) {
  std::sort(ranges::begin(range), ranges::end(range), attend_order(order, of));
}
template <class Range, class Order = less, class Of = identity>
void stable_sort(Range&& range, Order order = {}, Of of = {}) {
  std::stable_sort(ranges::begin(range), ranges::end(range), attend_order(order, of));
}
template <class Range, class Middle, class Order = less, class Of = identity>
void partial_sort(Range&& range, Middle middle, Order order = {}, Of of = {}) {
  std::partial_sort(ranges::begin(range), middle, ranges::end(range), attend_order(order, of));
}
template <class Range>
void reverse(Range&& range) {
  std::reverse(ranges::begin(range), ranges::end(range));
}
template <class Range>
auto unique(Range&& range) {
  return subrange(std::unique(ranges::begin(range), ranges::end(range)), ranges::end(range));
}

template <class Range, class To>
void copy(Range&& range, To to) {
  std::copy(ranges::begin(range), ranges::end(range), to);
}
template <class Range, class To, class Test, class Of = identity>
void copy_if(Range&& range, To to, Test test, Of of = {}) {
  std::copy_if(ranges::begin(range), ranges::end(range), to, attend_test(test, of));
}
template <class Range, class To, class Make, class Of = identity>
void transform(Range&& range, To to, Make make, Of of = {}) {
  std::transform(ranges::begin(range), ranges::end(range), to,
                 [&](auto&& each) { return std::invoke(make, std::invoke(of, each)); });
}
// NOLINTEND(cert-dcl58-cpp)

}  // namespace std::ranges

#endif
