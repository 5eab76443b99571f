package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// consoleLogs gives the specs the logs of machines: what they wrote to their consoles, and what libvirt and QEMU said.
type consoleLogs struct{}

// CollectMachineLog copies the logs of a machine to a folder.
func (consoleLogs) CollectMachineLog(_ context.Context, _ client.Client, machine *clusterv1.Machine, folder string) error {
	files, err := filepath.Glob(filepath.Join(bed.Dir, "hosts", "*", "log", "qemu", "*"+machine.Spec.InfrastructureRef.Name+"*"))
	if err != nil {
		return err
	}
	return copyFiles(files, folder)
}

// CollectMachinePoolLog has nothing to do: a pool's machines have logs of their own.
func (consoleLogs) CollectMachinePoolLog(context.Context, client.Client, *clusterv1.MachinePool, string) error {
	return nil
}

// CollectInfrastructureLogs copies the logs of the hosts' daemons.
func (consoleLogs) CollectInfrastructureLogs(_ context.Context, _ client.Client, _ *clusterv1.Cluster, folder string) error {
	files, err := filepath.Glob(filepath.Join(bed.Dir, "hosts", "*", "libvirtd.log"))
	if err != nil {
		return err
	}
	return copyFiles(files, folder)
}

func copyFiles(files []string, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		source, err := os.Open(file)
		if err != nil {
			return err
		}
		target, err := os.Create(filepath.Join(folder, filepath.Base(file)))
		if err != nil {
			return errors.Join(err, source.Close())
		}
		_, err = io.Copy(target, source)
		if err := errors.Join(err, target.Close(), source.Close()); err != nil {
			return err
		}
	}
	return nil
}
