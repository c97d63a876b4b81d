// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
)

// A poller parks goroutines in Go's network poller until a queue's descriptor is readable. It has its own descriptor
// for that, a copy: Go closes the descriptors that it polls, and the queue's belongs to the library. Nothing is read
// from either.
//
// The network poller reports only changes (epoll's edge), and misses changes that were undone before it looked. So one
// waiter at a time has the turn at the descriptor. It asks the queue first, puts aside everything else that keeps the
// descriptor readable, and sleeps. The other waiters put nothing aside, because that would remove what wakes the
// sleeper. They only look for their own kind, and are notified when the waiter at the descriptor has put something
// aside or was woken.
type poller struct {
	file   *os.File
	raw    syscall.RawConn
	turn   chan struct{}
	closed chan struct{} // closed by interrupt
	once   sync.Once

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
}

type waitResult int

const (
	waitReady waitResult = iota
	waitEnded
	waitInterrupted
)

var longAgo = time.Unix(1, 0)

func newPoller(fd int) (*poller, error) {
	copied, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	// The copy shares the original's flags. The library's is non-blocking; one that is not cannot be polled by Go.
	if err := syscall.SetNonblock(int(copied), true); err != nil {
		syscall.Close(int(copied))
		return nil, err
	}
	p := &poller{file: os.NewFile(copied, "kvbm queue"), turn: make(chan struct{}, 1), closed: make(chan struct{}),
		changed: make(chan struct{})}
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // an error where the descriptor is not polled
	}
	if err != nil {
		p.file.Close()
		return nil, err
	}
	p.raw = raw
	return p, nil
}

// wait returns when ready does, ctx ends or interrupt was called. ready takes what the caller waits for;
// putOthersAside what else keeps the descriptor readable.
func (p *poller) wait(ctx context.Context, ready func() bool, putOthersAside func()) waitResult {
	return p.waitUntil(ctx, p.closed, ready, putOthersAside)
}

func (p *poller) waitUntil(ctx context.Context, closed <-chan struct{}, ready func() bool,
	putOthersAside func()) waitResult {
	for {
		changed := p.nextChange()
		if ready() {
			return waitReady
		}
		select {
		case <-closed:
			return waitInterrupted
		case <-ctx.Done():
			return waitEnded
		default:
		}
		select {
		case <-closed:
			return waitInterrupted
		case <-ctx.Done():
		case <-changed:
		case p.turn <- struct{}{}:
			done := p.sleep(ctx, ready, putOthersAside)
			<-p.turn
			p.tell()
			if done {
				return waitReady
			}
		}
	}
}

// sleep waits for one change of the descriptor, or the end of ctx; true if ready did return true.
func (p *poller) sleep(ctx context.Context, ready func() bool, putOthersAside func()) bool {
	if ctx.Done() != nil {
		woken := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			p.file.SetReadDeadline(longAgo)
			close(woken)
		})
		defer func() {
			if !stop() {
				<-woken
				p.file.SetReadDeadline(time.Time{})
			}
		}()
	}
	looks, done := 0, false
	p.raw.Read(func(uintptr) bool {
		if looks++; looks == 1 { // changes before this call are not reported any more
			if done = ready(); !done {
				putOthersAside()
			}
		}
		return done || looks > 1
	})
	return done
}

func (p *poller) nextChange() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *poller) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// interrupt ends every wait, now and later.
func (p *poller) interrupt() {
	p.once.Do(func() {
		close(p.closed)
		p.file.SetReadDeadline(longAgo)
	})
}

// finish waits for ready, even after an interrupt. Only for ending the queue, when no other goroutine waits.
func (p *poller) finish(ready func() bool, putOthersAside func()) {
	p.file.SetReadDeadline(time.Time{})
	p.waitUntil(context.Background(), nil, ready, putOthersAside)
}

func (p *poller) close() { p.file.Close() }
