// What the shared library exports: everything else in it is hidden. The library and its users' programs must agree on
// the layout of what the headers declare; namespace attend is the inline namespace attend::v0 for that: a program that
// was built with headers of another layout, whose number is then another one, does not link. scripts/abi.sh compares
// two states of the tree.
#pragma once

#define ATTEND_API __attribute__((visibility("default")))
