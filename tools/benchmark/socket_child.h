// The two ends of a measurement over loopback: a child process that answers, and this process that asks. A question
// is one Request; the answer is `count` pieces of `bytes` bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "copy/frame_guard.h"

namespace kvbm::benchmark {

struct Request {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t first_tag = 0;
  uint64_t padding[5] = {};  // 64 bytes, like a request for a block
};
static_assert(sizeof(Request) == 64);

class Asker {
 public:
  virtual ~Asker() = default;
  // Reads count pieces of `bytes` into memory, one after the other, starting again at its end.
  virtual Status get(uint64_t count, uint64_t bytes, MutableBytes memory) = 0;
};

// Adds the seconds of one get().
Status time_answer(Asker& asker, uint64_t count, uint64_t bytes, MutableBytes memory, std::vector<double>& out);

// A child process that ends with this object.
class Child {
 public:
  // Runs work() in the child, which then exits.
  static Result<std::unique_ptr<Child>> start(const std::function<void()>& work);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
};

// Uses blocking sockets. The child answers from its own memory, which it goes through in a circle.
Result<std::unique_ptr<Asker>> plain_asker(uint64_t source_bytes);
// Uses blocking sockets with AES-256-GCM of OpenSSL in the threads that send and receive, over pieces of 128 KiB.
// This is the best that a link with such protection could do with one thread per side. how: not off.
Result<std::unique_ptr<Asker>> guarded_asker(uint64_t source_bytes, copy::Protection how);
// Uses the TCP transport, each side driven by its process's only thread.
Result<std::unique_ptr<Asker>> transport_asker(uint64_t source_bytes);

}  // namespace kvbm::benchmark
