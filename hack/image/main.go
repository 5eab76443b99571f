// Command image builds the images of the project's programs as OCI image layouts, and pushes them to a registry.
//
//	image build FOLDER NAME     writes the layout FOLDER/NAME and prints its tag and digest, TAG@DIGEST
//	image push FOLDER NAME...   pushes the layouts FOLDER/NAME to the registry
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/image"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	version := flags.String("version", "", "version of the images, e.g. v0.1.0")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms to build for")
	registry := flags.String("registry", "", "where to push to, e.g. ghcr.io/example")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch rest := flags.Args(); {
	case len(rest) == 3 && rest[0] == "build" && *version != "":
		return build(ctx, rest[1], rest[2], *version, *platforms)
	case len(rest) > 2 && rest[0] == "push" && *registry != "":
		for _, name := range rest[2:] {
			ref, err := image.Push(ctx, filepath.Join(rest[1], name), *registry+"/"+name)
			if err != nil {
				return err
			}
			fmt.Println("pushed", ref)
		}
		return nil
	}
	return fmt.Errorf("usage: image -version VERSION build FOLDER NAME, or image -registry REGISTRY push FOLDER NAME")
}

// build writes the layout of one image.
func build(ctx context.Context, folder, name, version, platforms string) error {
	for _, img := range []image.Image{image.Manager(version), image.Tool(version)} {
		if img.Name != name {
			continue
		}
		var list []program.Platform
		for _, text := range strings.Split(platforms, ",") {
			platform, err := program.ParsePlatform(text)
			if err != nil {
				return err
			}
			list = append(list, platform)
		}
		fmt.Fprintf(os.Stderr, "building the image %s: compiling the program for %s\n", name, strings.ReplaceAll(platforms, ",", ", "))
		index, err := img.Build(ctx, ".", list)
		if err != nil {
			return err
		}
		if err := image.Write(filepath.Join(folder, name), img.Tag(), index); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", img.Tag(), digest)
		return nil
	}
	return fmt.Errorf("there is no image %q", name)
}
