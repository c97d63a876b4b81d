// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvbm/libkvbm-go/internal/testdriver"
)

const conformanceFolder = "../conformance"

// TestConformance runs the scenarios that every binding runs (bindings/conformance/README.md).
func TestConformance(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(conformanceFolder, "scenarios", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", conformanceFolder, err)
	}
	constants := readConstants(t)
	for _, file := range files {
		var scenario struct {
			Name, Purpose, Needs string
			Steps                []map[string]any
		}
		readJSON(t, file, &scenario)
		t.Run(scenario.Name, func(t *testing.T) {
			r := &runner{constants: constants, variables: map[string]any{"tmp": t.TempDir()}}
			r.need(t, scenario.Needs)
			defer r.releaseAll()
			for i, step := range scenario.Steps {
				if err := r.step(step); err != nil {
					t.Fatalf("%s: step %d, %v: %v", filepath.Base(file), i+1, step["do"], err)
				}
			}
		})
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func readConstants(t *testing.T) map[string]int64 {
	t.Helper()
	var raw map[string]json.Number
	readJSON(t, filepath.Join(conformanceFolder, "constants.json"), &raw)
	constants := map[string]int64{}
	for name, number := range raw {
		value, err := number.Int64()
		if err != nil {
			continue // KVBM_FOREVER and the like: only ever given as decimal strings
		}
		constants[name] = value
	}
	return constants
}

// A runner does the steps of one scenario. Numbers are int64, lists []any, objects map[string]any; what else is in a
// variable is an object of the library.
type runner struct {
	constants map[string]int64
	variables map[string]any
	objects   []closer // in the order they were made
	driver    *testdriver.Driver
}

type closer interface{ Close() error }

func (r *runner) releaseAll() {
	for i := len(r.objects) - 1; i >= 0; i-- {
		r.objects[i].Close()
	}
}

// wrong is a scenario that the runner does not understand, or that is not as it should be; thrown.
type wrong string

// unfit is a number that the type of an argument cannot hold; thrown.
type unfit string

func throw(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) }

func (r *runner) step(step map[string]any) error {
	within := time.Duration(0)
	if w, has := step["within_ns"]; has {
		within = time.Duration(r.resolve(w).(int64))
	}
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		err := r.once(step)
		if err == nil || !time.Now().Before(end) {
			return err
		}
	}
}

// Members of a step that are not arguments.
var notArguments = map[string]bool{"do": true, "as": true, "expect": true, "error": true, "message": true,
	"range": true, "within_ns": true, "why": true}

func (r *runner) once(step map[string]any) (failure error) {
	defer func() {
		if p := recover(); p != nil {
			switch p := p.(type) {
			case unfit:
				if step["range"] == nil {
					failure = errors.New(string(p))
				}
			case wrong:
				failure = errors.New(string(p))
			default:
				panic(p)
			}
		}
	}()
	do, known := steps[step["do"].(string)]
	if !known {
		throw("the step kind is not known")
	}
	a := &arguments{values: map[string]any{}, used: map[string]bool{}}
	for name, value := range step {
		if !notArguments[name] {
			a.values[name] = r.resolve(value)
		}
	}
	results, err := do(r, a)
	a.checkUsed()
	if name, has := step["range"].(string); has {
		return checkRefusedNumber(err, a.values[name])
	}
	if want, has := step["error"].(string); has {
		return r.checkError(err, want, step["message"])
	}
	if err != nil {
		return err
	}
	if expect, has := step["expect"].(map[string]any); has {
		for name, want := range expect {
			got, has := results[name]
			if !has {
				throw("there is no result %s", name)
			}
			if why := r.match(r.resolve(want), got); why != "" {
				return fmt.Errorf("%s: %s", name, why)
			}
		}
	}
	if as, has := step["as"].(map[string]any); has {
		for name, variable := range as {
			got, has := results[name]
			if !has {
				throw("there is no result %s", name)
			}
			r.variables[variable.(string)] = got
		}
	}
	return nil
}

var bandErrors = map[Band]error{BandCaller: ErrCaller, BandRoom: ErrRoom, BandPeer: ErrPeer, BandMiss: ErrMiss,
	BandUnavailable: ErrUnavailable, BandInternal: ErrInternal}

func (r *runner) checkError(err error, want string, message any) error {
	number, known := r.constants[want]
	if !known {
		throw("%s is no status", want)
	}
	if err == nil {
		return fmt.Errorf("it did not fail with %s", want)
	}
	var e *Error
	if !errors.As(err, &e) {
		return fmt.Errorf("it failed with a %T: %w", err, err)
	}
	switch {
	case int64(e.Status) != number || e.Status.String() != want:
		return fmt.Errorf("it failed with %d, not with %s (%d): %w", e.Status, want, number, err)
	case !errors.Is(err, bandErrors[Band(number/100)]):
		return fmt.Errorf("the error of %s is not one of its band: %w", want, err)
	case message != nil && !strings.Contains(e.Message, r.resolve(message).(string)):
		return fmt.Errorf("the message is %q, without %q", e.Message, message)
	}
	return nil
}

// checkRefusedNumber wants the error by which the layer itself refuses a number, which names it.
func checkRefusedNumber(err error, given any) error {
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(given)) {
		return fmt.Errorf("%v was not refused by this layer: %w", given, err)
	}
	return nil
}

var (
	variablePattern = regexp.MustCompile(`^\$([a-z][a-z0-9_]*)(?:\[([0-9]+)(:([0-9]+))?\])?$`)
	insertPattern   = regexp.MustCompile(`\$\{([a-z][a-z0-9_]*)\}`)
)

// resolve puts values for variables and constants. A slice of a list keeps its type, so that its elements can be put
// into another list.
type slice []any

func (r *runner) resolve(value any) any {
	resolved := r.resolveElement(value)
	if s, is := resolved.(slice); is {
		return []any(s)
	}
	return resolved
}

func (r *runner) resolveElement(value any) any {
	switch v := value.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			throw("%s is no number of 53 bits", v)
		}
		return n
	case string:
		return r.resolveString(v)
	case []any:
		list := []any{}
		for _, e := range v {
			if s, is := r.resolveElement(e).(slice); is {
				list = append(list, s...)
			} else {
				list = append(list, r.resolve(e))
			}
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name, e := range v {
			object[name] = r.resolve(e)
		}
		return object
	}
	return value
}

func (r *runner) resolveString(s string) any {
	if m := variablePattern.FindStringSubmatch(s); m != nil {
		return r.variable(m[1], m[2], m[4])
	}
	if strings.HasPrefix(s, "KVBM_") {
		number, known := r.constants[s]
		if !known {
			if s == "KVBM_FOREVER" {
				return "18446744073709551615"
			}
			throw("%s is no constant", s)
		}
		return number
	}
	return insertPattern.ReplaceAllStringFunc(s, func(name string) string {
		name = name[2 : len(name)-1]
		value, bound := r.variables[name]
		if !bound {
			throw("the variable %s is not bound", name)
		}
		return fmt.Sprint(value)
	})
}

func (r *runner) variable(name, from, to string) any {
	value, bound := r.variables[name]
	if !bound {
		throw("the variable %s is not bound", name)
	}
	if from == "" {
		return value
	}
	list, is := value.([]any)
	i, _ := strconv.Atoi(from)
	if to == "" {
		if !is || i >= len(list) {
			throw("%s has no element %d", name, i)
		}
		return list[i]
	}
	j, _ := strconv.Atoi(to)
	if !is || i > j || j > len(list) {
		throw("%s has no elements %d to %d", name, i, j)
	}
	return slice(list[i:j])
}

// match returns "" or what is different.
func (r *runner) match(want, got any) string {
	switch w := want.(type) {
	case []any:
		g, is := got.([]any)
		if !is || len(g) != len(w) {
			return fmt.Sprintf("%v is not the list %v", got, want)
		}
		for i := range w {
			if why := r.match(w[i], g[i]); why != "" {
				return fmt.Sprintf("element %d: %s", i, why)
			}
		}
		return ""
	case map[string]any:
		if isMatcher(w) {
			return r.matchSpecial(w, got)
		}
		g, is := got.(map[string]any)
		if !is {
			return fmt.Sprintf("%v is no object", got)
		}
		names := make([]string, 0, len(w))
		for name := range w {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			member, has := g[name]
			if !has {
				throw("there is no member %s", name)
			}
			if why := r.match(w[name], member); why != "" {
				return name + ": " + why
			}
		}
		return ""
	}
	if want != got {
		return fmt.Sprintf("%v (%T) is not %v (%T)", got, got, want, want)
	}
	return ""
}

var matchers = map[string]bool{"min": true, "max": true, "length": true, "contains": true, "not": true,
	"any_order": true}

func isMatcher(w map[string]any) bool {
	for name := range w {
		if matchers[name] {
			return true
		}
	}
	return false
}

func (r *runner) matchSpecial(w map[string]any, got any) string {
	for name, want := range w {
		ok := false
		switch name {
		case "min":
			n, is := got.(int64)
			ok = is && n >= want.(int64)
		case "max":
			n, is := got.(int64)
			ok = is && n <= want.(int64)
		case "length":
			list, isList := got.([]any)
			s, isString := got.(string)
			ok = isList && int64(len(list)) == want.(int64) || isString && int64(len(s)) == want.(int64)
		case "contains":
			ok = r.contains(want, got)
		case "not":
			ok = r.match(want, got) != ""
		case "any_order":
			ok = r.anyOrder(want.([]any), got)
		default:
			throw("the matcher %s is not known", name)
		}
		if !ok {
			return fmt.Sprintf("%v is not {%s: %v}", got, name, want)
		}
	}
	return ""
}

func (r *runner) contains(want, got any) bool {
	if s, is := got.(string); is {
		part, is := want.(string)
		return is && strings.Contains(s, part)
	}
	list, _ := got.([]any)
	for _, e := range list {
		if r.match(want, e) == "" {
			return true
		}
	}
	return false
}

func (r *runner) anyOrder(want []any, got any) bool {
	list, is := got.([]any)
	if !is || len(list) != len(want) {
		return false
	}
	taken := make([]bool, len(list))
next:
	for _, w := range want {
		for i, g := range list {
			if !taken[i] && r.match(w, g) == "" {
				taken[i] = true
				continue next
			}
		}
		return false
	}
	return true
}
