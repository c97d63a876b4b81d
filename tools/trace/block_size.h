// How many tokens a block of a trace has, found out from the lengths of prompts and how many ids they have.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace kvbm::trace {

// Whether a prompt of `length` tokens has `ids` blocks of `tokens`: its last block may be a part of one, and traces
// either name it or leave it out.
bool fits(uint64_t length, uint64_t ids, uint64_t tokens);

class BlockSize {
 public:
  // A prompt of the trace. False where no block size fits this prompt alone.
  bool add(uint64_t line, uint64_t length, uint64_t ids);
  // `usual` where it fits all, else the only power of two that does, else the only number that does. `unit`: what the
  // numbers given to add() count, "line".
  [[nodiscard]] Result<uint32_t> find(uint32_t usual, const char* unit = "line") const;

 private:
  // The sizes that fit all prompts so far, and the lines that set either end.
  struct Range {
    uint64_t least = 1, most = UINT64_MAX;
    uint64_t least_line = 0, most_line = 0;
    void narrow(uint64_t low, uint64_t high, uint64_t line);
    [[nodiscard]] bool empty() const { return least > most; }
  };
  Range named_;     // where a last block that is a part of one has an id
  Range left_out_;  // where it has none
};

}  // namespace kvbm::trace
