package discover

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// YAML returns the release file, with comments on guesses.
func (f *Found) YAML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# What this tree releases, and how: read by `+"`clusterctl release build`"+`.
# All paths are relative to this file. Its schema: `+"`clusterctl release schema`"+`.
apiVersion: %s
kind: %s
`, release.ConfigAPIVersion, release.ConfigKind)
	shared := f.sharedMetadata()
	if shared != "" && shared != release.MetadataFile {
		fmt.Fprintf(&b, "metadata: %s\n", scalar(shared))
	}
	b.WriteString("providers:\n")
	for _, p := range f.Providers {
		for _, remark := range p.Remarks {
			comment(&b, "", remark)
		}
		fmt.Fprintf(&b, "- name: %s\n  type: %s\n  kustomize: %s\n", scalar(p.Name), p.Type, scalar(p.Kustomize))
		if p.Metadata != "" && p.Metadata != shared {
			fmt.Fprintf(&b, "  metadata: %s\n", scalar(p.Metadata))
		}
		if len(p.Images) > 0 {
			b.WriteString("  # Each gets the release's version as its tag.\n  images:\n")
		}
		for _, image := range p.Images {
			fmt.Fprintf(&b, "  - name: %s\n", scalar(image.Name))
			if slices.Contains(p.unplaced, image.Name) {
				fmt.Fprintf(&b, "    # newName: registry.example.com/%s\n", strings.TrimLeft(image.Name, "/"))
			}
		}
		writeAssets(&b, "templates", p.Templates)
		writeAssets(&b, "clusterClasses", p.ClusterClasses)
	}
	if len(f.Doubts) > 0 {
		b.WriteString("\n# Left for you to decide:\n")
		for _, doubt := range f.Doubts {
			comment(&b, "- ", doubt)
		}
	}
	return b.Bytes()
}

// Summary returns the result with the places in build files, for people.
func (f *Found) Summary() string {
	var b strings.Builder
	for _, p := range f.Providers {
		fmt.Fprintf(&b, "  %s from %s%s\n", p.Provider().Label(), p.Kustomize, said(p.builtBy))
		if p.Metadata != "" {
			fmt.Fprintf(&b, "    %s%s\n", p.Metadata, said(p.metadataBy))
		}
		for _, count := range []struct {
			number    int
			one, many string
		}{{p.templates, "template", "templates"}, {p.classes, "ClusterClass", "ClusterClasses"}} {
			switch count.number {
			case 0:
			case 1:
				fmt.Fprintf(&b, "    1 %s%s\n", count.one, said(p.templatesBy))
			default:
				fmt.Fprintf(&b, "    %d %s%s\n", count.number, count.many, said(p.templatesBy))
			}
		}
		for _, remark := range p.Remarks {
			fmt.Fprintf(&b, "    note: %s\n", remark)
		}
	}
	for _, doubt := range f.Doubts {
		fmt.Fprintf(&b, "  to decide: %s\n", doubt)
	}
	return b.String()
}

// said returns the place in a build file, to follow it.
func said(place string) string {
	if place == "" {
		return ""
	}
	return ", by " + place
}

// sharedMetadata returns the metadata.yaml of all providers, or "" if they differ.
func (f *Found) sharedMetadata() string {
	shared := f.Providers[0].Metadata
	for _, p := range f.Providers {
		if p.Metadata != shared {
			return ""
		}
	}
	return shared
}

// writeAssets writes a list of files.
func writeAssets(b *bytes.Buffer, field string, assets []release.AssetConfig) {
	if len(assets) == 0 {
		return
	}
	fmt.Fprintf(b, "  %s:\n", field)
	for _, asset := range assets {
		if asset.Path != "" {
			fmt.Fprintf(b, "  - path: %s\n", scalar(asset.Path))
		} else {
			fmt.Fprintf(b, "  - kustomize: %s\n", scalar(asset.Kustomize))
		}
		if asset.As != "" {
			fmt.Fprintf(b, "    as: %s\n", scalar(asset.As))
		}
	}
}

// comment writes a text of any number of lines as a comment.
func comment(b *bytes.Buffer, lead, text string) {
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if i > 0 {
			lead = strings.Repeat(" ", len(lead))
		}
		fmt.Fprintf(b, "# %s%s\n", lead, line)
	}
}

// scalar returns a text as YAML, in quotes where it needs them.
func scalar(text string) string {
	data, err := yamlv3.Marshal(text)
	if err != nil {
		return fmt.Sprintf("%q", text) // a text always marshals
	}
	return strings.TrimSpace(string(data))
}
