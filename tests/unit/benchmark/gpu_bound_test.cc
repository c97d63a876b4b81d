// The bound of a row by arithmetic: which resource limits it, and to how much.
#include "benchmark/gpu_bound.h"

#include <gtest/gtest.h>

namespace kvbm::benchmark::gpu_bound_test {
namespace {

MovedShape quarter_gigabyte() {
  MovedShape shape;
  shape.bytes = 256ULL << 20;
  shape.limit_seconds = 4.9e-3;
  shape.run_bytes = 2ULL << 20;
  return shape;
}

TEST(GpuBound, nothing_in_the_way_is_the_link) {
  const Bound bound = moved_bound(quarter_gigabyte());
  EXPECT_EQ(bound.ratio, 1);
  EXPECT_EQ(bound.why, "the link");
}

TEST(GpuBound, a_host_that_is_slower_than_the_link_is_the_bound) {
  MovedShape shape = quarter_gigabyte();
  shape.host_seconds = 9.8e-3;
  EXPECT_NEAR(moved_bound(shape).ratio, 0.5, 1e-9);
  EXPECT_EQ(moved_bound(shape).why, "the host works for 9800 us");
  shape.host_seconds = 1e-3;
  shape.first_seconds = 0.1e-3;
  EXPECT_NEAR(moved_bound(shape).ratio, 0.98, 1e-9);
  EXPECT_EQ(moved_bound(shape).why, "the host plans for 100 us before the first launch");
}

TEST(GpuBound, kernels_write_over_the_link_in_small_requests_and_read_in_large_ones) {
  MovedShape shape = quarter_gigabyte();
  shape.mapped = true;
  EXPECT_EQ(moved_bound(shape).ratio, 1);
  shape.out = true;
  EXPECT_NEAR(moved_bound(shape).ratio, 0.921, 0.001);
}

TEST(GpuBound, short_copies_are_bound_by_how_they_begin) {
  MovedShape shape = quarter_gigabyte();
  shape.run_bytes = 32ULL << 10;  // 0.6 us of wire
  EXPECT_NEAR(moved_bound(shape).ratio, 0.4785, 0.001);
  shape.mapped = true;
  EXPECT_EQ(moved_bound(shape).ratio, 1);
}

TEST(GpuBound, few_blocks_wait_for_the_launch_and_the_waking) {
  MovedShape shape;
  shape.limit_seconds = 45e-6;
  shape.host_seconds = 20e-6;
  EXPECT_NEAR(latency_bound(shape).ratio, 0.5, 1e-9);
}

TEST(GpuBound, hashing_is_bound_by_memory_where_instructions_do) {
  EXPECT_EQ(hash_bound(132, 1.98e9, 3.0e12).ratio, 1);
  EXPECT_LT(hash_bound(8, 1.98e9, 3.0e12).ratio, 0.25);
  EXPECT_EQ(hash_bound(132, 0, 3.0e12).ratio, 1);
}

TEST(GpuBound, mapped_stores_hold_their_multiprocessors_all_the_time) {
  EXPECT_NEAR(beside_bound(132, 8, 55e9, true).ratio, 1 - 8.0 / 132, 1e-9);
  EXPECT_GT(beside_bound(132, 8, 55e9, false).ratio, 0.99);
  EXPECT_EQ(beside_bound(0, 8, 55e9, true).ratio, 1);
}

TEST(GpuBound, decoding_is_bound_by_its_multiprocessors) {
  EXPECT_NEAR(decoded_bound(8, 48e9).ratio, 0.5, 1e-9);
  EXPECT_EQ(decoded_bound(128, 48e9).ratio, 1);
}

}  // namespace
}  // namespace kvbm::benchmark::gpu_bound_test
