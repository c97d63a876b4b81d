// SPDX-License-Identifier: Apache-2.0

// Relay stores blocks that another process can verify, or fetches and verifies them. The same program is in every
// binding: what one language stores the others read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	libkvbm "github.com/kvbm/libkvbm-go"
)

const (
	blockBytes  = 65536
	blockTokens = 16
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

type relay struct {
	seed    uint32
	blocks  int
	manager *libkvbm.Manager
	ns      *libkvbm.Namespace
	keys    []libkvbm.Key
}

func run(args []string) error {
	flags := flag.NewFlagSet("relay", flag.ContinueOnError)
	tier := flags.String("tier", "", "directory of a disk tier")
	seed := flags.Uint64("seed", 0, "what the blocks are made of")
	blocks := flags.Int("blocks", 1, "how many")
	var verb string
	settings := map[string]string{}
	for len(args) > 0 { // options, the verb and settings in any order
		if err := flags.Parse(args); err != nil {
			return err
		}
		if args = flags.Args(); len(args) == 0 {
			break
		}
		if name, value, found := strings.Cut(args[0], "="); found {
			settings[name] = value
		} else {
			verb = args[0]
		}
		args = args[1:]
	}
	if verb != "store" && verb != "fetch" {
		return errors.New("usage: relay store|fetch [--tier DIR] --seed S --blocks N KEY=VALUE...")
	}
	kv, err := libkvbm.NewContext(&libkvbm.ContextOptions{Settings: settings})
	if err != nil {
		return err
	}
	defer kv.Close()
	r := &relay{seed: uint32(*seed), blocks: *blocks}
	if err := r.open(kv, *tier); err != nil {
		return err
	}
	defer r.manager.Close()
	defer r.ns.Close()
	if verb == "store" {
		return r.store()
	}
	return r.fetch()
}

func (r *relay) open(kv *libkvbm.Context, tier string) error {
	options := &libkvbm.ManagerOptions{BlockBytes: blockBytes}
	if tier != "" {
		options.Tiers = []libkvbm.Tier{{Path: tier, CapacityBytes: 256 << 20, Admission: libkvbm.AdmitAll}}
	}
	var err error
	if r.manager, err = kv.NewManager(options); err != nil {
		return err
	}
	secret := make([]byte, 32)
	for i := range secret {
		secret[i] = 7
	}
	r.ns, err = r.manager.OpenNamespace(&libkvbm.NamespaceOptions{Tenant: "relay", Model: "relay-model", Secret: secret})
	if err != nil {
		return err
	}
	tokens := make([]uint32, r.blocks*blockTokens)
	for i := range tokens {
		tokens[i] = r.seed*1000003 + uint32(i)
	}
	r.keys, err = r.ns.KeyChain(nil, tokens, blockTokens, nil)
	return err
}

func (r *relay) content(block, j int) byte {
	return byte(uint64(r.seed) + 31*uint64(block) + 7*uint64(j) + uint64(j>>8))
}

func (r *relay) store() error {
	blocks, err := r.manager.Allocate(r.ns, r.blocks)
	if err != nil {
		return err
	}
	defer blocks.Close()
	views, err := blocks.Views()
	if err != nil {
		return err
	}
	for i, v := range views {
		for j := range v.Data {
			v.Data[j] = r.content(i, j)
		}
	}
	if err := blocks.Complete(nil); err != nil {
		return err
	}
	if _, err := blocks.Register(r.ns, r.keys, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.manager.Flush(ctx); err != nil {
		return err
	}
	address, err := r.manager.NodeAddress()
	if err != nil {
		return err
	}
	fmt.Println("stored", r.blocks)
	if address != "" {
		fmt.Println("node", address)
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (r *relay) fetch() error {
	options := &libkvbm.LookupOptions{AskNodes: 2 * time.Second}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		match, err := r.manager.Lookup(r.ns, r.keys, options)
		if err != nil {
			return err
		}
		hits := match.Hits()
		match.Close()
		if hits == r.blocks || time.Now().After(end) {
			break
		}
	}
	if err := r.manager.Prefetch(context.Background(), r.ns, nil, r.keys); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err) // missing blocks are counted below
	}
	verified, err := r.verify(options)
	if err != nil {
		return err
	}
	fmt.Printf("verified %d of %d\n", verified, r.blocks)
	if verified != r.blocks {
		return errors.New("blocks are missing or wrong")
	}
	return nil
}

func (r *relay) verify(options *libkvbm.LookupOptions) (int, error) {
	match, err := r.manager.Lookup(r.ns, r.keys, options)
	if err != nil || match == nil {
		return 0, err
	}
	defer match.Close()
	blocks, err := match.Blocks(0, 0, match.Hits())
	if err != nil {
		return 0, err
	}
	defer blocks.Close()
	views, err := blocks.Views()
	if err != nil {
		return 0, err
	}
	verified := 0
	for i, v := range views {
		right := len(v.Data) == blockBytes
		for j := 0; right && j < len(v.Data); j++ {
			right = v.Data[j] == r.content(i, j)
		}
		if right {
			verified++
		}
	}
	return verified, nil
}
