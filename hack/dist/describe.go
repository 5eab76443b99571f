package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// bill returns the software bill of materials of a program in the CycloneDX format, from the build information in the
// program.
func (d *distribution) bill(file string) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading what the program is made of: %w", err)
	}
	whole := component(cdx.ComponentTypeApplication, info.Main.Path, d.version)
	parts := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		parts = append(parts, componentOf(dep))
	}
	refs := make([]string, 0, len(parts))
	for _, part := range parts {
		refs = append(refs, part.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: d.modified.Format(time.RFC3339), Component: &whole}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: whole.BOMRef, Dependencies: &refs}}
	var text bytes.Buffer
	err = cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return text.Bytes(), err
}

// componentOf returns a linked module.
func componentOf(module *debug.Module) cdx.Component {
	if module.Replace != nil {
		module = module.Replace
	}
	return component(cdx.ComponentTypeLibrary, module.Path, module.Version)
}

func component(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{Type: kind, BOMRef: url, PackageURL: url, Name: path, Version: version}
}

// krewManifest returns the plugin manifest for krew.
// Source: krew's developer guide, "Plugin manifest".
func (d *distribution) krewManifest(archives map[program.Platform]release.File) ([]byte, error) {
	var platforms []any
	for _, platform := range d.platforms {
		archive := archives[platform]
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": platform.OS, "arch": platform.Architecture}},
			"uri":      "https://" + program.Module + "/releases/download/" + d.version + "/" + archive.Name,
			"sha256":   release.Digest(archive.Data), "bin": d.programName(platform),
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]string{"name": name},
		"spec": map[string]any{
			"version": d.version, "homepage": "https://" + program.Module, "platforms": platforms,
			"shortDescription": "Release Cluster API providers",
			"description":      "Builds, checks and publishes releases of Cluster API providers as clusterctl installs them.\n",
		},
	})
}
