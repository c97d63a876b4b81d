// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"errors"
	"os"
	"runtime/pprof"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestCompletionsComeToAllWhoWait(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	queue, err := b.kv.NewQueue(64)
	ok(t, err)
	defer queue.Close()
	const waiters, each = 8, 8
	var mu sync.Mutex
	seen := map[uint64]int{}
	var all sync.WaitGroup
	ctx := soon(t)
	for i := 0; i < waiters; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < each; n++ {
				var done [1]Completion
				if _, err := queue.Wait(ctx, done[:]); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen[done[0].UserData]++
				mu.Unlock()
				if done[0].Op != OpStore || done[0].Err() != nil || len(done[0].Items) != 2 {
					t.Errorf("the completion is %+v", done[0])
				}
			}
		}()
	}
	for i := 0; i < waiters*each; i++ {
		for {
			_, err := b.cache.SubmitStore(queue, b.keys(t, uint32(100*i), 2), blockIDs(0, 2), nil, uint64(i))
			if errors.Is(err, ErrAgain) {
				continue
			}
			ok(t, err)
			break
		}
	}
	all.Wait()
	for i := uint64(0); i < waiters*each; i++ {
		if seen[i] != 1 {
			t.Errorf("completion %d came %d times", i, seen[i])
		}
	}
}

func TestEventsDoNotKeepCompletionsBack(t *testing.T) {
	for round := 0; round < 150; round++ {
		waitForBothKinds(t)
	}
}

// Two wait on one queue, each for its kind alone.
func waitForBothKinds(t *testing.T) {
	t.Helper()
	b := newBench(t, ManagerOptions{})
	queue, err := b.kv.NewQueue(8)
	ok(t, err)
	defer queue.Close()
	ok(t, b.manager.Subscribe(queue))
	ctx := soon(t)
	events := make(chan []Event, 1)
	go func() {
		var all []Event
		out := make([]Event, 3)
		for len(all) < 40 {
			n, err := queue.WaitEvents(ctx, out)
			if err != nil {
				t.Error(err)
				break
			}
			all = append(all, out[:n]...)
		}
		events <- all
	}()
	for i := 0; i < 10; i++ {
		_, err := b.cache.SubmitStore(queue, b.keys(t, uint32(100*i), 4), blockIDs(0, 4), nil, uint64(i))
		ok(t, err)
		var done [2]Completion
		n, err := queue.Wait(ctx, done[:])
		ok(t, err)
		if n != 1 || done[0].UserData != uint64(i) {
			t.Fatalf("%d completions, the first %+v", n, done[0])
		}
	}
	for i, e := range <-events {
		if e.Sequence != uint64(i+1) || e.Kind != EventStored {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	ok(t, b.manager.Subscribe(nil))
}

func TestWaitEndsWithItsContext(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	queue, err := b.kv.NewQueue(8)
	ok(t, err)
	defer queue.Close()
	var done [1]Completion
	for round := 0; round < 50; round++ {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		if n, err := queue.Wait(ctx, done[:]); n != 0 || !errors.Is(err, context.Canceled) {
			t.Fatalf("%d, %v", n, err)
		}
		late, cancel := context.WithTimeout(context.Background(), time.Microsecond)
		if n, err := queue.Wait(late, done[:]); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
		cancel()
	}
	_, err = b.cache.SubmitStore(queue, b.keys(t, 1, 1), []uint32{0}, nil, 5)
	ok(t, err)
	if n, err := queue.Wait(soon(t), done[:]); n != 1 || err != nil || done[0].UserData != 5 {
		t.Fatalf("%d, %v: %+v", n, err, done[0])
	}
}

func TestClosingAQueueWakesThoseWhoWait(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	for round := 0; round < 20; round++ {
		queue, err := b.kv.NewQueue(8)
		ok(t, err)
		results := make(chan error, 4)
		for i := 0; i < 4; i++ {
			go func(events bool) {
				var err error
				if events {
					_, err = queue.WaitEvents(context.Background(), make([]Event, 1))
				} else {
					_, err = queue.Wait(context.Background(), make([]Completion, 1))
				}
				results <- err
			}(i%2 == 0)
		}
		ok(t, queue.Close())
		for i := 0; i < 4; i++ {
			wantClosed(t, <-results)
		}
	}
}

func TestTheLibrarysDescriptorStaysAsItIs(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	queue, err := b.kv.NewQueue(8)
	ok(t, err)
	defer queue.Close()
	fd, err := queue.FD()
	ok(t, err)
	other, err := b.kv.NewQueue(8)
	ok(t, err)
	otherFD, err := other.FD()
	ok(t, err)
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	if errno != 0 || flags&syscall.O_NONBLOCK == 0 {
		t.Fatalf("the flags are %#x: %v", flags, errno)
	}
	// The poller's copy is closed with the queue, and the descriptor itself by the library alone: were it closed twice,
	// what got its number meanwhile would be gone.
	ok(t, other.Close())
	file, err := os.Open("/dev/null")
	ok(t, err)
	defer file.Close()
	if _, err := file.Stat(); err != nil {
		t.Fatalf("descriptor %d, after %d: %v", file.Fd(), otherFD, err)
	}
	_, err = b.cache.SubmitStore(queue, b.keys(t, 1, 1), []uint32{0}, nil, 5)
	ok(t, err)
	var done [1]Completion
	_, err = queue.Wait(soon(t), done[:])
	ok(t, err)
}

var slowBenches []*testBench

// slowBench has blocks on a disk that is read so slowly that a load takes minutes: the cap lets one transfer pass and
// makes the next wait, so there is one in advance. It is never closed: closing waits for reads that are queued, minutes
// too.
func slowBench(t *testing.T) (*testBench, *Match, []Key) {
	t.Helper()
	folder, err := os.MkdirTemp("", "kvbm-go")
	ok(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	tier := Tier{Path: folder, CapacityBytes: 64 << 20}
	first := newBench(t, ManagerOptions{Tiers: []Tier{tier}})
	keys := first.keys(t, 1, 16)
	ok(t, first.cache.Store(context.Background(), keys, blockIDs(0, 16), nil))
	advance := first.keys(t, 1000, 1)
	ok(t, first.cache.Store(context.Background(), advance, blockIDs(0, 1), nil))
	ok(t, first.manager.Flush(soon(t)))
	first.close()
	tier.ReadBytesPerSecond = 64
	b := openBench(t, ManagerOptions{Tiers: []Tier{tier}})
	slowBenches = append(slowBenches, b)
	ok(t, b.manager.Prefetch(context.Background(), b.ns, nil, advance))
	match, err := b.cache.Lookup(keys, nil)
	ok(t, err)
	t.Cleanup(func() { match.Close() })
	if match.Hits() != 16 {
		t.Fatalf("%d of 16 blocks are on the disk", match.Hits())
	}
	return b, match, keys
}

func TestLoadEndsWithItsContext(t *testing.T) {
	b, match, keys := slowBench(t)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := b.cache.Load(ctx, match, blockIDs(0, 16), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the load ended as %v", err)
	}
	cancelled, stop := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, stop)
	if err := b.cache.Load(cancelled, match, blockIDs(0, 16), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("the load ended as %v", err)
	}
	prefetch, end := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer end()
	if err := b.manager.Prefetch(prefetch, b.ns, nil, keys); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the prefetch ended as %v", err)
	}
	if took := time.Since(begin); took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestClosingAQueueCancelsItsLoads(t *testing.T) {
	b, match, _ := slowBench(t)
	queue, err := b.kv.NewQueue(4)
	ok(t, err)
	number, err := b.cache.SubmitLoad(queue, match, blockIDs(0, 16), nil, 1)
	ok(t, err)
	second, err := b.cache.SubmitLoad(queue, match, blockIDs(16, 16), nil, 2)
	ok(t, err)
	ok(t, queue.Cancel(number))
	var done [1]Completion
	_, err = queue.Wait(soon(t), done[:])
	ok(t, err)
	if done[0].Operation != number || done[0].UserData != 1 || !errors.Is(done[0].Err(), ErrCancelled) {
		t.Fatalf("%d, %d: %+v", number, second, done[0])
	}
	begin := time.Now()
	ok(t, queue.Close())
	if took := time.Since(begin); took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Goroutines that wait for the library must not each occupy a system thread. They begin one after another: while their
// submissions run concurrently, Go may make a thread for each one that the system does not schedule.
func TestWaitingTakesNoThreads(t *testing.T) {
	b, match, _ := slowBench(t)
	const loads = 64
	soon := soon(t)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	begin := func() {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := b.cache.Load(ctx, match, blockIDs(0, 4), nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
	}
	inFlight := func() uint64 {
		s, err := b.manager.Stats()
		ok(t, err)
		return s.OperationsInFlight
	}
	threads := pprof.Lookup("threadcreate")
	before := threads.Count()
	for n := uint64(1); n <= loads && soon.Err() == nil; n++ {
		begin()
		for inFlight() < n && soon.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	if n := inFlight(); n < loads {
		t.Errorf("%d loads are under way", n)
	}
	if more := threads.Count() - before; more > loads/2 {
		t.Errorf("%d loads took %d threads", loads, more)
	}
	cancel()
	all.Wait()
}
