package schemas

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

//go:generate go run ../../hack/corecrds core.json.gz

//go:embed core.json.gz
var packed []byte

// coreCRD contains the parts of a core CRD that are read at once; its schemas are large, and are decoded later.
type coreCRD struct {
	Mutated bool `json:"mutated"`
	Spec    struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Scope    apiextensionsv1.ResourceScope `json:"scope"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
			Schema struct {
				OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// core returns the kinds of Cluster API's core and its kubeadm providers, unpacked once. Their compiled schemas are
// shared.
var core = sync.OnceValue(func() map[schema.GroupKind]*Kind {
	kinds, err := unpack(packed)
	if err != nil {
		panic(fmt.Sprintf("the file of the core's CRDs, which is a part of this program, can't be read: %v", err))
	}
	return kinds
})

// unpack reads the file that hack/corecrds writes.
func unpack(data []byte) (map[schema.GroupKind]*Kind, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	kinds := map[schema.GroupKind]*Kind{}
	for lines := json.NewDecoder(reader); ; {
		var crd coreCRD
		if err := lines.Decode(&crd); errors.Is(err, io.EOF) {
			return kinds, nil
		} else if err != nil {
			return nil, err
		}
		gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		kind := &Kind{GroupKind: gk, Core: true, Mutated: crd.Mutated, Scope: crd.Spec.Scope, Labels: map[string]string{
			// Cluster API's kustomizations add these labels; the folder of CRDs does not contain them.
			clusterv1.GroupVersion.Group + "/v1beta1": "v1beta1",
			clusterv1.GroupVersion.Group + "/v1beta2": "v1beta2",
		}}
		for _, v := range crd.Spec.Versions {
			read := func() (*apiextensionsv1.JSONSchemaProps, error) {
				props := &apiextensionsv1.JSONSchemaProps{}
				if err := json.Unmarshal(v.Schema.OpenAPIV3Schema, props); err != nil {
					return nil, fmt.Errorf("reading the schema of %s: %w", gk.WithVersion(v.Name), err)
				}
				return props, nil
			}
			kind.versions = append(kind.versions, newVersion(v.Name, v.Served, read))
		}
		kinds[gk] = kind
	}
}
