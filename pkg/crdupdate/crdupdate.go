// Package crdupdate tells what an API server says to the update of a custom resource definition that
// clusterctl upgrade makes.
package crdupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"
)

// Installed returns a definition as a cluster has it after the release that contains it was installed:
// with the API server's defaults, with a CA where injected is set and the versions are converted by a
// webhook, and with the status that the API server gives it. Its storage version is the only one in
// status.storedVersions. It is established unless its caBundle is invalid.
//
// Source: cert-manager, CA Injector; Kubernetes, apiextensions-apiserver, registry/customresourcedefinition,
// PrepareForCreate, and controller/establish.
func Installed(crd *apiextensionsv1.CustomResourceDefinition, injected bool) *apiextensionsv1.CustomResourceDefinition {
	installed := withDefaults(crd)
	if conversion := installed.Spec.Conversion; injected && conversion.Strategy == apiextensionsv1.WebhookConverter {
		if conversion.Webhook == nil {
			conversion.Webhook = &apiextensionsv1.WebhookConversion{}
		}
		if conversion.Webhook.ClientConfig == nil {
			conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{}
		}
		conversion.Webhook.ClientConfig.CABundle = authority()
	}
	established := apiextensionsv1.ConditionTrue
	if InvalidCABundle(installed) != nil {
		established = apiextensionsv1.ConditionFalse
	}
	installed.Status = apiextensionsv1.CustomResourceDefinitionStatus{
		AcceptedNames: installed.Spec.Names,
		Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
			{Type: apiextensionsv1.Established, Status: established},
		},
	}
	addStoredVersion(installed)
	return installed
}

// InvalidCABundle returns why an API server can't use the caBundle of a definition's conversion
// webhook, or nil. No caBundle is a valid one.
func InvalidCABundle(crd *apiextensionsv1.CustomResourceDefinition) *field.Error {
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
		return nil
	}
	path := field.NewPath("spec", "conversion", "webhook", "clientConfig", "caBundle")
	for _, err := range webhook.ValidateCABundle(path, conversion.Webhook.ClientConfig.CABundle) {
		return err
	}
	return nil
}

// Patched returns what clusterctl upgrade makes of an installed definition: the definition of the new
// release, patched over it by JSON merge. What the new one leaves out stays as it is. clusterctl reads
// the new one as its Go type first, so a null in its YAML removes nothing.
//
// Source: clusterctl, client/cluster/components.go, createObj, and client/repository/components.go,
// fixCRDWebhookNamespaceReference; apiextensions-apiserver, registry/customresourcedefinition, PrepareForUpdate.
func Patched(installed, next *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	current, err := json.Marshal(installed)
	if err != nil {
		return nil, fmt.Errorf("encoding the installed definition of %s: %w", installed.Name, err)
	}
	patch, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("encoding the new definition of %s: %w", next.Name, err)
	}
	merged, err := jsonpatch.MergePatch(current, patch)
	if err != nil {
		return nil, fmt.Errorf("patching the definition of %s: %w", installed.Name, err)
	}
	patched := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(merged, patched); err != nil {
		return nil, fmt.Errorf("reading the patched definition of %s: %w", installed.Name, err)
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(patched)
	installed.Status.DeepCopyInto(&patched.Status)
	addStoredVersion(patched)
	return patched, nil
}

// Refusals returns why an API server refuses what clusterctl upgrade makes of an installed definition
// (see Installed), with the new definition of a release; nothing where it takes it. The judge is the
// API server's own code. Reasons for which it refuses the new definition on its own, where nothing
// is installed, are left out. So are the schemas of both: the API server has no rule for the schema of
// an update that it does not have for a new definition.
//
// An error says that one of the two isn't a definition that an API server reads.
func Refusals(installed, next *apiextensionsv1.CustomResourceDefinition) (field.ErrorList, error) {
	installed, next = withoutSchemas(installed), withoutSchemas(next)
	patched, err := Patched(installed, next)
	if err != nil {
		return nil, err
	}
	before, err := Internal(installed)
	if err != nil {
		return nil, err
	}
	after, err := Internal(patched)
	if err != nil {
		return nil, err
	}
	alone, err := Internal(Installed(next, false))
	if err != nil {
		return nil, err
	}
	before.ResourceVersion, after.ResourceVersion = "1", "1"
	own := validation.ValidateCustomResourceDefinition(context.Background(), alone)
	refusals := validation.ValidateCustomResourceDefinitionUpdate(context.Background(), after, before)
	return slices.DeleteFunc(refusals, func(e *field.Error) bool {
		return slices.ContainsFunc(own, func(o *field.Error) bool { return o.Field == e.Field && o.Detail == e.Detail })
	}), nil
}

// Internal returns a definition as the API server validates it, with its defaults.
func Internal(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(withDefaults(crd), internal, nil); err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", crd.Name, err)
	}
	return internal, nil
}

// withDefaults returns a copy of a definition with the API server's defaults. It shares the schemas, which
// are large and which nothing writes to.
func withDefaults(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	defaulted := *crd
	crd.Spec.Names.DeepCopyInto(&defaulted.Spec.Names)
	defaulted.Spec.Conversion = crd.Spec.Conversion.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&defaulted)
	return &defaulted
}

// withoutSchemas returns a definition whose versions take anything: to compile schemas takes longest.
func withoutSchemas(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	plain := *crd
	plain.Spec.Versions = slices.Clone(crd.Spec.Versions)
	for i := range plain.Spec.Versions {
		v := &plain.Spec.Versions[i]
		v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}}
		v.SelectableFields, v.AdditionalPrinterColumns = nil, nil
	}
	return &plain
}

// addStoredVersion adds the storage version to those that objects are stored in, as the API server
// does before it validates.
func addStoredVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			if !slices.Contains(crd.Status.StoredVersions, v.Name) {
				crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
			}
			return
		}
	}
}
