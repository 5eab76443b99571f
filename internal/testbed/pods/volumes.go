package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (p *pod) volume(name string) string {
	return filepath.Join(p.dir, "volumes", name)
}

// writeVolumes writes the files of all volumes, and updates existing ones to the current Secrets and ConfigMaps.
func (p *pod) writeVolumes(ctx context.Context, object *corev1.Pod) error {
	for i := range object.Spec.Volumes {
		if err := p.writeVolume(ctx, object, &object.Spec.Volumes[i]); err != nil {
			if reason := (*waiting)(nil); errors.As(err, &reason) {
				return err
			}
			return fmt.Errorf("volume %s: %w", object.Spec.Volumes[i].Name, err)
		}
	}
	return nil
}

func (p *pod) writeVolume(ctx context.Context, object *corev1.Pod, volume *corev1.Volume) error {
	folder := p.volume(volume.Name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	switch {
	case volume.EmptyDir != nil:
		return os.Chmod(folder, 0o777)
	case volume.Secret != nil:
		files, err := p.secret(ctx, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional)
		return errors.Join(err, writeFiles(folder, files))
	case volume.ConfigMap != nil:
		files, err := p.configMap(ctx, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional)
		return errors.Join(err, writeFiles(folder, files))
	case volume.Projected != nil:
		for i := range volume.Projected.Sources {
			if err := p.project(ctx, object, folder, &volume.Projected.Sources[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return &waiting{"CreateContainerConfigError", "the testbed's pods have no volumes such as " + volume.Name}
}

// project writes one source of a projected volume.
func (p *pod) project(ctx context.Context, object *corev1.Pod, folder string, projection *corev1.VolumeProjection) error {
	switch {
	case projection.ServiceAccountToken != nil:
		file := filepath.Join(folder, projection.ServiceAccountToken.Path)
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		token, err := p.token(ctx, object, projection.ServiceAccountToken)
		if err != nil {
			return err
		}
		return write(file, []byte(token), p.user(object), 0o600)
	case projection.ConfigMap != nil:
		files, err := p.configMap(ctx, projection.ConfigMap.Name, projection.ConfigMap.Items, projection.ConfigMap.Optional)
		return errors.Join(err, writeFiles(folder, files))
	case projection.Secret != nil:
		files, err := p.secret(ctx, projection.Secret.Name, projection.Secret.Items, projection.Secret.Optional)
		return errors.Join(err, writeFiles(folder, files))
	case projection.DownwardAPI != nil:
		for _, item := range projection.DownwardAPI.Items {
			if item.FieldRef == nil || item.FieldRef.FieldPath != "metadata.namespace" {
				return &waiting{"CreateContainerConfigError", "the testbed's volumes have the field metadata.namespace only"}
			}
			if err := write(filepath.Join(folder, item.Path), []byte(object.Namespace), 0, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	return &waiting{"CreateContainerConfigError", "the testbed's pods don't support this source of a projected volume"}
}

// user returns the owner of a pod's token: the user of its first container, because containers that share a token have
// the same user.
func (p *pod) user(object *corev1.Pod) int64 {
	image, err := p.runner.image(object.Spec.Containers[0].Image)
	if err != nil {
		return 0
	}
	return securityOf(object, &object.Spec.Containers[0], image).user
}

// token requests a token of the pod's service account, which is bound to the pod.
func (p *pod) token(ctx context.Context, object *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: projection.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: object.Name, UID: object.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Spec.ServiceAccountName}}
	if err := p.runner.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting a token of service account %s: %w", account.Name, err)
	}
	return request.Status.Token, nil
}

func (p *pod) secret(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	var secret corev1.Secret
	if err := p.get(ctx, name, &secret, optional); err != nil {
		return nil, err
	}
	return chosen("secret "+name, secret.Data, items)
}

func (p *pod) configMap(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	var object corev1.ConfigMap
	if err := p.get(ctx, name, &object, optional); err != nil {
		return nil, err
	}
	data := maps.Clone(object.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	return chosen("configmap "+name, data, items)
}

// get reads an object for a volume. The error is a *waiting if the object doesn't exist.
func (p *pod) get(ctx context.Context, name string, object client.Object, optional *bool) error {
	err := p.runner.client.Get(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: name}, object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if optional != nil && *optional {
		return nil
	}
	return &waiting{"ContainerCreating", err.Error()}
}

// chosen selects the requested keys of a volume. Without any it returns all.
func chosen(from string, data map[string][]byte, items []corev1.KeyToPath) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		content, exists := data[item.Key]
		if !exists {
			return nil, &waiting{"ContainerCreating", from + " has no key " + item.Key}
		}
		files[item.Path] = content
	}
	return files, nil
}

func writeFiles(folder string, files map[string][]byte) error {
	for name, content := range files {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := write(file, content, 0, 0o644); err != nil {
			return err
		}
	}
	return nil
}
