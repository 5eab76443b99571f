// Command testbed is for developers: it builds what the testbed is made of, and keeps one running to
// play with.
//
//	testbed build    build the pinned tools and the guests' images that aren't in the cache yet
//	testbed up       start a management cluster with the provider and three libvirt hosts
//	testbed down     take all of it away
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

var commands = map[string]func() error{"build": build, "up": up, "down": down}

func main() {
	if sandbox.Started() || len(os.Args) == 2 && os.Args[1] == serveCommand {
		os.Exit(sandbox.Main(prepareToServe, serve))
	}
	if len(os.Args) != 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: testbed build|up|down")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

// build builds for the tests too, which say themselves where they can't run.
func build() error {
	progress := &testbed.Progress{Out: os.Stderr, Steps: testbed.ToolCount() + 2}
	if _, err := testbed.Tools(context.Background(), progress); err != nil {
		return err
	}
	if err := sandbox.Usable(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return nil
	}
	return errors.Join(progress.Do("the guests' image", testbed.PrepareGuest), progress.Do("the load balancer's image", testbed.PrepareBalancer))
}
