// Command testbed builds what the testbed is made of.
//
//	go run ./hack/testbed build    build the pinned tools that aren't in the cache yet
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "build" {
		fmt.Fprintln(os.Stderr, "usage: go run ./hack/testbed build")
		os.Exit(2)
	}
	if _, err := testbed.Tools(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}
