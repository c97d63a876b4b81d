// One end of a test of transports: records every call of the listener, fills and checks memory, and fails the test when
// a promise of copy/transport_abi.h is broken: a token that ends twice or never, a call after closed(), `arrived` that
// goes back, memory that is touched after its end.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "copy/transport.h"

namespace kvbm::test {

// The byte at `at` of the content called `seed`.
std::byte content_at(uint64_t seed, uint64_t at);
std::vector<std::byte> content(uint64_t seed, uint64_t bytes);

class TransportSide final : public copy::TransportListener {
 public:
  struct End {
    Code status = Code::ok;
    uint64_t bytes = 0;
  };
  // Memory given to a transport, with a margin of poison on both sides.
  class Buffer {
   public:
    explicit Buffer(uint64_t bytes);
    [[nodiscard]] MutableBytes span() { return {memory_.data() + kMargin, memory_.size() - 2 * kMargin}; }
    // Returns whether the margins are unchanged.
    [[nodiscard]] bool margins_hold() const;
    // Writes poison all over it, once the transport has given it back; poisoned() then says whether it is still there.
    void poison();
    [[nodiscard]] bool poisoned() const;

   private:
    static constexpr size_t kMargin = 64;
    static constexpr std::byte kPoison{0xA5};
    std::vector<std::byte> memory_;
  };

  explicit TransportSide(std::string name) : name_(std::move(name)) {}
  ~TransportSide() override;

  void open(const kvbm_transport_ops_t& ops, const copy::TransportOptions& options = {});
  // Closes the transport, as the end of a process would; each buffer is poisoned at once.
  void close();
  // Returns to the initial state. The transport must be closed.
  void reset();
  [[nodiscard]] copy::Transport& transport() { return *transport_; }
  [[nodiscard]] bool is_open() const { return transport_ != nullptr; }

  // Start operations, and expect that the transport accepts them.
  copy::Token post(copy::Peer peer, uint64_t tag, uint64_t bytes);
  copy::Token push(copy::Peer peer, uint64_t tag, uint64_t seed, uint64_t bytes, size_t pieces = 1);
  void send(copy::Peer peer, std::string_view text);

  // Observed events.
  std::vector<copy::Peer> accepted, connected;
  std::map<copy::Peer, Status> closed;
  std::map<copy::Peer, std::vector<std::string>> messages;
  std::map<copy::Peer, int> writable;
  std::map<copy::Token, End> ends;
  std::map<copy::Token, uint64_t> arrived_bytes;
  // Runs inside peer_message, after it was recorded.
  std::function<void(copy::Peer, ConstBytes)> on_message;
  std::function<void(copy::Peer)> on_accepted;
  std::function<void(copy::Peer, copy::Token)> on_arrived;

  [[nodiscard]] bool ended(copy::Token token) const { return ends.count(token) != 0; }
  [[nodiscard]] bool all_ended() const { return ends.size() == started_.size(); }
  [[nodiscard]] size_t started() const { return started_.size(); }
  [[nodiscard]] MutableBytes memory(copy::Token token) { return buffers_.at(token)->span(); }
  // Checks that the post ended well and holds the content `seed`.
  [[nodiscard]] testing::AssertionResult holds(copy::Token token, uint64_t seed, uint64_t bytes);
  // Poisons the memory of an operation that has ended.
  void poison(copy::Token token) { buffers_.at(token)->poison(); }
  void forget(copy::Token token) { buffers_.erase(token); }
  // Expects that all poisoned memory is unchanged.
  void expect_quiet();

 private:
  void peer_accepted(copy::Peer peer, std::string_view address) override;
  void peer_connected(copy::Peer peer) override;
  void peer_message(copy::Peer peer, ConstBytes bytes) override;
  void peer_writable(copy::Peer peer) override;
  void pushed(copy::Peer peer, copy::Token token, Code status) override;
  void arrived(copy::Peer peer, copy::Token token, uint64_t bytes) override;
  void received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) override;
  void peer_closed(copy::Peer peer, const Status& status) override;
  void expect_alive(copy::Peer peer) const;
  void end(copy::Peer peer, copy::Token token, bool push, const End& end);

  struct Started {
    copy::Peer peer = 0;
    bool push = false;
  };
  const std::string name_;
  std::map<copy::Token, Started> started_;
  std::map<copy::Token, std::unique_ptr<Buffer>> buffers_;
  std::set<copy::Token> poisoned_;
  std::unique_ptr<copy::Transport> transport_;
};

}  // namespace kvbm::test
