// SPDX-License-Identifier: Apache-2.0

package libkvbm_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"math/rand"

	libkvbm "github.com/kvbm/libkvbm-go"
)

// Coding needs no manager. Bytes that changed on their way are an error, never wrong KV.
func ExampleEncode() {
	const tokens, heads, dim = 256, 8, 128
	random := rand.New(rand.NewSource(1))
	page := make([]byte, tokens*heads*dim*2) // [token][head][dim] of bf16
	for i := 0; i < len(page); i += 2 {
		page[i], page[i+1] = byte(random.Intn(128)), byte(59+random.Intn(3)+128*random.Intn(2))
	}

	form := &libkvbm.CodecForm{Element: libkvbm.ElementBF16, RowElements: heads * dim}
	coded, err := libkvbm.Encode(page, libkvbm.CodecDefault, form)
	if err != nil {
		log.Fatal(err)
	}
	back, err := libkvbm.Decode(coded, false)
	fmt.Println(len(coded) < len(page)*2/3, bytes.Equal(page, back), err)

	coded[len(coded)/2] ^= 1
	_, err = libkvbm.Decode(coded, false)
	fmt.Println(errors.Is(err, libkvbm.ErrDamaged))
	// Output:
	// true true <nil>
	// true
}
