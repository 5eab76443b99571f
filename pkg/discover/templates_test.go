package discover_test

import (
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

const demoLine = "infrastructure-demo from config/default with metadata.yaml, image registry.example.com/demo/controller"

// templateCases are trees with templates and classes, with the expected results of Look.
var templateCases = append(lookCases[:0:0], []struct {
	name            string
	files           map[string]string
	want            []string
	remarks, doubts []string
	golden          bool
}{
	{
		name: "templates and classes",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml":           cluster,
			"templates/cluster-template-prod.yaml":      cluster,
			"templates/clusterclass-prod.yaml":          class,
			"templates/cluster-template-values.yaml":    "not: a cluster\n",
			"templates/flavors/ha/kustomization.yaml":   resources("../../cluster-template.yaml") + "namePrefix: ha-\n",
			"templates/flavors/base/kustomization.yaml": resources("cluster.yaml"),
			"templates/flavors/base/cluster.yaml":       cluster,
		}),
		want: []string{demoLine + ", templates/cluster-template-prod.yaml, templates/cluster-template.yaml" +
			", templates/flavors/ha as cluster-template-ha.yaml, templates/clusterclass-prod.yaml"},
		golden: true,
	},
	{
		name: "a pattern that matches only the templates",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml":      cluster,
			"templates/cluster-template-prod.yaml": cluster,
			"templates/clusterclass-a.yaml":        class,
			"templates/clusterclass-b.yaml":        class,
		}),
		want: []string{demoLine + ", templates/cluster-template*.yaml, templates/clusterclass-*.yaml"},
	},
	{
		name: "the same name twice",
		files: treetest.Clone(demo, map[string]string{
			"templates/cluster-template.yaml":      cluster,
			"templates/more/cluster-template.yaml": cluster,
		}),
		want:   []string{demoLine + ", templates/cluster-template.yaml"},
		doubts: []string{"templates/more/cluster-template.yaml would be released as cluster-template.yaml, which is templates/cluster-template.yaml"},
	},
	{
		name: "names that break the contract",
		files: treetest.Clone(demo, map[string]string{
			"templates/my-cluster.yaml": cluster,
			"templates/my-class.yaml":   class,
			"config/samples/c.yaml":     cluster, // a sample is not a template
		}),
		want: []string{demoLine},
		doubts: []string{
			"templates/my-class.yaml has a ClusterClass: release it with 'path: templates/my-class.yaml' and 'as: clusterclass-prod.yaml' under clusterClasses",
			"templates/my-cluster.yaml has a Cluster: release it with 'path: templates/my-cluster.yaml' and 'as: cluster-template-my-cluster.yaml' under templates",
		},
	},
	{
		name: "a kustomized Cluster somewhere else",
		files: treetest.Clone(demo, map[string]string{
			"demo/kustomization.yaml": resources("c.yaml"),
			"demo/c.yaml":             cluster,
		}),
		want:   []string{demoLine},
		doubts: []string{"demo gives a Cluster: release it with 'kustomize: demo' and 'as: cluster-template-demo.yaml' under templates"},
	},
	{
		name: "each to the nearest infrastructure provider",
		files: map[string]string{
			"one/config/default/kustomization.yaml":       labelled("infrastructure-one"),
			"one/config/default/manager.yaml":             manager(image),
			"one/templates/cluster-template.yaml":         cluster,
			"two/config/default/kustomization.yaml":       labelled("infrastructure-two"),
			"two/config/default/manager.yaml":             manager(image),
			"two/templates/cluster-template-two.yaml":     cluster,
			"bootstrap/config/default/kustomization.yaml": labelled("bootstrap-three"),
			"bootstrap/config/default/manager.yaml":       manager(image),
			"bootstrap/cluster-template-three.yaml":       cluster, // a bootstrap provider has no templates
			"metadata.yaml":                               metadata,
		},
		want: []string{
			"bootstrap-three from bootstrap/config/default with metadata.yaml, image registry.example.com/demo/controller",
			"infrastructure-one from one/config/default with metadata.yaml, image registry.example.com/demo/controller" +
				", bootstrap/cluster-template-three.yaml, one/templates/cluster-template.yaml",
			"infrastructure-two from two/config/default with metadata.yaml, image registry.example.com/demo/controller, two/templates/cluster-template-two.yaml",
		},
	},
	{
		name: "no infrastructure provider",
		files: treetest.Clone(demo, map[string]string{
			defaultPath + "kustomization.yaml": labelled("bootstrap-demo"),
			"templates/cluster-template.yaml":  cluster,
		}),
		want:   []string{strings.Replace(demoLine, "infrastructure-demo", "bootstrap-demo", 1)},
		doubts: []string{"skipped, because the tree has no infrastructure provider to release templates with: templates/cluster-template.yaml"},
	},
}...)
