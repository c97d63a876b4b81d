// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestGoKeepsItsSignals(t *testing.T) {
	b := newBench(t, ManagerOptions{})
	b.register(t, b.keys(t, 1, 4), 1).Close()
	checkSignals(t)
}

// UCX installs handlers for faults where it is let, which would take Go's away.
func TestGoKeepsItsSignalsWithUCX(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key") // UCX cannot determine the user of its peers
	ok(t, os.WriteFile(key, []byte("kvbm-pool-key-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f:75cfd3a0"), 0o600))
	settings := map[string]string{"node.listen": "127.0.0.1:0", "node.transport": "ucx", "node.ucx_module": ucxModule,
		"node.key_file": key}
	kv, err := NewContext(&ContextOptions{Settings: settings})
	ok(t, err)
	defer kv.Close()
	manager, err := kv.NewManager(&ManagerOptions{BlockBytes: testBlockBytes, HostCapacityBytes: 1 << 20})
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrConfig) {
		t.Skipf("skipped: UCX: %v", err)
	}
	ok(t, err)
	defer manager.Close()
	address, err := manager.NodeAddress()
	ok(t, err)
	delete(settings, "node.listen")
	settings["node.peers"] = address
	other, err := NewContext(&ContextOptions{Settings: settings})
	ok(t, err)
	defer other.Close()
	peer, err := other.NewManager(&ManagerOptions{BlockBytes: testBlockBytes, HostCapacityBytes: 1 << 20})
	ok(t, err)
	defer peer.Close()
	ctx := soon(t)
	for ready := false; !ready; time.Sleep(time.Millisecond) {
		rows, err := peer.Nodes()
		ok(t, err)
		ready = len(rows) > 0 && rows[0].State == "ready"
		if ctx.Err() != nil {
			t.Fatalf("the nodes did not meet: %+v", rows)
		}
	}
	checkSignals(t)
}

func checkSignals(t *testing.T) {
	t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		came := make(chan os.Signal, 1)
		signal.Notify(came, s)
		ok(t, syscall.Kill(syscall.Getpid(), s))
		select {
		case got := <-came:
			if got != s {
				t.Errorf("%v came as %v", s, got)
			}
		case <-soon(t).Done():
			t.Errorf("%v did not come", s)
		}
		signal.Stop(came)
	}
	if err := nilDereference(); err == nil || !strings.Contains(err.Error(), "nil pointer dereference") {
		t.Errorf("a nil dereference was recovered as %v", err)
	}
	// A goroutine that never yields is stopped by SIGURG, or the garbage collector would wait for it for ever.
	old := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(old)
	var stop atomic.Bool
	spinning := make(chan struct{})
	go func() {
		close(spinning)
		for n := 0; !stop.Load(); n++ {
		}
	}()
	<-spinning
	collected := make(chan struct{})
	go func() {
		runtime.GC()
		close(collected)
	}()
	select {
	case <-collected:
	case <-soon(t).Done():
		t.Error("the garbage collector could not stop a goroutine that spins")
	}
	stop.Store(true)
}

//go:noinline
func nilDereference() (err error) {
	defer func() { err, _ = recover().(error) }()
	var p *[8]int
	p[3]++
	return nil
}

// In a forked child, which Go programs have no use for but a library may make, calls give an error.
func TestAForkedChildGetsAnError(t *testing.T) {
	if raceDetector {
		t.Skip("skipped: fork: the race detector's runtime does not work in a forked child")
	}
	if os.Getenv("FORK_TEST") == "" {
		// In a program of its own: the child of a fork has one thread, and Go needs more for anything but this. What
		// another thread has locked at that moment stays locked, so it may have to be tried again.
		var out []byte
		for try := 0; try < 4; try++ {
			c := exec.Command(os.Args[0], "-test.run=^TestAForkedChildGetsAnError$", "-test.v")
			c.Env = append(os.Environ(), "FORK_TEST=1")
			out, _ = c.CombinedOutput()
			if !strings.Contains(string(out), "the child did not end") {
				break
			}
		}
		if !strings.Contains(string(out), "the child saw KVBM_ERR_FORKED") {
			t.Fatalf("%s", out)
		}
		return
	}
	b := newBench(t, ManagerOptions{})
	keys := b.keys(t, 1, 2)
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	pid, _, errno := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	if pid == 0 {
		code := uintptr(1)
		if _, err := b.manager.Lookup(b.ns, keys, nil); errors.Is(err, ErrForked) {
			code = 42
		}
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
	var status syscall.WaitStatus
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
		done, err := syscall.Wait4(int(pid), &status, syscall.WNOHANG, nil)
		ok(t, err)
		if done != 0 {
			break
		}
		if time.Now().After(end) {
			syscall.Kill(int(pid), syscall.SIGKILL)
			t.Fatal("the child did not end")
		}
	}
	if status.ExitStatus() != 42 {
		t.Fatalf("the child ended with %d", status.ExitStatus())
	}
	t.Log("the child saw KVBM_ERR_FORKED")
}
