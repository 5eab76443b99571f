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
	paritySeeds = flag.Int("parity.seeds", 200, "how many random upgrades TestUpgradeParity compares")
	parityFirst = flag.Uint64("parity.first", 0, "the first seed of TestUpgradeParity; with -parity.seeds=1 the only one")
)

// batchSize is how many pairs are installed before clusterctl deletes what it deletes of all of them at
// once: each deletion lists all kinds that the API server has.
const batchSize = 50

// outcome is what becomes of an upgrade: what a real cluster shows, or what the checks foretell.
type outcome struct {
	// Refused are the objects of which the API server refuses what clusterctl does.
	Refused []string
	// Left are objects, and labels and webhooks of objects, that only the previous release has and that
	// the cluster still has.
	Left []string
	// NotUpdated are the objects that the API server refuses to update, though clusterctl may make them again.
	NotUpdated []string
	// Lost are the fields of stored objects that are gone.
	Lost []string
	// RefusedObjects are the kinds whose objects of before are refused when they are made again.
	RefusedObjects []string
}

func (o *outcome) sort() {
	for _, list := range []*[]string{&o.Refused, &o.Left, &o.NotUpdated, &o.Lost, &o.RefusedObjects} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

// TestUpgradeParity plays random upgrades on a real API server as clusterctl does, with its own code: what
// is refused, left and lost is what the checks of an upgrade foretell.
func TestUpgradeParity(t *testing.T) {
	w := newParityWorld(t)
	total, refused, fine := 0, 0, 0
	seen := map[string]int{}
	for first := 0; first < *paritySeeds; first += batchSize {
		var upgrades []*playedUpgrade
		for i := first; i < min(first+batchSize, *paritySeeds); i++ {
			upgrades = append(upgrades, w.newUpgrade(t, newUpgradePair(t, *parityFirst+uint64(i), w.ca)))
		}
		w.play(t, upgrades)
		for _, u := range upgrades {
			total++
			if len(u.seen.Refused) > 0 {
				refused++
			} else {
				fine++
			}
			u.compare(t)
			for what, list := range map[string][]string{"left": u.seen.Left, "not updated": u.seen.NotUpdated, "lost": u.seen.Lost, "refused objects": u.seen.RefusedObjects} {
				seen[what] += len(list)
			}
		}
	}
	t.Logf("%d upgrades: %d refused, %d fine, %v", total, refused, fine, seen)
	if total >= 100 && (refused*4 < total || fine*4 < total) {
		t.Errorf("of %d upgrades %d are refused and %d are fine: want at least a quarter of each", total, refused, fine)
	}
	for what, n := range seen {
		if total >= 100 && n < total/20 {
			t.Errorf("of %d upgrades only %d have something %s", total, n, what)
		}
	}
}

// playedUpgrade is an upgrade on an API server.
type playedUpgrade struct {
	name          string
	subject       *checks.Subject
	before, after []unstructured.Unstructured

	seen outcome
	// stored are the objects of the definitions' kinds that the cluster has, by the definition's name.
	stored map[string]*unstructured.Unstructured
	// errors are what the API server said, by object.
	errors map[string]error
}

// parityWorld is an API server, and clusterctl's own client of it.
type parityWorld struct {
	client client.WithWatch
	proxy  *recordingProxy
	config config.Client
	ca     []byte
}

// recordingProxy gives clusterctl a client that records the objects that the API server refuses, and continues:
// clusterctl itself would try for minutes, and stop at the first.
type recordingProxy struct {
	cluster.Proxy
	client client.Client
}

func (p *recordingProxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// with returns a proxy that tells another function what is refused.
func (p *recordingProxy) with(c client.WithWatch, note func(o client.Object, err error)) *recordingProxy {
	noted := func(o client.Object, err error) error {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			note(o, err)
			return nil
		}
		return err
	}
	return &recordingProxy{Proxy: p.Proxy, client: interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return noted(o, c.Create(ctx, o, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return noted(o, c.Patch(ctx, o, patch, options...))
		},
	})}
}

func newParityWorld(t *testing.T) *parityWorld {
	t.Helper()
	prerequisite.APIServer(t)
	t.Setenv("GOGC", "400") // for the API server, which makes much garbage of definitions
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

// newUpgrade returns an upgrade whose objects are those that clusterctl installs.
func (w *parityWorld) newUpgrade(t *testing.T, pair upgradePair) *playedUpgrade {
	t.Helper()
	return &playedUpgrade{
		name:    fmt.Sprintf("seed %d", pair.seed),
		subject: &checks.Subject{Release: pair.after, Previous: pair.before},
		before:  installableIn(t, pair.before, parityNamespace), after: installableIn(t, pair.after, parityNamespace),
		stored: map[string]*unstructured.Unstructured{}, errors: map[string]error{},
	}
}

// play installs the releases before, deletes as clusterctl does, and installs the next ones.
func (w *parityWorld) play(t *testing.T, upgrades []*playedUpgrade) {
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
	w.each(t, upgrades, func(ctx context.Context, u *playedUpgrade) error {
		proxy := w.proxy.with(w.client, func(o client.Object, err error) {
			u.seen.Refused = append(u.seen.Refused, nameOf(o))
			u.errors[nameOf(o)] = err
		})
		return cluster.New(cluster.Kubeconfig{}, w.config, cluster.InjectProxy(proxy)).ProviderComponents().Create(ctx, u.after)
	})
	w.each(t, upgrades, w.look)
}

// each does something for all upgrades, several at once.
func (w *parityWorld) each(t *testing.T, upgrades []*playedUpgrade, do func(ctx context.Context, u *playedUpgrade) error) {
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
func (w *parityWorld) install(ctx context.Context, u *playedUpgrade) error {
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

// waitEstablished waits until the definitions are in force, but for those whose caBundle is invalid: the
// API server does not serve these.
func (w *parityWorld) waitEstablished(ctx context.Context, u *playedUpgrade) error {
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

// eventually waits until something is so.
func eventually(ctx context.Context, doing string, isSo func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return isSo(), nil })
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// tryUpdates asks the API server to update each object of before to the next one, as kubectl apply and
// GitOps tools do, without doing it.
func (w *parityWorld) tryUpdates(ctx context.Context, u *playedUpgrade) error {
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
			u.seen.NotUpdated = append(u.seen.NotUpdated, nameOf(o))
		} else if err != nil {
			return fmt.Errorf("updating %s: %w", nameOf(o), err)
		}
	}
	return nil
}

// look notes what is left and lost after the upgrade.
func (w *parityWorld) look(ctx context.Context, u *playedUpgrade) error {
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
			u.seen.Left = append(u.seen.Left, nameOf(before))
		case err == nil && isDefinition(before) && u.errors[nameOf(before)] == nil:
			w.lookInto(u, before, &u.after[j], now)
			if err := w.lookAtStored(ctx, u, now); err != nil {
				return err
			}
		case apierrors.IsNotFound(err) && j >= 0 && u.errors[nameOf(before)] == nil:
			return fmt.Errorf("%s was neither refused nor installed", nameOf(before))
		}
	}
	return nil
}

// lookInto notes what stayed of a definition of before in the one that was merged into it.
func (w *parityWorld) lookInto(u *playedUpgrade, before, after, now *unstructured.Unstructured) {
	for label, value := range now.GetLabels() {
		if _, ok := after.GetLabels()[label]; !ok && value != "" && strings.HasPrefix(label, "cluster.x-k8s.io/v1") {
			u.seen.Left = append(u.seen.Left, nameOf(before)+" label "+strings.TrimPrefix(label, "cluster.x-k8s.io/"))
		}
	}
	strategy, _, _ := unstructured.NestedString(now.Object, "spec", "conversion", "strategy")
	wanted, _, _ := unstructured.NestedString(after.Object, "spec", "conversion", "strategy")
	// With the same single version in both releases nothing is ever converted.
	alone := len(crdVersions(before.Object)) == 1 && len(crdVersions(after.Object)) == 1 && storedIn(before)["name"] == storedIn(after)["name"]
	if strategy == "Webhook" && wanted != "Webhook" && !alone {
		u.seen.Left = append(u.seen.Left, nameOf(before)+" conversion")
	}
}

// foretold returns what the checks say of an upgrade.
func (u *playedUpgrade) foretold(t *testing.T) outcome {
	t.Helper()
	var told outcome
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
			case check.Group != checks.Upgrade && u.errors[name] == nil: // it is an error without an upgrade, too
			case refuses && f.Severity == checks.Error:
				told.Refused = append(told.Refused, name)
			case check.ID == "object-left", check.ID == "crd-removed":
				told.Left = append(told.Left, name)
			case u.errors[name] != nil: // the cluster has it as it was
			case check.ID == "contract-label-left":
				told.Left = append(told.Left, name+" label "+f.Cause)
			case check.ID == "conversion-removed":
				told.Left = append(told.Left, name+" conversion")
			}
			if check.ID == "selector-changed" || check.ID == "role-ref-changed" {
				told.NotUpdated = append(told.NotUpdated, name)
			}
			u.foretoldOfStored(&told, check.ID, f)
		}
	}
	return told
}

// foretoldOfStored adds what a finding says of objects in the version that is stored before and after.
func (u *playedUpgrade) foretoldOfStored(told *outcome, id string, f checks.Finding) {
	stored := u.stored[f.Object.Name]
	name := f.Object.Kind + " " + f.Object.Name
	match := fieldOfMessage.FindStringSubmatch(f.Message)
	if stored == nil || u.errors[name] != nil || match == nil || match[3] != stored.GroupVersionKind().Version {
		return
	}
	switch id {
	case "crd-field-removed":
		told.Lost = append(told.Lost, fmt.Sprintf("%s of %s %s, %s", match[1], match[2], match[3], name))
	case "crd-field-required", "crd-enum-narrowed", "crd-validation-narrowed":
		told.RefusedObjects = append(told.RefusedObjects, fmt.Sprintf("%s %s, %s", match[2], match[3], name))
	}
}

// compare holds what happened against what was foretold.
func (u *playedUpgrade) compare(t *testing.T) {
	t.Helper()
	told := u.foretold(t)
	told.sort()
	u.seen.sort()
	if diff := cmp.Diff(u.seen, told); diff != "" {
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

// store makes an object of each definition that stores the same version in both releases.
func (w *parityWorld) store(ctx context.Context, u *playedUpgrade) error {
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

// establishedCondition returns the condition of a definition that says whether the API server serves it.
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

// storedIn returns the version that a definition stores.
func storedIn(crd *unstructured.Unstructured) object {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	i := slices.IndexFunc(versions, func(v any) bool { return v.(object)["storage"] == true })
	return versions[i].(object)
}

// instance returns an object of a definition, with a value in each field of a version's spec, or in the
// required ones only.
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

// lookAtStored notes what an object lost, and whether its manifest is refused now.
func (w *parityWorld) lookAtStored(ctx context.Context, u *playedUpgrade, crd *unstructured.Unstructured) error {
	stored := u.stored[crd.GetName()]
	if stored == nil {
		return nil
	}
	now := stored.DeepCopy()
	// The API server serves the new schema when it fills in its default.
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
			u.seen.Lost = append(u.seen.Lost, fmt.Sprintf("spec.%s of %s %s, %s", field, stored.GetKind(), version, nameOf(crd)))
		}
	}
	i := slices.IndexFunc(u.before, func(o unstructured.Unstructured) bool { return nameOf(&o) == nameOf(crd) })
	for _, minimal := range []bool{false, true} {
		err := w.client.Create(ctx, instance(&u.before[i], storedIn(&u.before[i]), "again", minimal), client.DryRunAll)
		if apierrors.IsInvalid(err) {
			u.seen.RefusedObjects = append(u.seen.RefusedObjects, fmt.Sprintf("%s %s, %s", stored.GetKind(), version, nameOf(crd)))
			u.errors["an object of "+nameOf(crd)] = err
		} else if err != nil {
			return fmt.Errorf("making an object of %s again: %w", crd.GetName(), err)
		}
	}
	return nil
}

// fieldOfMessage finds the field, the kind and the version that a finding in a schema begins with.
var fieldOfMessage = regexp.MustCompile(`^(spec\.\S+) of (\S+) ([a-z0-9]+)`)
