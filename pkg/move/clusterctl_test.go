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

// proxy is clusterctl's proxy with one client instead of a new one for each request.
type proxy struct {
	cluster.Proxy
	client client.Client
}

func (p proxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// impatientClient is the client of one move by clusterctl.
type impatientClient struct {
	client.Client
	world *world
	// giveUp ends the move when clusterctl requests a missing object for the second time. clusterctl
	// itself repeats such requests for fifteen seconds and then fails.
	giveUp  context.CancelFunc
	missing map[string]bool
}

// Get implements client.Client.
func (c impatientClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
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

// List implements client.Client. It caches the CRDs, which don't change and are most of the objects that
// clusterctl reads.
func (c impatientClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
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

// mover returns a new mover of clusterctl, because a mover stays in dry-run mode after a dry run.
func (w *world) mover(giveUp context.CancelFunc) cluster.ObjectMover {
	kubeconfig := cluster.Kubeconfig{Path: w.kubeconfig}
	injected := proxy{Proxy: cluster.NewProxy(kubeconfig), client: impatientClient{Client: w.clusterctlClient, world: w, giveUp: giveUp, missing: map[string]bool{}}}
	return cluster.New(kubeconfig, w.clusterctlConfig, cluster.InjectProxy(injected)).ObjectMover()
}

// moveLog has the objects that clusterctl logs as created and deleted, in their order.
type moveLog struct {
	mutex            sync.Mutex
	created, deleted []string
}

// The methods of moveLog implement logr.LogSink. It keeps only the objects that clusterctl creates and deletes.
func (*moveLog) Init(logr.RuntimeInfo)            {}
func (*moveLog) Enabled(int) bool                 { return true }
func (*moveLog) Error(error, string, ...any)      {}
func (k *moveLog) WithValues(...any) logr.LogSink { return k }
func (k *moveLog) WithName(string) logr.LogSink   { return k }
func (k *moveLog) Info(_ int, message string, values ...any) {
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

// nameOf returns the name of an object in a moveLog.
func nameOf(o manifest.Object) string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

// moves has the sink of clusterctl's log. Only one dry run runs at a time, because clusterctl has one log
// for the process. Other messages in it are not about created objects.
var moves struct {
	sync.Mutex
	sink *moveLog
}

// dryRun runs clusterctl's own code for a dry run.
func (w *world) dryRun(ctx context.Context, namespace string) (*moveLog, error) {
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
	return &moveLog{created: moves.sink.created, deleted: moves.sink.deleted}, err
}

// toDirectory runs clusterctl's own code that writes objects to files, and returns the files' names.
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
