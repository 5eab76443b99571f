package checks_test

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
)

var (
	paritySeeds = flag.Int("parity.seeds", 200, "number of random upgrades that TestUpgradeParity compares")
	parityFirst = flag.Uint64("parity.first", 0, "first seed of TestUpgradeParity; with -parity.seeds=1 the only one")
)

// batchSize is the number of pairs that are installed before clusterctl deletes objects of all of them at once:
// each deletion lists all kinds of the API server.
const batchSize = 50

// outcome is the result of an upgrade, observed in a real cluster or predicted by the checks.
type outcome struct {
	// Refused are the objects that the API server refuses to create or patch.
	Refused []string
	// Left are the objects, labels and conversion webhooks that only the previous release has and that the
	// cluster still has.
	Left []string
	// NotUpdated are the objects that the API server refuses to update, though clusterctl may recreate them.
	NotUpdated []string
	// Lost are the removed fields of stored objects.
	Lost []string
	// RefusedObjects are the kinds whose objects of the previous release the API server refuses to create again.
	RefusedObjects []string
}

func (o *outcome) sort() {
	for _, list := range []*[]string{&o.Refused, &o.Left, &o.NotUpdated, &o.Lost, &o.RefusedObjects} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// TestUpgradeParity runs random upgrades on a real API server with clusterctl's own code: the checks of an upgrade
// predict exactly what is refused, left and lost.
func TestUpgradeParity(t *testing.T) {
	w := newParityWorld(t)
	total, refused, fine := 0, 0, 0
	counts := map[string]int{}
	for first := 0; first < *paritySeeds; first += batchSize {
		var upgrades []*upgradeRun
		for i := first; i < min(first+batchSize, *paritySeeds); i++ {
			upgrades = append(upgrades, w.newUpgrade(t, newUpgradePair(t, *parityFirst+uint64(i), w.ca)))
		}
		w.run(t, upgrades)
		for _, u := range upgrades {
			total++
			if len(u.observed.Refused) > 0 {
				refused++
			} else {
				fine++
			}
			u.compare(t)
			for name, list := range map[string][]string{"left": u.observed.Left, "not updated": u.observed.NotUpdated, "lost": u.observed.Lost, "refused objects": u.observed.RefusedObjects} {
				counts[name] += len(list)
			}
		}
	}
	t.Logf("%d upgrades: %d refused, %d fine, %v", total, refused, fine, counts)
	if total >= 100 && (refused*4 < total || fine*4 < total) {
		t.Errorf("of %d upgrades, %d are refused and %d are not, want at least a quarter of each", total, refused, fine)
	}
	for name, n := range counts {
		if total >= 100 && n < total/20 {
			t.Errorf("%d upgrades have %d entries of %q, want at least %d", total, n, name, total/20)
		}
	}
}

// upgradeRun is an upgrade on an API server.
type upgradeRun struct {
	name          string
	subject       *checks.Subject
	before, after []unstructured.Unstructured

	observed outcome
	// stored are the objects of the definitions' kinds that the cluster has, by the definition's name.
	stored map[string]*unstructured.Unstructured
	// errors are the API server's errors, by object.
	errors map[string]error
}

// parityWorld is an API server, and clusterctl's own client of it.
type parityWorld struct {
	client client.WithWatch
	proxy  *recordingProxy
	config config.Client
	ca     []byte
}

// recordingProxy provides clusterctl with a client that records the objects that the API server refuses, and
// continues: clusterctl itself would retry for minutes, and stop at the first of them.
type recordingProxy struct {
	cluster.Proxy
	client client.Client
}

func (p *recordingProxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// with returns a proxy whose client calls report for each refused object.
func (p *recordingProxy) with(c client.WithWatch, report func(o client.Object, err error)) *recordingProxy {
	reported := func(o client.Object, err error) error {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			report(o, err)
			return nil
		}
		return err
	}
	return &recordingProxy{Proxy: p.Proxy, client: interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return reported(o, c.Create(ctx, o, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return reported(o, c.Patch(ctx, o, patch, options...))
		},
	})}
}

func newParityWorld(t *testing.T) *parityWorld {
	t.Helper()
	prerequisite.APIServer(t)
	t.Setenv("GOGC", "400") // for the API server, which allocates much memory for CRDs
	environment := &envtest.Environment{}
	restConfig, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = environment.Stop() })
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	restConfig.QPS = -1
	c, err := client.NewWithWatch(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := config.New(t.Context(), "", config.InjectReader(config.NewMemoryReader()))
	if err != nil {
		t.Fatal(err)
	}
	return &parityWorld{client: c, config: configuration, proxy: &recordingProxy{Proxy: cluster.NewProxy(cluster.Kubeconfig{Path: kubeconfig}), client: c}, ca: restConfig.CAData}
}

// newUpgrade returns an upgrade with the objects that clusterctl installs.
func (w *parityWorld) newUpgrade(t *testing.T, pair upgradePair) *upgradeRun {
	t.Helper()
	return &upgradeRun{
		name:    fmt.Sprintf("seed %d", pair.seed),
		subject: &checks.Subject{Release: pair.after, Previous: pair.before},
		before:  installableIn(t, pair.before, parityNamespace), after: installableIn(t, pair.after, parityNamespace),
		stored: map[string]*unstructured.Unstructured{}, errors: map[string]error{},
	}
}

// run installs the previous releases, deletes their objects as clusterctl does, and installs the next releases.
func (w *parityWorld) run(t *testing.T, upgrades []*upgradeRun) {
	t.Helper()
	w.each(t, upgrades, w.install)
	w.each(t, upgrades, w.waitEstablished)
	w.each(t, upgrades, w.store)
	w.each(t, upgrades, w.tryUpdates)
	provider := clusterctlv1.Provider{ProviderName: parityProvider.Name, Type: string(parityProvider.Type)}
	provider.Name, provider.Namespace = parityProvider.Label(), parityNamespace
	if err := cluster.New(cluster.Kubeconfig{}, w.config, cluster.InjectProxy(w.proxy)).ProviderComponents().Delete(t.Context(), cluster.DeleteOptions{Provider: provider, SkipInventory: true}); err != nil {
		t.Fatal(err)
	}
	w.each(t, upgrades, func(ctx context.Context, u *upgradeRun) error {
		proxy := w.proxy.with(w.client, func(o client.Object, err error) {
			u.observed.Refused = append(u.observed.Refused, nameOf(o))
			u.errors[nameOf(o)] = err
		})
		return cluster.New(cluster.Kubeconfig{}, w.config, cluster.InjectProxy(proxy)).ProviderComponents().Create(ctx, u.after)
	})
	w.each(t, upgrades, w.observe)
}

// each calls do for all upgrades, several at once.
func (w *parityWorld) each(t *testing.T, upgrades []*upgradeRun, do func(ctx context.Context, u *upgradeRun) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(4)
	for _, u := range upgrades {
		group.Go(func() error {
			if err := do(ctx, u); err != nil {
				return fmt.Errorf("%s: %w", u.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func isDefinition(o client.Object) bool {
	return o.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition"
}

func nameOf(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
}

// install creates the previous release, and injects the CA as cert-manager does.
func (w *parityWorld) install(ctx context.Context, u *upgradeRun) error {
	for i := range u.before {
		o := u.before[i].DeepCopy()
		if err := w.client.Create(ctx, o); err != nil && (o.GetKind() != "Namespace" || !apierrors.IsAlreadyExists(err)) {
			return fmt.Errorf("installing %s: %w", nameOf(o), err)
		}
		if err := w.inject(ctx, o); err != nil {
			return fmt.Errorf("injecting the CA into %s: %w", nameOf(o), err)
		}
	}
	return nil
}

// inject writes a CA where cert-manager's injector writes one.
// Source: cert-manager, pkg/controller/cainjector, injectors.go.
func (w *parityWorld) inject(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetAnnotations()["cert-manager.io/inject-ca-from"] == "" {
		return nil
	}
	ca := base64.StdEncoding.EncodeToString(w.ca)
	if isDefinition(o) {
		if strategy, _, _ := unstructured.NestedString(o.Object, "spec", "conversion", "strategy"); strategy != "Webhook" {
			return nil
		}
		if err := unstructured.SetNestedField(o.Object, ca, "spec", "conversion", "webhook", "clientConfig", "caBundle"); err != nil {
			return err
		}
		return w.update(ctx, o)
	}
	webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, item := range webhooks {
		if err := unstructured.SetNestedField(item.(object), ca, "clientConfig", "caBundle"); err != nil {
			return err
		}
	}
	if err := unstructured.SetNestedSlice(o.Object, webhooks, "webhooks"); err != nil {
		return err
	}
	return w.update(ctx, o)
}

// update writes an object even if its status has changed since it was read.
func (w *parityWorld) update(ctx context.Context, o *unstructured.Unstructured) error {
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	unstructured.RemoveNestedField(o.Object, "status")
	return w.client.Patch(ctx, o, client.Merge)
}

// waitEstablished waits until the CRDs are established, except those whose caBundle is invalid: the API server
// does not serve these.
func (w *parityWorld) waitEstablished(ctx context.Context, u *upgradeRun) error {
	for i := range u.before {
		if !isDefinition(&u.before[i]) {
			continue
		}
		if err := eventually(ctx, "establishing "+u.before[i].GetName(), func() bool {
			condition := w.establishedCondition(ctx, &u.before[i])
			return condition["status"] == "True" || condition["reason"] == "InvalidCABundle"
		}); err != nil {
			return err
		}
	}
	return nil
}

// eventually waits until condition returns true.
func eventually(ctx context.Context, doing string, condition func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// tryUpdates updates each object of the previous release to the next one in a dry run, as kubectl apply and GitOps
// tools would.
func (w *parityWorld) tryUpdates(ctx context.Context, u *upgradeRun) error {
	for i := range u.after {
		o := u.after[i].DeepCopy()
		if !slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet", "RoleBinding", "ClusterRoleBinding"}, o.GetKind()) {
			continue
		}
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(o.GroupVersionKind())
		err := w.client.Get(ctx, client.ObjectKeyFromObject(o), current)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		o.SetResourceVersion(current.GetResourceVersion())
		if err := w.client.Update(ctx, o, client.DryRunAll); apierrors.IsInvalid(err) {
			u.observed.NotUpdated = append(u.observed.NotUpdated, nameOf(o))
		} else if err != nil {
			return fmt.Errorf("updating %s: %w", nameOf(o), err)
		}
	}
	return nil
}

// observe records what is left and lost after the upgrade.
func (w *parityWorld) observe(ctx context.Context, u *upgradeRun) error {
	for i := range u.before {
		before := &u.before[i]
		if before.GetKind() == "Namespace" {
			continue
		}
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(before.GroupVersionKind())
		err := w.client.Get(ctx, client.ObjectKeyFromObject(before), now)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		j := slices.IndexFunc(u.after, func(o unstructured.Unstructured) bool { return nameOf(&o) == nameOf(before) })
		switch {
		case err == nil && j < 0:
			u.observed.Left = append(u.observed.Left, nameOf(before))
		case err == nil && isDefinition(before) && u.errors[nameOf(before)] == nil:
			w.observeDefinition(u, before, &u.after[j], now)
			if err := w.observeStored(ctx, u, now); err != nil {
				return err
			}
		case apierrors.IsNotFound(err) && j >= 0 && u.errors[nameOf(before)] == nil:
			return fmt.Errorf("%s was neither refused nor installed", nameOf(before))
		}
	}
	return nil
}

// observeDefinition records what remains of a previous CRD after the next one was merged into it.
func (w *parityWorld) observeDefinition(u *upgradeRun, before, after, now *unstructured.Unstructured) {
	for label, value := range now.GetLabels() {
		if _, ok := after.GetLabels()[label]; !ok && value != "" && strings.HasPrefix(label, "cluster.x-k8s.io/v1") {
			u.observed.Left = append(u.observed.Left, nameOf(before)+" label "+strings.TrimPrefix(label, "cluster.x-k8s.io/"))
		}
	}
	strategy, _, _ := unstructured.NestedString(now.Object, "spec", "conversion", "strategy")
	wanted, _, _ := unstructured.NestedString(after.Object, "spec", "conversion", "strategy")
	// If both releases have the same single version, nothing is ever converted.
	alone := len(crdVersions(before.Object)) == 1 && len(crdVersions(after.Object)) == 1 && storedIn(before)["name"] == storedIn(after)["name"]
	if strategy == "Webhook" && wanted != "Webhook" && !alone {
		u.observed.Left = append(u.observed.Left, nameOf(before)+" conversion")
	}
}

// predicted returns the outcome that the checks predict.
func (u *upgradeRun) predicted(t *testing.T) outcome {
	t.Helper()
	var prediction outcome
	for _, check := range catalog.All() {
		_, refuses := refusedUpgrades[check.ID]
		if check.Group != checks.Upgrade && !refuses {
			continue
		}
		for _, f := range findingsOf(t, check, u.subject) {
			if f.Severity == "" {
				f.Severity = check.Severity
			}
			name := f.Object.Kind + " " + f.Object.Name
			switch {
			case check.Group != checks.Upgrade && u.errors[name] == nil: // it is also an error without an upgrade
			case refuses && f.Severity == checks.Error:
				prediction.Refused = append(prediction.Refused, name)
			case check.ID == "object-left", check.ID == "crd-removed":
				prediction.Left = append(prediction.Left, name)
			case u.errors[name] != nil: // the object in the cluster is unchanged
			case check.ID == "contract-label-left":
				prediction.Left = append(prediction.Left, name+" label "+f.Cause)
			case check.ID == "conversion-removed":
				prediction.Left = append(prediction.Left, name+" conversion")
			}
			if check.ID == "selector-changed" || check.ID == "role-ref-changed" {
				prediction.NotUpdated = append(prediction.NotUpdated, name)
			}
			u.predictStored(&prediction, check.ID, f)
		}
	}
	return prediction
}

// predictStored adds the effects that a finding predicts for objects in the version that both releases store.
func (u *upgradeRun) predictStored(prediction *outcome, id string, f checks.Finding) {
	stored := u.stored[f.Object.Name]
	name := f.Object.Kind + " " + f.Object.Name
	match := fieldOfMessage.FindStringSubmatch(f.Message)
	if stored == nil || u.errors[name] != nil || match == nil || match[3] != stored.GroupVersionKind().Version {
		return
	}
	switch id {
	case "crd-field-removed":
		prediction.Lost = append(prediction.Lost, fmt.Sprintf("%s of %s %s, %s", match[1], match[2], match[3], name))
	case "crd-field-required", "crd-enum-narrowed", "crd-validation-narrowed":
		prediction.RefusedObjects = append(prediction.RefusedObjects, fmt.Sprintf("%s %s, %s", match[2], match[3], name))
	}
}

// compare compares the observed outcome with the predicted one.
func (u *upgradeRun) compare(t *testing.T) {
	t.Helper()
	prediction := u.predicted(t)
	prediction.sort()
	u.observed.sort()
	if diff := cmp.Diff(u.observed, prediction); diff != "" {
		t.Errorf("%s (-API server +checks):\n%s%s\n(go test ./pkg/checks -run TestUpgradeParity -parity.seeds=1 -parity.first=%s)",
			u.name, diff, errorsText(u.errors), strings.TrimPrefix(u.name, "seed "))
	}
}

func errorsText(all map[string]error) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s: %v\n", name, all[name])
	}
	return text.String()
}

// store creates an object of each CRD that stores the same version in both releases.
func (w *parityWorld) store(ctx context.Context, u *upgradeRun) error {
	for i := range u.before {
		before := &u.before[i]
		j := slices.IndexFunc(u.after, func(o unstructured.Unstructured) bool { return nameOf(&o) == nameOf(before) })
		if !isDefinition(before) || j < 0 || w.establishedCondition(ctx, before)["status"] != "True" {
			continue
		}
		version, next := storedIn(before), storedIn(&u.after[j])
		if version["name"] != next["name"] || version["served"] != true || next["served"] != true {
			continue
		}
		o := instance(before, version, "full", false)
		if err := eventually(ctx, "serving "+before.GetName(), func() bool {
			return !apierrors.IsNotFound(w.client.Create(ctx, o.DeepCopy(), client.DryRunAll))
		}); err != nil {
			return err
		}
		if err := w.client.Create(ctx, o); err != nil {
			return fmt.Errorf("storing an object of %s: %w", before.GetName(), err)
		}
		u.stored[before.GetName()] = o
	}
	return nil
}

// establishedCondition returns the Established condition of a CRD: whether the API server serves it.
func (w *parityWorld) establishedCondition(ctx context.Context, crd *unstructured.Unstructured) object {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(crd.GroupVersionKind())
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(crd), o); err != nil {
		return nil
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, _ := item.(object); condition["type"] == "Established" {
			return condition
		}
	}
	return nil
}

// storedIn returns the version that a CRD stores.
func storedIn(crd *unstructured.Unstructured) object {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	i := slices.IndexFunc(versions, func(v any) bool { return v.(object)["storage"] == true })
	return versions[i].(object)
}

// instance returns an object of a CRD, with a value in each field of a version's spec, or only in the required ones
// if minimal is true.
func instance(crd *unstructured.Unstructured, version object, name string, minimal bool) *unstructured.Unstructured {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
	required, _ := schema["required"].([]any)
	spec := object{}
	properties, _ := schema["properties"].(object)
	for field, form := range properties {
		if !minimal || slices.Contains(required, any(field)) {
			spec[field] = valueOf(field, form.(object))
		}
	}
	o := &unstructured.Unstructured{Object: object{"spec": spec}}
	o.SetAPIVersion(group + "/" + version["name"].(string))
	o.SetKind(kind)
	o.SetName(name)
	if scope == "Namespaced" {
		o.SetNamespace(parityNamespace)
	}
	return o
}

// observeStored records the fields that a stored object lost, and whether its manifest is refused now.
func (w *parityWorld) observeStored(ctx context.Context, u *upgradeRun, crd *unstructured.Unstructured) error {
	stored := u.stored[crd.GetName()]
	if stored == nil {
		return nil
	}
	now := stored.DeepCopy()
	// The API server uses the new schema once it sets the default of inForceField.
	if err := eventually(ctx, "serving the next "+crd.GetName(), func() bool {
		err := w.client.Get(ctx, client.ObjectKeyFromObject(stored), now)
		inForce, _, _ := unstructured.NestedBool(now.Object, "spec", inForceField)
		return err == nil && inForce
	}); err != nil {
		return err
	}
	version := stored.GroupVersionKind().Version
	for field := range stored.Object["spec"].(object) {
		if _, ok, _ := unstructured.NestedFieldNoCopy(now.Object, "spec", field); !ok {
			u.observed.Lost = append(u.observed.Lost, fmt.Sprintf("spec.%s of %s %s, %s", field, stored.GetKind(), version, nameOf(crd)))
		}
	}
	i := slices.IndexFunc(u.before, func(o unstructured.Unstructured) bool { return nameOf(&o) == nameOf(crd) })
	for _, minimal := range []bool{false, true} {
		err := w.client.Create(ctx, instance(&u.before[i], storedIn(&u.before[i]), "again", minimal), client.DryRunAll)
		if apierrors.IsInvalid(err) {
			u.observed.RefusedObjects = append(u.observed.RefusedObjects, fmt.Sprintf("%s %s, %s", stored.GetKind(), version, nameOf(crd)))
			u.errors["an object of "+nameOf(crd)] = err
		} else if err != nil {
			return fmt.Errorf("creating an object of %s again: %w", crd.GetName(), err)
		}
	}
	return nil
}

// fieldOfMessage matches the field, the kind and the version at the start of the message of a schema finding.
var fieldOfMessage = regexp.MustCompile(`^(spec\.\S+) of (\S+) ([a-z0-9]+)`)
