// Derives the tokens per block of a trace from the lengths of prompts and their numbers of ids.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace kvbm::trace {

// Returns whether a prompt of `length` tokens has `ids` blocks of `tokens`. Its last block may be partial, and traces
// either name it or leave it out.
bool fits(uint64_t length, uint64_t ids, uint64_t tokens);

class BlockSize {
 public:
  // Adds a prompt of the trace. Returns false if no block size fits this prompt alone.
  bool add(uint64_t line, uint64_t length, uint64_t ids);
  // Returns `usual` if it fits all, else the only power of two that does, else the only number that does. `unit`:
  // what the numbers given to add() count, "line".
  [[nodiscard]] Result<uint32_t> find(uint32_t usual, const char* unit = "line") const;

 private:
  // The sizes that fit all prompts so far, and the lines that set the two limits.
  struct Range {
    uint64_t least = 1, most = UINT64_MAX;
    uint64_t least_line = 0, most_line = 0;
    void narrow(uint64_t low, uint64_t high, uint64_t line);
    [[nodiscard]] bool empty() const { return least > most; }
  };
  Range named_;     // a partial last block has an id
  Range left_out_;  // a partial last block has none
};

}  // namespace kvbm::trace
