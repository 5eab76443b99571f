package move_test

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// proxy is clusterctl's own, which makes a client once instead of for each request.
type proxy struct {
	cluster.Proxy
	client client.Client
}

func (p proxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// hasty is the client of one move of clusterctl's.
type hasty struct {
	client.Client
	world *world
	// giveUp ends the move: clusterctl asks for what is missing again and again, for fifteen seconds,
	// and has failed when it has asked twice.
	giveUp  context.CancelFunc
	missing map[string]bool
}

// Get implements client.Client.
func (c hasty) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, o, options...)
	if apierrors.IsNotFound(err) {
		name := fmt.Sprintf("%T %s %s", o, o.GetObjectKind().GroupVersionKind(), key)
		if c.missing[name] {
			c.giveUp()
		}
		c.missing[name] = true
	}
	return err
}

// List implements client.Client. The CRDs stay the same, and are most of what clusterctl reads.
func (c hasty) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	crds, ok := list.(*apiextensionsv1.CustomResourceDefinitionList)
	if !ok {
		return c.Client.List(ctx, list, options...)
	}
	if c.world.crds == nil {
		if err := c.Client.List(ctx, list, options...); err != nil {
			return err
		}
		c.world.crds = crds.DeepCopy()
	}
	c.world.crds.DeepCopyInto(crds)
	return nil
}

// mover returns a mover of clusterctl's, which remembers that it once was for a dry run.
func (w *world) mover(giveUp context.CancelFunc) cluster.ObjectMover {
	kubeconfig := cluster.Kubeconfig{Path: w.kubeconfig}
	injected := proxy{Proxy: cluster.NewProxy(kubeconfig), client: hasty{Client: w.clusterctls, world: w, giveUp: giveUp, missing: map[string]bool{}}}
	return cluster.New(kubeconfig, w.clusterctlConfig, cluster.InjectProxy(injected)).ObjectMover()
}

// taken is what clusterctl says it creates and deletes, in its order.
type taken struct {
	mutex            sync.Mutex
	created, deleted []string
}

// The methods of taken are the sink of clusterctl's log, which keeps only the objects that clusterctl creates and
// deletes.
func (*taken) Init(logr.RuntimeInfo)            {}
func (*taken) Enabled(int) bool                 { return true }
func (*taken) Error(error, string, ...any)      {}
func (k *taken) WithValues(...any) logr.LogSink { return k }
func (k *taken) WithName(string) logr.LogSink   { return k }
func (k *taken) Info(_ int, message string, values ...any) {
	if len(values) != 4 || message != "Creating" && message != "Deleting" {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	name := fmt.Sprintf("%v %v/%v", values[0], values[3], values[1])
	if message == "Creating" {
		k.created = append(k.created, name)
	} else {
		k.deleted = append(k.deleted, name)
	}
}

// nameOf names an object as taken does.
func nameOf(o manifest.Object) string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

// moves is where clusterctl's log goes: to the dry run that runs. There is one at a time, as
// clusterctl has one log; other messages in it are not about created objects.
var moves struct {
	sync.Mutex
	sink *taken
}

// dryRun lets clusterctl's own code do a dry run.
func (w *world) dryRun(ctx context.Context, namespace string) (*taken, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	moves.Lock()
	defer moves.Unlock()
	moves.sink.mutex.Lock()
	moves.sink.created, moves.sink.deleted = nil, nil
	moves.sink.mutex.Unlock()
	err := w.mover(cancel).Move(ctx, namespace, nil, true)
	moves.sink.mutex.Lock()
	defer moves.sink.mutex.Unlock()
	return &taken{created: moves.sink.created, deleted: moves.sink.deleted}, err
}

// toDirectory lets clusterctl's own code write files, and returns their names.
func (w *world) toDirectory(ctx context.Context, namespace, folder string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := w.mover(cancel).ToDirectory(ctx, namespace, folder); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}
