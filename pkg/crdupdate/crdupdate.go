// Package crdupdate returns what an API server answers to the update of a CRD by clusterctl upgrade.
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

// Installed returns a CRD in the form that a cluster has after the installation of its release: with the API server's
// defaults, with a CA if injected is set and a webhook converts the versions, and with the status that the API server
// sets. Its storage version is the only one in status.storedVersions. It is established unless its caBundle is invalid.
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

// InvalidCABundle returns why an API server can't use the caBundle of a CRD's conversion webhook, or nil. An empty
// caBundle is valid.
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

// Patched returns the CRD that results when clusterctl upgrade patches an installed CRD with that of the new release,
// by JSON merge. Fields that the new one leaves out stay. clusterctl reads the new one as its Go type first, so a null
// in its YAML removes nothing.
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

// Refusals returns why an API server refuses the patched CRD of clusterctl upgrade, from an installed CRD (see
// Installed) and that of a new release; it is empty if the API server accepts it. It runs the API server's own code. It
// leaves out the reasons for which the API server refuses the new CRD without an installed one. It also leaves out the
// schemas of both: the API server has no rule for the schema of an update that it does not have for a new CRD.
//
// The error means that one of the two isn't a CRD that an API server reads.
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

// Internal returns a CRD in the API server's internal form, with its defaults.
func Internal(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(withDefaults(crd), internal, nil); err != nil {
		return nil, fmt.Errorf("reading the definition of %s: %w", crd.Name, err)
	}
	return internal, nil
}

// withDefaults returns a copy of a CRD with the API server's defaults. It shares the schemas, which are large and never
// changed.
func withDefaults(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	defaulted := *crd
	crd.Spec.Names.DeepCopyInto(&defaulted.Spec.Names)
	defaulted.Spec.Conversion = crd.Spec.Conversion.DeepCopy()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&defaulted)
	return &defaulted
}

// withoutSchemas returns a CRD whose versions accept any object: compiling schemas is the slowest step.
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

// addStoredVersion adds the storage version to the stored versions, as the API server does before it validates.
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
