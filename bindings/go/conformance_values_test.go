// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The arguments of a step, resolved. Every one must be asked for, or the step has one that is not known.
type arguments struct {
	values map[string]any
	used   map[string]bool
}

type results = map[string]any

func (a *arguments) checkUsed() {
	for name := range a.values {
		if !a.used[name] {
			throw("the argument %s is not known", name)
		}
	}
}

func (a *arguments) get(name string) any {
	a.used[name] = true
	return a.values[name]
}

// sub reads the members of an object of an argument.
func sub(value any) *arguments {
	object, is := value.(map[string]any)
	if !is {
		throw("%v is no object", value)
	}
	return &arguments{values: object, used: map[string]bool{}}
}

// object gives an argument that is an object of the library; the zero value where it is left out.
func object[T any](a *arguments, name string) T {
	var none T
	value := a.get(name)
	if value == nil {
		return none
	}
	o, is := value.(T)
	if !is {
		throw("%s is a %T, not a %T", name, value, none)
	}
	return o
}

func (a *arguments) text(name string) string {
	if value := a.get(name); value != nil {
		s, is := value.(string)
		if !is {
			throw("%s is no text", name)
		}
		return s
	}
	return ""
}

func toUint64(value any) uint64 {
	switch v := value.(type) {
	case int64:
		if v < 0 {
			panic(unfit(fmt.Sprintf("%d is negative", v)))
		}
		return uint64(v)
	case string:
		n, err := strconv.ParseUint(v, 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			panic(unfit(err.Error()))
		}
		if err != nil {
			throw("%q is no number", v)
		}
		return n
	}
	throw("%v (%T) is no number", value, value)
	return 0
}

// toInt reads a number of Go's own type, which may be negative.
func toInt(value any) int {
	if v, is := value.(int64); is {
		return int(v)
	}
	n := toUint64(value)
	if n > math.MaxInt {
		panic(unfit(fmt.Sprintf("%d is no int", n)))
	}
	return int(n)
}

func toUint32(value any) uint32 {
	n := toUint64(value)
	if n > math.MaxUint32 {
		panic(unfit(fmt.Sprintf("%d is no uint32", n)))
	}
	return uint32(n)
}

func (a *arguments) uint64(name string) uint64 {
	if value := a.get(name); value != nil {
		return toUint64(value)
	}
	return 0
}

func (a *arguments) int(name string) int {
	if value := a.get(name); value != nil {
		return toInt(value)
	}
	return 0
}

func (a *arguments) uint32(name string) uint32 {
	if value := a.get(name); value != nil {
		return toUint32(value)
	}
	return 0
}

func (a *arguments) flag(name string) bool { return a.uint64(name) != 0 }

// timeout gives a time in the form of the options: 0 where it is left out or for ever, negative for 0.
func (a *arguments) timeout(name string) time.Duration {
	if _, has := a.values[name]; !has {
		a.get(name)
		return 0
	}
	switch ns := a.uint64(name); {
	case ns == 0:
		return -1
	case ns == math.MaxUint64:
		return 0
	default:
		return time.Duration(min(ns, math.MaxInt64))
	}
}

func (a *arguments) list(name string) []any {
	value := a.get(name)
	if value == nil {
		return nil
	}
	list, is := value.([]any)
	if !is {
		throw("%s is no list", name)
	}
	return list
}

// each reads the elements of a list; nil where it is left out.
func each[T any](a *arguments, name string, read func(any) T) []T {
	list := a.list(name)
	if list == nil {
		return nil
	}
	out := make([]T, len(list))
	for i, e := range list {
		out[i] = read(e)
	}
	return out
}

func toBytes(value any) []byte {
	s, is := value.(string)
	data, err := hex.DecodeString(s)
	if !is || err != nil {
		throw("%v is no hexadecimal text", value)
	}
	return data
}

func toKey(value any) Key {
	data := toBytes(value)
	if len(data) != 16 {
		throw("a key has %d bytes", len(data))
	}
	return Key(data)
}

func toHold(value any) Hold {
	switch v := value.(type) {
	case Hold:
		return v
	case int64:
		return Hold(v)
	}
	throw("%v is no hold", value)
	return 0
}

func (a *arguments) keys(name string) []Key   { return each(a, name, toKey) }
func (a *arguments) holds(name string) []Hold { return each(a, name, toHold) }

func (a *arguments) key(name string) *Key {
	value := a.get(name)
	if value == nil {
		return nil
	}
	k := toKey(value)
	return &k
}

func toShard(value any) Shard {
	a := sub(value)
	defer a.checkUsed()
	return Shard{uint16(a.uint64("first_layer")), uint16(a.uint64("layers")), uint16(a.uint64("first_head")),
		uint16(a.uint64("heads")), a.flag("replicated")}
}

// part reads the members of a part, which other objects have too.
func (a *arguments) partMembers() Part {
	p := Part{Component: a.uint32("component")}
	if shard := a.get("shard"); shard != nil {
		p.Shard = toShard(shard)
	}
	return p
}

func toPart(value any) Part {
	a := sub(value)
	defer a.checkUsed()
	return a.partMembers()
}

func (a *arguments) part(name string) *Part {
	value := a.get(name)
	if value == nil {
		return nil
	}
	p := toPart(value)
	return &p
}

func toPosition(value any) Position {
	a := sub(value)
	defer a.checkUsed()
	return Position{a.uint64("first_token"), a.uint64("rotation"), a.uint64("left_context")}
}

func (a *arguments) tokens(name string) []uint32 {
	t := sub(a.get(name))
	defer t.checkUsed()
	step := uint32(1)
	if _, has := t.values["step"]; has {
		step = t.uint32("step")
	}
	first := t.uint32("first")
	tokens := make([]uint32, t.int("count"))
	for i := range tokens {
		tokens[i] = first + uint32(i)*step
	}
	return tokens
}

// Parts of results.

func number[T ~int | ~int32 | ~uint32 | ~uint64](n T) int64 { return int64(n) }
func decimal[T ~uint64](n T) string                         { return strconv.FormatUint(uint64(n), 10) }

// shown is the text of a row, in lower case.
func shown(row any) string { return strings.ToLower(fmt.Sprintf("%+v", row)) }

func flagOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func listOf[T any](in []T, write func(T) any) []any {
	out := make([]any, len(in))
	for i, e := range in {
		out[i] = write(e)
	}
	return out
}

func keyList(keys []Key) []any { return listOf(keys, func(k Key) any { return k.String() }) }
func holdList(holds []Hold) []any {
	return listOf(holds, func(h Hold) any {
		if h == 0 {
			return int64(0)
		}
		return h
	})
}
func statusList(items []Status) []any {
	return listOf(items, func(s Status) any { return number(s) })
}

func present(holds []Hold) int64 {
	n := int64(0)
	for _, h := range holds {
		if h != 0 {
			n++
		}
	}
	return n
}

// Memory of a scenario; on a device with its address.
type memory struct {
	data    []byte
	address uintptr
}

func (m *memory) Close() error { return nil }

// patternByte is byte j of the pattern of a seed.
func patternByte(seed, j uint32) byte {
	x := seed*1000003 + j
	x ^= x >> 15
	x *= 2246822519
	x ^= x >> 13
	return byte(x)
}

func fillPattern(to []byte, seed uint32) {
	for j := range to {
		to[j] = patternByte(seed, uint32(j))
	}
}

func comparePattern(got []byte, seed uint32) error {
	for j, b := range got {
		if want := patternByte(seed, uint32(j)); b != want {
			return fmt.Errorf("byte %d is %#02x, not %#02x, of the pattern of seed %d", j, b, want, seed)
		}
	}
	return nil
}

// rows calls do for each row that memory.fill writes.
func (a *arguments) rows(do func(row []byte, seed uint32) error) error {
	m := object[*memory](a, "memory")
	length, offset, seed := a.uint64("bytes"), a.uint64("offset"), a.uint32("seed")
	type dim struct{ count, stride uint64 }
	dims := each(a, "dims", func(value any) dim {
		pair, is := value.([]any)
		if !is || len(pair) != 2 {
			throw("a dimension is a count and a stride")
		}
		return dim{toUint64(pair[0]), toUint64(pair[1])}
	})
	n := uint64(1)
	for _, d := range dims {
		n *= d.count
	}
	for r := uint64(0); r < n; r++ {
		at, rest := offset, r
		for i := len(dims) - 1; i >= 0; i-- {
			at += rest % dims[i].count * dims[i].stride
			rest /= dims[i].count
		}
		if at+length > uint64(len(m.data)) {
			throw("row %d lies outside the memory", r)
		}
		if err := do(m.data[at:at+length], seed+uint32(r)); err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
	}
	return nil
}
