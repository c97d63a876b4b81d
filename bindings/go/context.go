// SPDX-License-Identifier: Apache-2.0

package libkvbm

/*
#include "shim.h"
*/
import "C"

import (
	"bufio"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// LogLevel says how much a context logs.
type LogLevel int32

// The levels of kvbm.h.
const (
	LogOff     LogLevel = C.KVBM_LOG_OFF
	LogError   LogLevel = C.KVBM_LOG_ERROR
	LogWarning LogLevel = C.KVBM_LOG_WARNING
	LogInfo    LogLevel = C.KVBM_LOG_INFO
	LogDebug   LogLevel = C.KVBM_LOG_DEBUG
)

// ContextOptions is how a context is made; the zero value takes everything from the environment.
type ContextOptions struct {
	Threads    uint32            // worker threads; 0 = from configuration
	ConfigFile string            // TOML; "" = $KVBM_CONFIG, else none
	Settings   map[string]string // configuration options; these win over file and environment
	// Log receives the library's log, one line at a time, on a goroutine of its own. It may do anything, also call this
	// package. Lines that come while it is more than a pipe's length behind are lost. nil = silent.
	Log      func(level LogLevel, component, text string)
	LogLevel LogLevel // 0 with Log = LogWarning
}

// A Context is configuration, worker threads and an I/O engine: what managers and queues are made in.
type Context struct {
	h    *handle
	core *contextCore
}

// Shared state of the objects of a context.
type contextCore struct {
	h      *handle
	queues queuePool
}

// NewContext makes a context. Configuration is resolved once, here: defaults, then the TOML file, then KVBM_* of the
// environment, then the settings; the later wins.
func NewContext(o *ContextOptions) (*Context, error) {
	const op = "NewContext"
	if err := checkLibrary(op); err != nil {
		return nil, err
	}
	if o == nil {
		o = &ContextOptions{}
	}
	file, err := text(op, "ConfigFile", o.ConfigFile)
	if err != nil {
		return nil, err
	}
	settings, err := packSettings(op, o.Settings)
	if err != nil {
		return nil, err
	}
	logFD, level := -1, o.LogLevel
	if o.Log != nil {
		if logFD, err = startLog(o.Log); err != nil {
			return nil, &Error{Op: op, Status: StatusIO, Message: "no pipe for the log: " + err.Error(), cause: err}
		}
		if level == LogOff {
			level = LogWarning
		}
	}
	var out *C.kvbm_context_t
	var log unsafe.Pointer
	var detail C.kvbm_error_t
	status := C.kvbmgo_context_create(chars(file), C.uint32_t(o.Threads), chars(settings), C.size_t(len(o.Settings)),
		C.int(logFD), C.int32_t(level), &out, &log, &detail)
	if status < 0 {
		if logFD >= 0 {
			syscall.Close(logFD)
		}
		return nil, failWith(op, status, &detail)
	}
	core := &contextCore{}
	core.h = newHandle("context", unsafe.Pointer(out), func(p unsafe.Pointer) {
		C.kvbm_context_release((*C.kvbm_context_t)(p))
		C.kvbmgo_log_close(log)
	})
	return &Context{core.h, core}, nil
}

func packSettings(op string, settings map[string]string) ([]byte, error) {
	names := make([]string, 0, len(settings))
	for name := range settings {
		names = append(names, name)
	}
	sort.Strings(names)
	var packed []byte
	var err error
	for _, name := range names {
		if packed, err = appendText(op, "a setting's name", packed, name); err != nil {
			return nil, err
		}
		if packed, err = appendText(op, "setting "+name, packed, settings[name]); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// startLog makes the pipe that carries log lines: the library logs on threads of its own, which had better not enter Go.
// The goroutine ends when the library's end is closed.
func startLog(log func(LogLevel, string, string)) (int, error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return -1, err
	}
	lines := os.NewFile(uintptr(ends[0]), "kvbm log")
	go func() {
		defer lines.Close()
		for in := bufio.NewReaderSize(lines, 8192); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
			if len(fields) == 3 {
				level, _ := strconv.Atoi(fields[0])
				log(LogLevel(level), fields[1], fields[2])
			}
		}
	}()
	return ends[1], nil
}

func (c *Context) handle() *handle {
	if c == nil {
		return nil
	}
	return c.h
}

// Close ends the context; what was made in it goes on.
func (c *Context) Close() error {
	if c != nil && c.h != nil {
		c.core.queues.close()
		c.h.close()
	}
	return nil
}

// Config returns the effective configuration as TOML, each value with its origin as a comment.
func (c *Context) Config() (string, error) {
	const op = "Context.Config"
	if err := c.handle().enter(op, "context"); err != nil {
		return "", err
	}
	defer c.h.exit()
	return twoPhase(op, func(out *C.char, capacity C.size_t, needed *C.size_t) C.kvbm_status_t {
		return C.kvbm_context_config((*C.kvbm_context_t)(c.h.ptr), out, capacity, needed)
	})
}

// ConfigReference returns the table of all configuration options as Markdown.
func ConfigReference() (string, error) {
	return twoPhase("ConfigReference", func(out *C.char, capacity C.size_t, needed *C.size_t) C.kvbm_status_t {
		return C.kvbm_config_reference(out, capacity, needed)
	})
}

// twoPhase reads a text of a length that is not known: once more with more room where it has grown meanwhile.
func twoPhase(op string, call func(out *C.char, capacity C.size_t, needed *C.size_t) C.kvbm_status_t) (string, error) {
	room := make([]byte, 1024)
	for {
		var needed C.size_t
		if status := call(chars(room), C.size_t(len(room)), &needed); status < 0 {
			return "", fail(op, status)
		}
		if int(needed) < len(room) {
			return string(room[:needed]), nil
		}
		room = make([]byte, int(needed)+int(needed)/4+1)
	}
}

func chars(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }
