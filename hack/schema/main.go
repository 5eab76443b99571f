// Command schema writes the JSON Schema of the release file, generated from its Go types and their comments: go run
// ./hack/schema FILE.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/invopop/jsonschema"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const module = "github.com/clusterctl-release/clusterctl-release"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schema FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

// write generates the schema and writes it to a path.
func write(path string) error {
	reflector := jsonschema.Reflector{Anonymous: true}
	if err := reflector.AddGoComments(module, "./pkg/release"); err != nil {
		return fmt.Errorf("reading the comments of the release file's types: %w", err)
	}
	schema := reflector.Reflect(&release.Config{})
	schema.Title = release.ConfigFile
	data, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the schema: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
