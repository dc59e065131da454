// Marks what the shared library exports. Library and programs must agree on the headers' layout, so namespace attend is
// the inline namespace attend::v1: programs built with another layout have another number and don't link.
// scripts/abi.sh compares two states of the tree.
#pragma once

#define ATTEND_API __attribute__((visibility("default")))
