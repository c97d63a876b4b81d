// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"testing"

	"github.com/kvbm/libkvbm-go/internal/testdriver"
)

// need sets up what a scenario needs, or skips it.
func (r *runner) need(t *testing.T, what string) {
	switch what {
	case "":
	case "cuda_driver":
		path := driverFile(t)
		driver, err := testdriver.Open(path)
		ok(t, err)
		ok(t, driver.Apply("devices=2"))
		r.driver, r.variables["driver"] = driver, path
	default:
		t.Fatalf("no such need: %s", what)
	}
}

// stream gives the argument of this name; nil where it is left out.
func (a *arguments) stream() *Stream {
	if a.get("stream") == nil {
		return nil
	}
	s := Stream(a.uint64("stream"))
	return &s
}

func init() {
	for name, do := range map[string]func(r *runner, a *arguments) (results, error){
		"device.memory": func(r *runner, a *arguments) (results, error) {
			address, data := r.driver.MemoryOn(a.int("device"), a.int("bytes"))
			return results{"memory": &memory{data: data, address: address}}, nil
		},
		"device.stream": func(r *runner, a *arguments) (results, error) {
			return results{"stream": decimal(uint64(r.driver.StreamOn(a.int("device"))))}, nil
		},
		"device.copy": func(r *runner, a *arguments) (results, error) {
			from, to := object[*memory](a, "from"), object[*memory](a, "to")
			if len(from.data) != len(to.data) {
				throw("the memories are not as large as each other")
			}
			if !r.driver.Copy(to.address, from.address, len(to.data), uintptr(*a.stream())) {
				throw("there is no such stream")
			}
			return nil, nil
		},
		"device.hold": func(r *runner, a *arguments) (results, error) {
			r.driver.Hold(uintptr(*a.stream()), a.flag("on"))
			return nil, nil
		},
		"device.capture": func(r *runner, a *arguments) (results, error) {
			r.driver.Capture(uintptr(*a.stream()), a.flag("on"))
			return nil, nil
		},
		"device.waits": func(r *runner, a *arguments) (results, error) {
			if a.flag("on") {
				return nil, r.driver.Apply("waits=1")
			}
			return nil, r.driver.Apply("waits=0")
		},
		"device.synchronize": func(r *runner, a *arguments) (results, error) {
			r.driver.Synchronize(uintptr(*a.stream()))
			return nil, nil
		},
		"cache.wait_layer": func(r *runner, a *arguments) (results, error) {
			return nil, object[*Cache](a, "cache").WaitLayer(a.uint64("operation"), a.uint32("layer"), *a.stream())
		},
		"manager.devices": func(r *runner, a *arguments) (results, error) {
			rows, err := object[*Manager](a, "manager").Devices()
			return results{"n": number(len(rows)), "rows": listOf(rows, func(d DeviceRow) any {
				return results{"ordinal": number(d.Ordinal), "lost": flagOf(d.Lost), "name": d.Name, "pci": d.PCI,
					"state": d.State, "memory_bytes": number(d.MemoryBytes), "pinned_bytes": number(d.PinnedBytes),
					"gathers": moveResults(d.Gathers), "scatters": moveResults(d.Scatters)}
			})}, err
		},
	} {
		steps[name] = do
	}
}

func moveResults(m DeviceMoves) results {
	return results{"batches": number(m.Batches), "leaves": number(m.Leaves), "bytes": number(m.Bytes),
		"bad_leaves": number(m.BadLeaves), "mapped_leaves": number(m.MappedLeaves),
		"staged_leaves": number(m.StagedLeaves), "straight_leaves": number(m.StraightLeaves),
		"bounced_leaves": number(m.BouncedLeaves), "device_ns": number(m.DeviceNS)}
}
