// Command testbed builds what the testbed is made of.
//
//	go run ./hack/testbed build    build the pinned tools and the guest's image that aren't in the cache yet
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "build" {
		fmt.Fprintln(os.Stderr, "usage: go run ./hack/testbed build")
		os.Exit(2)
	}
	_, err := testbed.Tools(context.Background())
	if usable := sandbox.Usable(); usable != nil {
		fmt.Fprintln(os.Stderr, "testbed:", usable)
	} else if err == nil {
		err = testbed.PrepareGuest()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}
