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

// made is an object of a scenario. Its owners are known once they have been created.
type made struct {
	*unstructured.Unstructured
	owners []*made
	// ghost is the kind of an owner that does not exist; "" is none.
	ghost string
	// status is set apart, as Kubernetes wants it.
	status map[string]any
}

// scenario is what a seed makes: objects of a namespace, of a second one, of the provider's and of none.
type scenario struct {
	random        *rand.Rand
	seed          int
	space, second string
	objects       []*made
	// unready scenarios have Clusters or Machines that clusterctl refuses to move for real.
	unready bool
	names   int
}

// newScenario makes the objects of a seed.
func newScenario(seed int, prefix string) *scenario {
	s := &scenario{random: rand.New(rand.NewPCG(uint64(seed), 1)), seed: seed}
	s.space = fmt.Sprintf("%s-%d", prefix, seed)
	s.second = s.space + "-b"
	s.unready = s.chance(8)

	var classes []*made
	if s.chance(2) {
		classes = append(classes, s.class(s.space))
	}
	if s.chance(3) {
		classes = append(classes, s.class(s.second))
	}
	var clusters []*made
	for range s.random.IntN(4) {
		clusters = append(clusters, s.cluster(s.space, classes))
	}
	if s.chance(3) {
		s.cluster(s.second, classes) // may use a class of the first
	}
	s.resourceSets(clusters)
	s.globals()
	s.oddities(clusters)
	s.mischief()
	return s
}

// chance is true once in n times.
func (s *scenario) chance(n int) bool { return s.random.IntN(n) == 0 }

// name returns a name that no other object of the seed has.
func (s *scenario) name(stem string) string {
	s.names++
	return fmt.Sprintf("%s-%d-%d", stem, s.seed, s.names)
}

// add adds an object.
func (s *scenario) add(apiVersion, kind, namespace, name string, spec map[string]any, owners ...*made) *made {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	if spec != nil {
		u.Object["spec"] = spec
	}
	m := &made{Unstructured: u, owners: owners}
	s.objects = append(s.objects, m)
	return m
}

// label sets a label of clusterctl's.
func (m *made) label(name string) { m.SetLabels(map[string]string{name: ""}) }

// demo adds an object of the made-up provider.
func (s *scenario) demo(kind, namespace string, owners ...*made) *made {
	return s.add(demoAPI, kind, namespace, s.name("demo"), map[string]any{"size": "small"}, owners...)
}

// reference is a contract versioned reference.
func reference(o *made) map[string]any {
	gvk := o.GroupVersionKind()
	return map[string]any{"apiGroup": gvk.Group, "kind": gvk.Kind, "name": o.GetName()}
}

// templateReference is a reference of a ClusterClass.
func templateReference(o *made) map[string]any {
	return map[string]any{"templateRef": map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName()}}
}

// class adds a ClusterClass with its templates. Some templates have no owner yet, and some are of a
// kind that no move lists.
func (s *scenario) class(namespace string) *made {
	class := s.add(coreAPI, "ClusterClass", namespace, s.name("class"), nil)
	template := func(apiVersion, kind string, spec map[string]any) *made {
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
	if s.chance(4) { // a template of the class that it does not refer to
		s.demo("DemoMachineTemplate", namespace, class)
	}
	return class
}

// cluster adds a Cluster with what belongs to it.
func (s *scenario) cluster(namespace string, classes []*made) *made {
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
func (s *scenario) controlPlane(cluster *made) *made {
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

// machine adds a Machine with what belongs to it.
func (s *scenario) machine(cluster *made, owner *made) *made {
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

// workers is the template of Machines in deployments, sets and pools.
func (s *scenario) workers(cluster, infrastructure *made) map[string]any {
	return map[string]any{"spec": map[string]any{
		"clusterName": cluster.GetName(), "infrastructureRef": reference(infrastructure), "bootstrap": map[string]any{"dataSecretName": "data"},
	}}
}

// deployment adds a MachineDeployment with its MachineSet and Machines.
func (s *scenario) deployment(cluster *made) {
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
func (s *scenario) pool(cluster *made) {
	namespace := cluster.GetNamespace()
	pool := s.add(coreAPI, "MachinePool", namespace, s.name("mp"), nil, cluster)
	infrastructure := s.demo("DemoMachinePool", namespace, pool)
	pool.Object["spec"] = map[string]any{"clusterName": cluster.GetName(), "template": s.workers(cluster, infrastructure)}
	if s.chance(2) {
		s.machine(cluster, pool).owners = append(s.objects[len(s.objects)-1].owners, infrastructure)
	}
}

// secrets adds Secrets and ConfigMaps beside a Cluster: some are named after it, some are not.
func (s *scenario) secrets(cluster *made) {
	namespace := cluster.GetNamespace()
	for _, purpose := range []string{"kubeconfig", "etcd", "proxy", "apiserver-etcd-client", "something"} {
		if s.chance(2) {
			secret := s.add("v1", "Secret", namespace, cluster.GetName()+"-"+purpose, nil)
			if s.chance(5) {
				secret.owners = []*made{cluster}
			}
		}
	}
	if s.chance(2) {
		s.add("v1", "ConfigMap", namespace, s.name("cm"), nil, cluster)
	}
	if s.chance(3) { // the name of a Cluster's, and an owner that is moved alone
		s.add("v1", "Secret", namespace, cluster.GetName()+"-sa", nil, s.demo("DemoShared", namespace))
	}
}

// resourceSets adds ClusterResourceSets with what they apply, and their bindings.
func (s *scenario) resourceSets(clusters []*made) {
	if !s.chance(2) {
		return
	}
	secret := s.add("v1", "Secret", s.space, s.name("addon"), nil)
	configMap := s.add("v1", "ConfigMap", s.space, s.name("addon"), nil)
	set := s.add(addonsAPI, "ClusterResourceSet", s.space, s.name("crs"), map[string]any{
		"clusterSelector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
		"resources":       []any{map[string]any{"kind": "Secret", "name": secret.GetName()}, map[string]any{"kind": "ConfigMap", "name": configMap.GetName()}},
	})
	secret.owners, configMap.owners = []*made{set}, []*made{set}
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

// globals adds objects without a namespace, with and without labels, and what belongs to them.
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

// oddities adds objects that labels move, that nothing moves, and that belong to several Clusters.
func (s *scenario) oddities(clusters []*made) {
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

// mischief spoils owner references here and there.
func (s *scenario) mischief() {
	pick := func() *made { return s.objects[s.random.IntN(len(s.objects))] }
	if len(s.objects) == 0 {
		return
	}
	if s.chance(4) { // a cycle of two or three
		a, b := s.demo("DemoPort", s.space), s.demo("DemoPort", s.space)
		a.owners, b.owners = []*made{b}, []*made{a}
		if s.chance(2) {
			a.owners = append(a.owners, pick())
		}
		s.demo("DemoPort", s.space, a)
	}
	if s.chance(6) {
		port := s.demo("DemoPort", s.space)
		port.owners = []*made{port}
	}
	if s.chance(3) { // an owner that does not exist, or that no move reads
		m := pick()
		m.ghost = []string{"DemoMachine", "Job", "DemoMachine", "Secret"}[s.random.IntN(4)]
	}
	if s.chance(12) {
		pick().ghost = []string{"Cluster", "ClusterClass", "Machine"}[s.random.IntN(3)]
	}
	if s.chance(5) { // an owner anywhere
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
