// SPDX-License-Identifier: Apache-2.0

package libkvbm

import (
	"os"
	"strings"
	"testing"
)

// Where the UCX module is, as the environment has it.
var ucxModule = os.Getenv("KVBM_UCX_PATH")

// The library takes settings from the environment, and refuses names that it does not know.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "KVBM_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}
