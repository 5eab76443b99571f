package move_test

import (
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	coreAPI      = "cluster.x-k8s.io/v1beta2"
	addonsAPI    = "addons.cluster.x-k8s.io/v1beta2"
	bootstrapAPI = "bootstrap.cluster.x-k8s.io/v1beta2"
	controlAPI   = "controlplane.cluster.x-k8s.io/v1beta2"
	demoAPI      = "infrastructure.cluster.x-k8s.io/v1beta1"
	hiddenAPI    = "images.example.com/v1"

	providerNamespace = "demo-system"
	moveLabel         = "clusterctl.cluster.x-k8s.io/move"
	hierarchyLabel    = "clusterctl.cluster.x-k8s.io/move-hierarchy"
)

// scenarioObject is an object of a scenario. Its owners have UIDs after their creation.
type scenarioObject struct {
	*unstructured.Unstructured
	owners []*scenarioObject
	// missingOwner is the kind of an owner that does not exist; "" is none.
	missingOwner string
	// status is set by a request of its own, as Kubernetes requires.
	status map[string]any
}

// scenario has the objects of a seed: in two namespaces, in the provider's namespace and without a namespace.
type scenario struct {
	random        *rand.Rand
	seed          int
	space, second string
	objects       []*scenarioObject
	// unready scenarios have Clusters or Machines that clusterctl refuses to move, except in a dry run.
	unready bool
	names   int
}

// newScenario returns the scenario of a seed.
func newScenario(seed int, prefix string) *scenario {
	s := &scenario{random: rand.New(rand.NewPCG(uint64(seed), 1)), seed: seed}
	s.space = fmt.Sprintf("%s-%d", prefix, seed)
	s.second = s.space + "-b"
	s.unready = s.chance(8)

	var classes []*scenarioObject
	if s.chance(2) {
		classes = append(classes, s.class(s.space))
	}
	if s.chance(3) {
		classes = append(classes, s.class(s.second))
	}
	var clusters []*scenarioObject
	for range s.random.IntN(4) {
		clusters = append(clusters, s.cluster(s.space, classes))
	}
	if s.chance(3) {
		s.cluster(s.second, classes) // may use a class of the first namespace
	}
	s.resourceSets(clusters)
	s.globals()
	s.specialCases(clusters)
	s.changeOwners()
	return s
}

// chance returns true with the probability 1/n.
func (s *scenario) chance(n int) bool { return s.random.IntN(n) == 0 }

// name returns a unique name for an object of the seed.
func (s *scenario) name(stem string) string {
	s.names++
	return fmt.Sprintf("%s-%d-%d", stem, s.seed, s.names)
}

// add adds an object.
func (s *scenario) add(apiVersion, kind, namespace, name string, spec map[string]any, owners ...*scenarioObject) *scenarioObject {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	if spec != nil {
		u.Object["spec"] = spec
	}
	m := &scenarioObject{Unstructured: u, owners: owners}
	s.objects = append(s.objects, m)
	return m
}

// label sets a label of clusterctl.
func (m *scenarioObject) label(name string) { m.SetLabels(map[string]string{name: ""}) }

// demo adds an object of the demo provider.
func (s *scenario) demo(kind, namespace string, owners ...*scenarioObject) *scenarioObject {
	return s.add(demoAPI, kind, namespace, s.name("demo"), map[string]any{"size": "small"}, owners...)
}

// reference returns a reference without a version, as the contract has it.
func reference(o *scenarioObject) map[string]any {
	gvk := o.GroupVersionKind()
	return map[string]any{"apiGroup": gvk.Group, "kind": gvk.Kind, "name": o.GetName()}
}

// templateReference returns a reference of a ClusterClass to a template.
func templateReference(o *scenarioObject) map[string]any {
	return map[string]any{"templateRef": map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName()}}
}

// class adds a ClusterClass with its templates. Some templates have no owner so far, and some are of a kind
// that clusterctl doesn't read.
func (s *scenario) class(namespace string) *scenarioObject {
	class := s.add(coreAPI, "ClusterClass", namespace, s.name("class"), nil)
	template := func(apiVersion, kind string, spec map[string]any) *scenarioObject {
		t := s.add(apiVersion, kind, namespace, s.name("t"), spec)
		if !s.chance(5) {
			t.owners = append(t.owners, class)
		}
		return t
	}
	infrastructure := template(demoAPI, "DemoClusterTemplate", map[string]any{})
	controlPlane := template(controlAPI, "KubeadmControlPlaneTemplate", map[string]any{"template": map[string]any{"spec": map[string]any{"rollout": map[string]any{"after": "2030-01-01T00:00:00Z"}}}})
	machine := template(demoAPI, "DemoMachineTemplate", map[string]any{})
	if s.chance(4) {
		machine = template(hiddenAPI, "Image", map[string]any{})
	}
	bootstrap := template(bootstrapAPI, "KubeadmConfigTemplate", map[string]any{"template": map[string]any{"spec": map[string]any{"format": "cloud-config"}}})
	class.Object["spec"] = map[string]any{
		"infrastructure": templateReference(infrastructure),
		"controlPlane":   map[string]any{"templateRef": templateReference(controlPlane)["templateRef"], "machineInfrastructure": templateReference(machine)},
		"workers": map[string]any{"machineDeployments": []any{map[string]any{
			"class": "default", "infrastructure": templateReference(machine), "bootstrap": templateReference(bootstrap),
		}}},
	}
	if s.chance(4) { // a template that the class owns but does not refer to
		s.demo("DemoMachineTemplate", namespace, class)
	}
	return class
}

// cluster adds a Cluster with its objects.
func (s *scenario) cluster(namespace string, classes []*scenarioObject) *scenarioObject {
	cluster := s.add(coreAPI, "Cluster", namespace, s.name("c"), nil)
	infrastructure := s.demo("DemoCluster", namespace, cluster)
	spec := map[string]any{"infrastructureRef": reference(infrastructure)}
	cluster.Object["spec"] = spec
	if len(classes) > 0 && !s.chance(3) {
		class := classes[s.random.IntN(len(classes))]
		ref := map[string]any{"name": class.GetName()}
		if class.GetNamespace() != namespace || s.chance(2) {
			ref["namespace"] = class.GetNamespace()
		}
		spec["topology"] = map[string]any{"version": "v1.36.0", "classRef": ref}
	}
	if !s.chance(4) {
		spec["controlPlaneRef"] = reference(s.controlPlane(cluster))
	}
	for range s.random.IntN(3) {
		s.deployment(cluster)
	}
	if s.chance(3) {
		s.pool(cluster)
	}
	s.secrets(cluster)
	cluster.status = map[string]any{
		"initialization": map[string]any{"infrastructureProvisioned": true, "controlPlaneInitialized": true},
		"conditions": []any{map[string]any{
			"type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}},
	}
	if s.unready && s.chance(2) {
		cluster.status = map[string]any{"initialization": map[string]any{"infrastructureProvisioned": s.chance(2)}}
	}
	return cluster
}

// controlPlane adds a control plane with its Machines.
func (s *scenario) controlPlane(cluster *scenarioObject) *scenarioObject {
	namespace := cluster.GetNamespace()
	template := s.demo("DemoMachineTemplate", namespace, cluster)
	plane := s.add(controlAPI, "KubeadmControlPlane", namespace, s.name("kcp"), map[string]any{
		"version": "v1.36.0", "machineTemplate": map[string]any{"spec": map[string]any{"infrastructureRef": reference(template)}},
	}, cluster)
	for range 1 + s.random.IntN(2) {
		s.machine(cluster, plane)
	}
	s.add("v1", "Secret", namespace, cluster.GetName()+"-ca", nil, plane)
	return plane
}

// machine adds a Machine with its objects.
func (s *scenario) machine(cluster *scenarioObject, owner *scenarioObject) *scenarioObject {
	namespace := cluster.GetNamespace()
	machine := s.add(coreAPI, "Machine", namespace, s.name("m"), nil, owner)
	infrastructure := s.demo("DemoMachine", namespace, machine)
	config := s.add(bootstrapAPI, "KubeadmConfig", namespace, s.name("cfg"), map[string]any{"format": "cloud-config"}, machine)
	machine.Object["spec"] = map[string]any{
		"clusterName": cluster.GetName(), "infrastructureRef": reference(infrastructure),
		"bootstrap": map[string]any{"configRef": reference(config)},
	}
	s.add("v1", "Secret", namespace, config.GetName(), nil, config)
	if s.chance(3) {
		claim := s.add("ipam.cluster.x-k8s.io/v1beta2", "IPAddressClaim", namespace, s.name("ip"),
			map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "DemoPool", "name": "pool"}}, infrastructure)
		if s.chance(2) {
			s.demo("DemoPort", namespace, claim, infrastructure)
		}
	}
	machine.status = map[string]any{"nodeRef": map[string]any{"name": machine.GetName()}}
	if s.unready && s.chance(3) {
		machine.status = nil
	}
	return machine
}

// workers returns the template of Machines in deployments, sets and pools.
func (s *scenario) workers(cluster, infrastructure *scenarioObject) map[string]any {
	return map[string]any{"spec": map[string]any{
		"clusterName": cluster.GetName(), "infrastructureRef": reference(infrastructure), "bootstrap": map[string]any{"dataSecretName": "data"},
	}}
}

// deployment adds a MachineDeployment with its MachineSet and Machines.
func (s *scenario) deployment(cluster *scenarioObject) {
	namespace := cluster.GetNamespace()
	template := s.demo("DemoMachineTemplate", namespace, cluster)
	s.add(bootstrapAPI, "KubeadmConfigTemplate", namespace, s.name("kct"), map[string]any{"template": map[string]any{"spec": map[string]any{"format": "ignition"}}}, cluster)
	selector := map[string]any{"matchLabels": map[string]any{"a": "b"}}
	spec := func() map[string]any {
		return map[string]any{"clusterName": cluster.GetName(), "selector": selector, "template": s.workers(cluster, template)}
	}
	deployment := s.add(coreAPI, "MachineDeployment", namespace, s.name("md"), spec(), cluster)
	for range 1 + s.random.IntN(2) {
		set := s.add(coreAPI, "MachineSet", namespace, s.name("ms"), spec(), deployment)
		for range s.random.IntN(3) {
			s.machine(cluster, set)
		}
	}
	if s.chance(3) {
		s.add(coreAPI, "MachineHealthCheck", namespace, s.name("mhc"), map[string]any{"clusterName": cluster.GetName(), "selector": selector}, cluster)
	}
}

// pool adds a MachinePool.
func (s *scenario) pool(cluster *scenarioObject) {
	namespace := cluster.GetNamespace()
	pool := s.add(coreAPI, "MachinePool", namespace, s.name("mp"), nil, cluster)
	infrastructure := s.demo("DemoMachinePool", namespace, pool)
	pool.Object["spec"] = map[string]any{"clusterName": cluster.GetName(), "template": s.workers(cluster, infrastructure)}
	if s.chance(2) {
		s.machine(cluster, pool).owners = append(s.objects[len(s.objects)-1].owners, infrastructure)
	}
}

// secrets adds Secrets and ConfigMaps to the namespace of a Cluster, some with its name as a prefix.
func (s *scenario) secrets(cluster *scenarioObject) {
	namespace := cluster.GetNamespace()
	for _, purpose := range []string{"kubeconfig", "etcd", "proxy", "apiserver-etcd-client", "something"} {
		if s.chance(2) {
			secret := s.add("v1", "Secret", namespace, cluster.GetName()+"-"+purpose, nil)
			if s.chance(5) {
				secret.owners = []*scenarioObject{cluster}
			}
		}
	}
	if s.chance(2) {
		s.add("v1", "ConfigMap", namespace, s.name("cm"), nil, cluster)
	}
	if s.chance(3) { // a name as of a Cluster's Secret, and an owner that is moved alone
		s.add("v1", "Secret", namespace, cluster.GetName()+"-sa", nil, s.demo("DemoShared", namespace))
	}
}

// resourceSets adds ClusterResourceSets with their resources and bindings.
func (s *scenario) resourceSets(clusters []*scenarioObject) {
	if !s.chance(2) {
		return
	}
	secret := s.add("v1", "Secret", s.space, s.name("addon"), nil)
	configMap := s.add("v1", "ConfigMap", s.space, s.name("addon"), nil)
	set := s.add(addonsAPI, "ClusterResourceSet", s.space, s.name("crs"), map[string]any{
		"clusterSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
		"resources":       []any{map[string]any{"kind": "Secret", "name": secret.GetName()}, map[string]any{"kind": "ConfigMap", "name": configMap.GetName()}},
	})
	secret.owners, configMap.owners = []*scenarioObject{set}, []*scenarioObject{set}
	for _, cluster := range clusters {
		binding := s.add(addonsAPI, "ClusterResourceSetBinding", s.space, cluster.GetName(), map[string]any{"clusterName": cluster.GetName()}, set)
		if s.chance(4) {
			binding.owners = append(binding.owners, cluster)
		}
	}
	if s.chance(4) {
		s.add(addonsAPI, "ClusterResourceSetBinding", s.space, s.name("lost"), map[string]any{"clusterName": "nobody"})
	}
}

// globals adds objects without a namespace, with and without labels, and the objects that they own.
func (s *scenario) globals() {
	if s.chance(2) { // the CRD has the label move-hierarchy
		identity := s.demo("DemoIdentity", "")
		s.add("v1", "Secret", providerNamespace, s.name("credentials"), nil, identity)
		if s.chance(2) {
			s.add("v1", "Secret", s.space, s.name("credentials"), nil, identity)
		}
		if s.chance(3) {
			s.demo("DemoPort", s.space, identity)
		}
	}
	if s.chance(3) { // the CRD has no label
		host := s.demo("DemoHost", "")
		switch s.random.IntN(3) {
		case 0:
			host.label(moveLabel)
		case 1:
			host.label(hierarchyLabel)
		}
		s.demo("DemoPort", s.space, host)
	}
	if s.chance(3) {
		s.add("runtime.cluster.x-k8s.io/v1beta2", "ExtensionConfig", "", s.name("ext"), map[string]any{"clientConfig": map[string]any{"url": "https://example.com"}})
	}
	if s.chance(3) {
		secret := s.add("v1", "Secret", providerNamespace, s.name("loose"), nil)
		if s.chance(2) {
			secret.label(moveLabel)
		}
	}
}

// specialCases adds objects that are moved because of labels, are not moved, or belong to several Clusters.
func (s *scenario) specialCases(clusters []*scenarioObject) {
	if s.chance(2) {
		s.demo("DemoShared", s.space) // the CRD has the label move
	}
	if s.chance(2) { // the CRD has the label move-hierarchy
		pool := s.demo("DemoPool", s.space)
		s.demo("DemoPort", s.space, s.demo("DemoPort", s.space, pool))
	}
	for range s.random.IntN(3) {
		port := s.demo("DemoPort", s.space)
		switch s.random.IntN(4) {
		case 0:
			port.label(moveLabel)
		case 1:
			port.label(hierarchyLabel)
		}
		s.demo("DemoPort", s.space, port)
	}
	for _, kind := range []string{"Secret", "ConfigMap"} {
		if s.chance(2) {
			s.add("v1", kind, s.space, s.name("cpi"), nil).label(moveLabel)
		}
		if s.chance(2) {
			s.add("v1", kind, s.space, s.name("other"), nil)
		}
	}
	if len(clusters) > 1 && s.chance(2) {
		s.demo("DemoPort", s.space, clusters...)
	}
	if s.chance(4) { // the same kind, namespace and name in another group
		port := s.demo("DemoPort", s.space)
		s.add(hiddenAPI, "Image", s.space, port.GetName(), map[string]any{}, port)
	}
}

// changeOwners makes unusual owner references and Clusters that can't be moved.
func (s *scenario) changeOwners() {
	pick := func() *scenarioObject { return s.objects[s.random.IntN(len(s.objects))] }
	if len(s.objects) == 0 {
		return
	}
	if s.chance(4) { // a cycle of two or three
		a, b := s.demo("DemoPort", s.space), s.demo("DemoPort", s.space)
		a.owners, b.owners = []*scenarioObject{b}, []*scenarioObject{a}
		if s.chance(2) {
			a.owners = append(a.owners, pick())
		}
		s.demo("DemoPort", s.space, a)
	}
	if s.chance(6) {
		port := s.demo("DemoPort", s.space)
		port.owners = []*scenarioObject{port}
	}
	if s.chance(3) { // an owner that does not exist or is not read
		m := pick()
		m.missingOwner = []string{"DemoMachine", "Job", "DemoMachine", "Secret"}[s.random.IntN(4)]
	}
	if s.chance(12) {
		pick().missingOwner = []string{"Cluster", "ClusterClass", "Machine"}[s.random.IntN(3)]
	}
	if s.chance(5) { // a random owner
		m, owner := pick(), pick()
		m.owners = append(m.owners, owner)
	}
	if s.chance(5) {
		s.demo("DemoMachine", s.space, s.add(hiddenAPI, "Image", s.space, s.name("image"), map[string]any{}))
	}
	if s.chance(25) {
		for _, m := range s.objects {
			if m.GetKind() == "Cluster" {
				m.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""})
				break
			}
		}
	}
	if s.chance(25) {
		for _, m := range s.objects {
			if m.GetKind() == "Cluster" && m.GetNamespace() == s.space {
				spec, _ := m.Object["spec"].(map[string]any)
				spec["topology"] = map[string]any{"version": "v1.36.0", "classRef": map[string]any{"name": "missing", "namespace": s.second}}
				break
			}
		}
	}
}
