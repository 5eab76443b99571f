package discover_test

import (
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// series returns a metadata.yaml with series v0.1 up to this minor version.
func series(minors ...string) string {
	text := "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n"
	for _, minor := range minors {
		text += "- {major: 0, minor: " + minor + ", contract: v1beta1}\n"
	}
	return text
}

// evidenceCases are trees that contain more than they release.
var evidenceCases = append(lookCases[:0:0], []struct {
	name            string
	files           map[string]string
	want            []string
	remarks, doubts []string
	golden          bool
}{
	{
		name: "a template with only a class is released, with a remark",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml":       cluster,
			"templates/cluster-template-class.yaml": class,
		}),
		want:    []string{demoLine + ", templates/cluster-template*.yaml"},
		remarks: []string{"templates/cluster-template-class.yaml contains only a ClusterClass: clusterctl offers it as a flavor, and finds no class by its name: release it once more with 'path: templates/cluster-template-class.yaml' and 'as: clusterclass-prod.yaml' under clusterClasses."},
	},
	{
		name: "the nearer metadata is outdated",
		files: map[string]string{
			"bootstrap/config/default/kustomization.yaml": labelled("bootstrap-demo"),
			"bootstrap/config/default/manager.yaml":       manager(image),
			"bootstrap/metadata.yaml":                     series("1"),
			"metadata.yaml":                               series("1", "2"),
		},
		want:    []string{"bootstrap-demo from bootstrap/config/default with metadata.yaml, image registry.example.com/demo/controller"},
		remarks: []string{"metadata.yaml is used instead of bootstrap/metadata.yaml, which lacks its newest series"},
	},
	{
		name:  "metadata next to the kustomization",
		files: treetest.Clone(demo, map[string]string{"metadata.yaml": "", "config/metadata/metadata.yaml": metadata}),
		want:  []string{strings.Replace(demoLine, "with metadata.yaml", "with config/metadata/metadata.yaml", 1)},
	},
	{
		name: "metadata next to the templates, and metadata of tests",
		files: treetest.Clone(demo, map[string]string{
			"metadata.yaml": "", "templates/metadata.yaml": series("1"), "test/data/metadata.yaml": series("99"), "test/e2e/metadata.yaml": series("99"),
		}),
		want: []string{strings.Replace(demoLine, "with metadata.yaml", "with templates/metadata.yaml", 1)},
	},
	{
		name: "the build releases a metadata.yaml that looks older",
		files: treetest.Clone(demo, map[string]string{
			"metadata.yaml": series("1", "2", "3"), "hack/release/metadata.yaml": series("1"),
			"Makefile": "OUT := out\nrelease:\n\tcp hack/release/metadata.yaml $(OUT)/metadata.yaml\n",
		}),
		want: []string{strings.Replace(demoLine, "with metadata.yaml", "with hack/release/metadata.yaml", 1)},
	},
	{
		name: "the parent of config/default is released",
		files: map[string]string{
			"app/config/default/kustomization.yaml": labelled("control-plane-demo"),
			"app/config/default/manager.yaml":       manager(image),
			"config/kustomization.yaml":             resources("../app/config/default", "more.yaml") + "labels:\n- pairs: {cluster.x-k8s.io/provider: demo}\n",
			"config/more.yaml":                      crd(infraGroup, "DemoMachine"),
			"metadata.yaml":                         metadata,
			"Dockerfile": "FROM scratch AS release-build\nCOPY ./config ./config\n" +
				"RUN kustomize build config > /infrastructure-components.yaml \\\n && cp ./metadata.yaml /metadata.yaml\n",
		},
		want:    []string{"infrastructure-demo from config with metadata.yaml, image registry.example.com/demo/controller"},
		remarks: []string{"Name and type are guessed"},
	},
	{
		name: "an extension for tests",
		files: treetest.Clone(demo, map[string]string{
			"test/extension/config/default/kustomization.yaml": labelled("runtime-extension-test"),
			"test/extension/config/default/manager.yaml":       manager(image),
		}),
		want:   []string{demoLine},
		doubts: []string{"test/extension/config/default contains runtime-extension-test, which looks like an extension for tests"},
	},
	{
		name: "a manager that is not released, and has no label",
		files: treetest.Clone(demo, map[string]string{
			"tools/config/default/kustomization.yaml": resources("manager.yaml"),
			"tools/config/default/manager.yaml":       manager(image),
			"Makefile":                                "release-manifests:\n\tkustomize build config/default > out/infrastructure-components.yaml\n",
		}),
		want:   []string{demoLine},
		doubts: []string{"tools/config/default has a manager without a provider's label, and Makefile does not release it"},
	},
	{
		name: "a provider that is not released",
		files: treetest.Clone(demo, map[string]string{
			"ipam/config/default/kustomization.yaml": labelled("ipam-demo"),
			"ipam/config/default/manager.yaml":       manager(image),
			"Makefile":                               "release-manifests:\n\tkustomize build config/default > out/infrastructure-components.yaml\n",
		}),
		want:    []string{demoLine, strings.Replace(strings.Replace(demoLine, demoInfra, "ipam-demo", 1), "config", "ipam/config", 1)},
		remarks: []string{"Makefile does not release it"},
	},
	{
		name: "another kustomization that is released",
		files: treetest.Clone(demo, map[string]string{
			"addons/kustomization.yaml": resources("crd.yaml"),
			"addons/crd.yaml":           crd("addons.example.com", "Addon"),
			"Makefile":                  "release:\n\tkustomize build config/default > out/infrastructure-components.yaml\n\tkustomize build addons -o out/addons.yaml\n",
		}),
		want:   []string{demoLine},
		doubts: []string{"Makefile:3 also releases addons.yaml: release it with 'kustomize: addons' and 'as: addons.yaml' under files"},
	},
	{
		name: "templates of the tests that are released",
		files: treetest.Clone(demo, map[string]string{
			"test/e2e/data/vm/cluster-template.yaml":  cluster,
			"test/e2e/data/ci/cluster-template.yaml":  cluster,
			"test/e2e/data/vm/clusterclass-prod.yaml": class,
			"Makefile": "ROOT := $(shell pwd)\nDATA = $(ROOT)/test/e2e/data\nrelease: templates\n" +
				"\tcp $(DATA)/vm/cluster-template.yaml $(RELEASE_DIR)/cluster-template-vm.yaml\n\tcp $(DATA)/vm/clusterclass-prod.yaml $(RELEASE_DIR)/\n",
		}),
		want: []string{demoLine + ", test/e2e/data/vm/cluster-template.yaml as cluster-template-vm.yaml, test/e2e/data/vm/clusterclass-prod.yaml"},
	},
	{
		name: "a template that has another name in the release",
		files: treetest.Clone(demo, map[string]string{
			"examples/clusterctl/cluster.yaml": cluster, "examples/cluster.yaml": cluster,
			".github/workflows/release.yaml": "jobs:\n  release:\n    steps:\n    - run: |\n        cp examples/clusterctl/cluster.yaml out/cluster-template.yaml\n",
		}),
		want:   []string{demoLine + ", examples/clusterctl/cluster.yaml as cluster-template.yaml"},
		doubts: []string{"skipped, because they are in folders of samples: examples/cluster.yaml"},
	},
	{
		name: "flavors that the build generates and copies",
		files: treetest.Clone(demo, map[string]string{
			"flavors/small/kustomization.yaml": resources("c.yaml"), "flavors/small/c.yaml": cluster,
			"flavors/large/kustomization.yaml": resources("c.yaml"), "flavors/large/c.yaml": cluster,
			"flavors/try/kustomization.yaml": resources("c.yaml"), "flavors/try/c.yaml": cluster,
			"templates/cluster-template-old.yaml": cluster,
			"Makefile": "templates:\n\tkustomize build flavors/small > generated/cluster-template.yaml\n" +
				"\tkustomize build flavors/large > generated/cluster-template-large.yaml\nrelease: templates\n\tcp generated/cluster-template* $(RELEASE_DIR)/\n",
		}),
		want: []string{demoLine + ", flavors/small as cluster-template.yaml, flavors/large as cluster-template-large.yaml"},
		doubts: []string{
			"skipped, because the build files release others (Makefile:2 and 1 more): templates/cluster-template-old.yaml, flavors/try",
		},
	},
	{
		name: "a file takes precedence over the kustomization that generates it",
		files: treetest.Clone(demo, map[string]string{
			"flavors/small/kustomization.yaml": resources("c.yaml"), "flavors/small/c.yaml": cluster,
			"templates/cluster-template.yaml": cluster,
			"Makefile":                        "templates/cluster-template.yaml:\n\tkustomize build flavors/small > $@\nrelease:\n\tcp templates/*.yaml out/\n",
		}),
		want:   []string{demoLine + ", templates/cluster-template.yaml"},
		doubts: []string{"skipped, because the build files release others (Makefile:4): flavors/small"},
	},
	{
		name: "flavors of a loop in a script",
		files: treetest.Clone(demo, map[string]string{
			"flavors/small/kustomization.yaml": resources("c.yaml"), "flavors/small/c.yaml": cluster,
			"flavors/large/kustomization.yaml": resources("c.yaml"), "flavors/large/c.yaml": cluster,
			"hack/release.sh": "OUT=${OUT:-out}\nfor flavor in small large; do\n  kustomize build \"flavors/${flavor}\" > \"${OUT}/cluster-template-${flavor}.yaml\"\ndone\n",
		}),
		want: []string{demoLine + ", flavors/small as cluster-template-small.yaml, flavors/large as cluster-template-large.yaml"},
	},
	{
		name: "a flavor for each folder",
		files: treetest.Clone(demo, map[string]string{
			"flavors/small/kustomization.yaml": resources("c.yaml"), "flavors/small/c.yaml": cluster,
			"flavors/large/kustomization.yaml": resources("c.yaml"), "flavors/large/c.yaml": cluster,
			"Makefile": "release-%:\n\tkustomize build flavors/$* > $(RELEASE_DIR)/cluster-template-$*.yaml\n",
		}),
		want: []string{demoLine + ", flavors/large as cluster-template-large.yaml, flavors/small as cluster-template-small.yaml"},
	},
	{
		name: "flavors in folders next to each other",
		files: treetest.Clone(demo, map[string]string{
			"kustomize/default/cluster-template.yaml":     cluster,
			"kustomize/default-dev/cluster-template.yaml": cluster,
			"kustomize/vip/cluster-template.yaml":         cluster,
		}),
		want:   []string{demoLine + ", kustomize/default/cluster-template.yaml, kustomize/vip/cluster-template.yaml as cluster-template-vip.yaml"},
		doubts: []string{"skipped, because they look like flavors for development: kustomize/default-dev/cluster-template.yaml"},
	},
	{
		name: "folders whose names are not flavors",
		files: treetest.Clone(demo, map[string]string{
			"templates/kustomization.yaml":                     resources("cluster-template.yaml"),
			"templates/cluster-template.yaml":                  cluster,
			"templates/cluster-template-ha/kustomization.yaml": resources("c.yaml"),
			"templates/cluster-template-ha/c.yaml":             cluster,
		}),
		want: []string{demoLine + ", templates/cluster-template.yaml, templates/cluster-template-ha as cluster-template-ha.yaml"},
	},
	{
		name: "a class that is released under a name that clusterctl does not find",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml": cluster, "templates/cluster-class.yaml": class, "templates/part.yaml": cluster,
			"Makefile": "release:\n\tcp templates/cluster-* $(RELEASE_DIR)/\n",
		}),
		want:   []string{demoLine + ", templates/cluster-template.yaml"},
		doubts: []string{"templates/cluster-class.yaml has a ClusterClass: release it with 'path: templates/cluster-class.yaml' and 'as: clusterclass-prod.yaml' under clusterClasses"},
	},
	{
		name: "a kustomization in the folder of templates",
		files: treetest.Clone(demo, map[string]string{
			"templates/kustomization.yaml": resources("c.yaml"), "templates/c.yaml": cluster,
		}),
		want: []string{demoLine + ", templates as cluster-template.yaml"},
	},
	{
		name: "templates in folders of samples",
		files: treetest.Clone(demo, map[string]string{
			"samples/one/cluster-template.yaml": cluster, "samples/two/cluster-template.yaml": cluster,
		}),
		want:   []string{demoLine},
		doubts: []string{"skipped, because they are in folders of samples: samples/one/cluster-template.yaml, samples/two/cluster-template.yaml"},
	},
	{
		name: "files for tests and development are not released",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml":    cluster,
			"templates/cluster-template-ha.yaml": cluster,
			"dev/kustomization.yaml":             labelled(demoInfra), "dev/manager.yaml": manager(image),
			"Makefile": "E2E_RELEASE := test/e2e/_release\ntest-e2e:\n\tcp templates/cluster-template.yaml $(E2E_RELEASE)/\n" +
				"\tkustomize build dev > $(E2E_RELEASE)/infrastructure-components.yaml\n",
		}),
		want:   []string{demoLine + ", templates/cluster-template*.yaml"},
		doubts: []string{"dev also contains infrastructure-demo; config/default is used"},
	},
}...)
