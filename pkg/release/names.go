package release

import (
	"fmt"
	"strings"
)

// The names of workload cluster templates and ClusterClass definitions.
// Source: clusterctl provider contract, "Workload cluster templates" and "ClusterClass
// definitions", "Naming conventions".
const (
	clusterTemplateStem = "cluster-template"
	clusterClassPrefix  = "clusterclass-"
	yamlExtension       = ".yaml"
)

// IsClusterTemplate reports whether clusterctl finds a cluster template under this file name.
func IsClusterTemplate(name string) bool {
	_, err := Flavor(name)
	return err == nil
}

// Flavor returns the flavor of a cluster template's file name: "" for cluster-template.yaml,
// "prod" for cluster-template-prod.yaml. Any other name is an error that says which are allowed.
func Flavor(name string) (string, error) {
	stem, ok := strings.CutSuffix(name, yamlExtension)
	if ok && stem == clusterTemplateStem {
		return "", nil
	}
	flavor, hasFlavor := strings.CutPrefix(stem, clusterTemplateStem+"-")
	if !ok || !hasFlavor || flavor == "" {
		return "", fmt.Errorf("%q isn't a name for a cluster template: clusterctl finds cluster-template.yaml and cluster-template-FLAVOR.yaml only", name)
	}
	return flavor, nil
}

// ClusterTemplateFile returns the file name of the cluster template of a flavor; "" is the default.
func ClusterTemplateFile(flavor string) string {
	if flavor == "" {
		return clusterTemplateStem + yamlExtension
	}
	return clusterTemplateStem + "-" + flavor + yamlExtension
}

// IsClusterClass reports whether clusterctl finds a ClusterClass definition under this file name.
func IsClusterClass(name string) bool {
	_, err := ClusterClassName(name)
	return err == nil
}

// ClusterClassName returns the name of the ClusterClass for a file name: "prod" for clusterclass-prod.yaml. Any other
// name is an error that says which is allowed.
func ClusterClassName(name string) (string, error) {
	class, hasPrefix := strings.CutPrefix(name, clusterClassPrefix)
	class, hasSuffix := strings.CutSuffix(class, yamlExtension)
	if !hasPrefix || !hasSuffix || class == "" {
		return "", fmt.Errorf("%q isn't a name for a ClusterClass definition: clusterctl finds clusterclass-NAME.yaml only", name)
	}
	return class, nil
}
